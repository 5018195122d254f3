// Parsing of layout strings: parse_layout() of pipeline_layout.h.
#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "base/spelling.h"
#include "plan/pipeline_layout.h"

namespace automodel::plan {
namespace {

constexpr std::string_view kLayoutStringKey = "pipeline_model_parallel_layout";
constexpr std::size_t kLongest = 1 << 20;

struct Letter {
  char letter;
  std::string_view name;
  LayerKind kind;
};
constexpr std::array kLetters = {
    Letter{'E', "embedding", LayerKind::kEmbedding},
    Letter{'t', "decoder", LayerKind::kDecoder},
    Letter{'m', "mtp", LayerKind::kMtp},
    Letter{'L', "loss", LayerKind::kLoss},
};

/// A character and its position in the original text.
struct Mark {
  char letter;
  std::size_t at;
};
using Marks = std::vector<Mark>;

Diagnostic bad_layout(std::string message, std::string help) {
  return Diagnostic{"bad-value"}.says(std::move(message)).hint(std::move(help)).of(std::string(kLayoutStringKey));
}

/// The number of a "*n" at `at`, and the position after it; empty if there is none.
std::optional<std::pair<std::size_t, std::size_t>> repeat_at(const Marks& marks, std::size_t at) {
  if (at + 1 >= marks.size() || marks[at].letter != '*') return std::nullopt;
  std::size_t end = at + 1;
  std::size_t count = 0;
  while (end < marks.size() && std::isdigit(static_cast<unsigned char>(marks[end].letter)) != 0) {
    count = std::min(kLongest + 1, count * 10 + static_cast<std::size_t>(marks[end].letter - '0'));
    ++end;
  }
  if (end == at + 1) return std::nullopt;
  return std::pair{count, end};
}

bool append(Marks& out, const Marks& from, std::size_t begin, std::size_t end, std::size_t count) {
  if ((end - begin) * count > kLongest || out.size() + (end - begin) * count > kLongest) return false;
  for (std::size_t i = 0; i < count; ++i)
    out.insert(out.end(), from.begin() + static_cast<std::ptrdiff_t>(begin),
               from.begin() + static_cast<std::ptrdiff_t>(end));
  return true;
}

/// Expands every "(..)*n"; returns false if the result would be too long.
bool expand_groups(const Marks& in, Marks& out) {
  for (std::size_t i = 0; i < in.size();) {
    if (in[i].letter == '(') {
      std::size_t close = i + 1;
      while (close < in.size() && in[close].letter != ')') ++close;
      if (const auto repeat = repeat_at(in, close + 1); close > i + 1 && repeat) {
        if (!append(out, in, i + 1, close, repeat->first)) return false;
        i = repeat->second;
        continue;
      }
    }
    out.push_back(in[i++]);
  }
  return true;
}

/// Expands every "x*n"; returns false if the result would be too long.
bool expand_letters(const Marks& in, Marks& out) {
  for (std::size_t i = 0; i < in.size();) {
    if (const auto repeat = repeat_at(in, i + 1)) {
      if (!append(out, in, i, i + 1, repeat->first)) return false;
      i = repeat->second;
    } else {
      out.push_back(in[i++]);
    }
  }
  return true;
}

const Letter* find_letter(char letter) {
  for (const auto& row : kLetters)
    if (row.letter == letter) return &row;
  return nullptr;
}

}  // namespace

std::string_view name_of(LayerKind kind) {
  return std::ranges::find(kLetters, kind, &Letter::kind)->name;
}

char letter_of(LayerKind kind) {
  return std::ranges::find(kLetters, kind, &Letter::kind)->letter;
}

std::optional<LayerKinds> parse_layout(std::string_view text, Diagnostics& problems) {
  Marks marks;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] != ',') marks.push_back({text[i], i});
  Marks groups;
  Marks letters;
  if (!expand_groups(marks, groups) || !expand_letters(groups, letters)) {
    problems.push_back(bad_layout(fmt::format("the layout expands to more than {} letters", kLongest),
                                  "the numbers after * are repeat counts"));
    return std::nullopt;
  }
  LayerKinds out(1);
  for (const auto& mark : letters) {
    if (mark.letter == '|') {
      out.emplace_back();
    } else if (const Letter* row = find_letter(mark.letter)) {
      out.back().push_back(row->kind);
    } else {
      problems.push_back(bad_layout(fmt::format("'{}' at column {} of layout '{}'", mark.letter, mark.at + 1, text),
                                    "a layout has E (embedding), t (decoder layer), m (multi-token prediction), L "
                                    "(loss) and | between stages; (tt|)*3 and t*3 repeat, but cannot be nested"));
      return std::nullopt;
    }
  }
  return out;
}

std::optional<LayerKinds> parse_layout(const std::vector<std::vector<std::string>>& names, Diagnostics& problems) {
  LayerKinds out;
  std::vector<std::string_view> known;
  known.reserve(kLetters.size());
  for (const auto& row : kLetters) known.push_back(row.name);
  for (const auto& stage : names) {
    auto& kinds = out.emplace_back();
    for (const auto& name : stage) {
      std::string lower = name;
      for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      bool found = false;
      for (const auto& row : kLetters)
        if (row.name == lower) {
          kinds.push_back(row.kind);
          found = true;
        }
      if (found) continue;
      problems.push_back(bad_layout(fmt::format("unknown layer '{}' in the layout", name), suggestion(name, known)));
      return std::nullopt;
    }
  }
  return out;
}

}  // namespace automodel::plan
