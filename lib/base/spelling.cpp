#include "base/spelling.h"

#include <algorithm>
#include <cctype>
#include <numeric>

namespace automodel {
namespace {

std::string folded(std::string_view word) {
  std::string out(word);
  for (char& c : out) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::vector<std::string_view> parts_of(std::string_view word) {
  std::vector<std::string_view> out;
  while (!word.empty()) {
    out.push_back(word.substr(0, word.find('_')));
    word.remove_prefix(std::min(word.size(), out.back().size() + 1));
  }
  return out;
}

/// Whether `brief` is `full` with adjacent parts replaced by their initials, as in kv_heads for key_value_heads.
bool abbreviates(std::string_view brief, std::string_view full) {
  const auto parts = parts_of(full);
  std::size_t at = 0;
  bool shorter = false;
  for (const auto part : parts_of(brief)) {
    if (at < parts.size() && part == parts[at]) {
      ++at;
      continue;
    }
    if (part.size() < 2) return false;
    for (const char initial : part)
      if (at == parts.size() || parts[at].empty() || parts[at++].front() != initial) return false;
    shorter = true;
  }
  return shorter && at == parts.size();
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t limit) {
  if (a.size() > b.size() + limit || b.size() > a.size() + limit) return limit + 1;
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1] ? 1 : 0)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    if (*std::ranges::min_element(row) > limit) return limit + 1;
  }
  return std::min(row.back(), limit + 1);
}

std::string_view nearest(std::string_view word, const std::vector<std::string_view>& known) {
  const std::string given = folded(word.substr(0, 128));
  for (const auto candidate : known)
    if (abbreviates(given, folded(candidate)) || abbreviates(folded(candidate), given)) return candidate;
  // Two of four letters are another word.
  const std::size_t limit = given.size() <= 4 ? 1 : std::max<std::size_t>(2, given.size() / 3);
  std::string_view best;
  std::size_t best_rank = 2 * limit + 1;
  for (const auto candidate : known) {
    const std::string name = folded(candidate);
    const std::size_t distance = edit_distance(given, name, limit);
    if (distance > limit || distance >= std::max(candidate.size(), given.size())) continue;
    const std::size_t rank = distance > 0 && name.starts_with(given) ? 1 : 2 * distance;
    if (rank < best_rank) {
      best_rank = rank;
      best = candidate;
    }
  }
  return best;
}

std::string join(const std::vector<std::string_view>& words, std::string_view separator) {
  std::string out;
  for (const auto word : words) {
    if (!out.empty()) out += separator;
    out += word;
  }
  return out;
}

std::string suggestion(std::string_view word, const std::vector<std::string_view>& known, std::size_t most) {
  if (known.empty()) return "";
  if (const auto near = nearest(word, known); !near.empty()) return "did you mean '" + std::string(near) + "'?";
  if (known.size() <= most) return "known: " + join(known);
  return "known: " + join({known.begin(), known.begin() + static_cast<std::ptrdiff_t>(most)}) + ", ...";
}

}  // namespace automodel
