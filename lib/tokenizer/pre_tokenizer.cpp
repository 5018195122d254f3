#include "tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/spelling.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/unicode.h"

namespace automodel::tokenizer {
namespace {

constexpr std::size_t kMaxSteps = 64;
constexpr std::int64_t kMostLength = 1'000'000;
/// ASCII's count as punctuation though Unicode calls some of them symbols.
constexpr std::string_view kPunctuation = "[\\p{P}$+<=>^`|~]";
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// What happens to the matches of a pattern.
enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
constexpr std::array kBehaviors = {
    std::pair{std::string_view("Removed"), Behavior::kRemoved},
    std::pair{std::string_view("Isolated"), Behavior::kIsolated},
    std::pair{std::string_view("MergedWithPrevious"), Behavior::kMergedWithPrevious},
    std::pair{std::string_view("MergedWithNext"), Behavior::kMergedWithNext},
    std::pair{std::string_view("Contiguous"), Behavior::kContiguous},
};

/// Merges matches and the text between them into pieces according to the behavior.
class Cutter {
 public:
  Cutter(const Piece& piece, Behavior behavior, const PieceSink& sink)
      : piece_(piece), behavior_(behavior), sink_(sink) {}

  void add(std::size_t begin, std::size_t end, bool found) {
    switch (behavior_) {
      case Behavior::kRemoved:
        if (!found) give(begin, end);
        return;
      case Behavior::kIsolated: return give(begin, end);
      case Behavior::kMergedWithPrevious:
        // A match is appended to the text before it, but not to another match.
        if (!found || last_found_) flush();
        break;
      case Behavior::kMergedWithNext:
        if (found || !last_found_) flush();
        break;
      case Behavior::kContiguous:
        if (found != last_found_) flush();
        break;
    }
    if (!open_) begin_ = begin;
    open_ = true;
    end_ = end;
    last_found_ = found;
  }
  void flush() {
    if (open_) give(begin_, end_);
    open_ = false;
  }

 private:
  void give(std::size_t begin, std::size_t end) {
    sink_({piece_.text.substr(begin, end - begin), piece_.first && begin == 0});
  }
  const Piece& piece_;
  Behavior behavior_;
  const PieceSink& sink_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool open_ = false;
  bool last_found_ = false;
};

class Split final : public PreTokenizer::Step {
 public:
  Split(Needle needle, Behavior behavior, bool invert)
      : needle_(std::move(needle)), behavior_(behavior), invert_(invert) {}

  void run(const Piece& piece, PatternMatcher& matcher, const PieceSink& sink) const override {
    Cutter cutter(piece, behavior_, sink);
    std::size_t done = 0;
    for (auto match = next_match(needle_, piece.text, std::nullopt, matcher); match;
         match = next_match(needle_, piece.text, match, matcher)) {
      if (match->begin > done) cutter.add(done, match->begin, invert_);
      cutter.add(match->begin, match->end, !invert_);
      done = match->end;
      if (done == piece.text.size()) break;
    }
    if (done < piece.text.size()) cutter.add(done, piece.text.size(), invert_);
    cutter.flush();
  }

 private:
  Needle needle_;
  Behavior behavior_;
  bool invert_;
};

/// Splits at matches of a pattern, with the given behavior.
class CharacterSplit final : public PreTokenizer::Step {
 public:
  /// `only`: text between matches is dropped.
  CharacterSplit(Pattern pattern, Behavior behavior, bool only = false)
      : pattern_(std::move(pattern)), behavior_(behavior), only_(only) {}
  void run(const Piece& piece, PatternMatcher& matcher, const PieceSink& sink) const override {
    Cutter cutter(piece, behavior_, sink);
    std::size_t done = 0;
    while (done < piece.text.size()) {
      const auto match = matcher.find(pattern_, piece.text, done);
      if (!match) break;
      if (match->begin > done && !only_) cutter.add(done, match->begin, false);
      cutter.add(match->begin, match->end, true);
      done = match->end;
    }
    if (done < piece.text.size() && !only_) cutter.add(done, piece.text.size(), false);
    cutter.flush();
  }

 private:
  Pattern pattern_;
  Behavior behavior_;
  bool only_;
};

class PrefixSpace final : public PreTokenizer::Step {
 public:
  void run(const Piece& piece, PatternMatcher&, const PieceSink& sink) const override {
    if (piece.text.starts_with(' ')) return sink(piece);
    const std::string text = " " + std::string(piece.text);
    sink({text, piece.first});
  }
};

/// What follows ByteLevel sees the characters of its alphabet.
class Spell final : public PreTokenizer::Step {
 public:
  void run(const Piece& piece, PatternMatcher&, const PieceSink& sink) const override {
    sink({characters_of(piece.text), piece.first});
  }
};

class FixedLength final : public PreTokenizer::Step {
 public:
  explicit FixedLength(std::size_t length) : length_(length) {}
  void run(const Piece& piece, PatternMatcher&, const PieceSink& sink) const override {
    for (std::size_t begin = 0, end = 0; begin < piece.text.size(); begin = end) {
      for (std::size_t i = 0; i < length_ && end < piece.text.size(); ++i) end += code_point_at(piece.text, end).bytes;
      sink({piece.text.substr(begin, end - begin), piece.first && begin == 0});
    }
  }

 private:
  std::size_t length_;  ///< in characters
};

enum class PrependScheme { kNever, kFirst, kAlways };
constexpr std::array kPrepends = {std::pair{std::string_view("never"), PrependScheme::kNever},
                                  std::pair{std::string_view("first"), PrependScheme::kFirst},
                                  std::pair{std::string_view("always"), PrependScheme::kAlways}};

class Metaspace final : public PreTokenizer::Step {
 public:
  Metaspace(std::string replacement, PrependScheme prepend, bool split)
      : replacement_(std::move(replacement)), prepend_(prepend), split_(split) {}

  void run(const Piece& piece, PatternMatcher&, const PieceSink& sink) const override {
    std::string text;
    text.reserve(piece.text.size() + piece.text.size() / 2 + 3);
    const bool marked = piece.text.starts_with(' ') || piece.text.starts_with(replacement_);
    if (!marked && (prepend_ == PrependScheme::kAlways || (prepend_ == PrependScheme::kFirst && piece.first)))
      text = replacement_;
    for (const char c : piece.text) {
      if (c == ' ')
        text += replacement_;
      else
        text += c;
    }
    if (!split_) return sink({text, piece.first});
    for (std::size_t begin = 0; begin < text.size();) {  // a piece starts at each mark
      const std::size_t end = std::min(text.size(), text.find(replacement_, begin + 1));
      sink({std::string_view(text).substr(begin, end - begin), piece.first && begin == 0});
      begin = end;
    }
  }

 private:
  std::string replacement_;
  PrependScheme prepend_;
  bool split_;
};

template <class Table>
auto choose(const JsonPart& part, std::string_view key, const Table& table, std::string_view word)
    -> std::optional<decltype(table[0].second)> {
  std::vector<std::string_view> names;
  for (const auto& row : table) {
    if (row.first == word) return row.second;
    names.push_back(row.first);
  }
  part.at(key).fail(fmt::format("there is no '{}'", word), suggestion(word, names));
  return std::nullopt;
}

Pattern pattern_of(std::string_view text) {
  std::string problem;
  auto pattern = Pattern::make(text, problem);
  AUTOMODEL_CHECK(pattern.has_value(), problem);
  return std::move(*pattern);
}

std::unique_ptr<const PreTokenizer::Step> read_split(const JsonPart& part) {
  auto needle = Needle::read(part.at("pattern"));
  const auto behavior = choose(part, "behavior", kBehaviors, part.text("behavior"));
  if (!needle || !behavior) return nullptr;
  return std::make_unique<Split>(std::move(*needle), *behavior, part.flag("invert", false));
}

std::unique_ptr<const PreTokenizer::Step> read_metaspace(const JsonPart& part) {
  const std::string replacement = part.text_if("replacement").value_or(std::string(kSpaceMark));
  if (replacement.empty() || code_point_at(replacement, 0).bytes != replacement.size()) {
    part.at("replacement").fail("one character is expected");
    return nullptr;
  }
  // Files from before tokenizers 0.15 only have add_prefix_space.
  const std::string scheme =
      part.text_if("prepend_scheme").value_or(part.flag("add_prefix_space", true) ? "always" : "never");
  const auto prepend = choose(part, "prepend_scheme", kPrepends, scheme);
  if (!prepend) return nullptr;
  return std::make_unique<Metaspace>(replacement, *prepend, part.flag("split", true));
}

}  // namespace

PreTokenizer PreTokenizer::read(const JsonPart& part) {
  PreTokenizer out;
  if (!part.is_null()) out.add(part);
  return out;
}

void PreTokenizer::add(const JsonPart& part) {
  const std::string type = part.type();
  if (steps_.size() >= kMaxSteps || part.path().size() > 400) return part.fail("there are too many steps");
  std::unique_ptr<const Step> step;
  if (type == "Sequence") {
    for (const auto& item : part.items("pretokenizers")) add(item);
    return;
  }
  if (byte_level_ && (type == "ByteLevel" || type == "Metaspace")) return part.fail(type + " may not follow ByteLevel");
  if (byte_level_ && !spelled_) steps_.push_back(std::make_unique<Spell>());
  spelled_ = byte_level_;
  if (type == "ByteLevel") {
    if (part.flag("add_prefix_space", true)) steps_.push_back(std::make_unique<PrefixSpace>());
    if (part.flag("use_regex", true))
      steps_.push_back(std::make_unique<CharacterSplit>(pattern_of(kGpt2Pattern), Behavior::kIsolated));
    byte_level_ = true;
    return;
  }
  if (type == "BertPreTokenizer") {  // words first, then each punctuation mark separately
    steps_.push_back(std::make_unique<CharacterSplit>(pattern_of("\\s"), Behavior::kRemoved));
    step = std::make_unique<CharacterSplit>(pattern_of(kPunctuation), Behavior::kIsolated);
  } else if (type == "Whitespace") {
    step = std::make_unique<CharacterSplit>(pattern_of(fmt::format("[{0}]+|[^{0}\\s]+", kWordSet)), Behavior::kIsolated,
                                            true);
  } else if (type == "Punctuation") {
    const auto behavior = choose(part, "behavior", kBehaviors, part.text_if("behavior").value_or("Isolated"));
    if (behavior) step = std::make_unique<CharacterSplit>(pattern_of(kPunctuation), *behavior);
  } else if (type == "FixedLength") {
    step = std::make_unique<FixedLength>(part.has("length") ? part.integer("length", 1, kMostLength) : 5);
  } else if (type == "Split")
    step = read_split(part);
  else if (type == "Metaspace")
    step = read_metaspace(part);
  else if (type == "Digits")
    step = std::make_unique<CharacterSplit>(
        pattern_of("\\p{N}"), part.flag("individual_digits", false) ? Behavior::kIsolated : Behavior::kContiguous);
  else if (type == "WhitespaceSplit")
    step = std::make_unique<CharacterSplit>(pattern_of("\\s"), Behavior::kRemoved);
  else
    part.refuse_type("pre_tokenizer", {"ByteLevel", "Split", "Metaspace", "Digits", "WhitespaceSplit", "Whitespace",
                                       "BertPreTokenizer", "Punctuation", "FixedLength", "Sequence"});
  if (step) steps_.push_back(std::move(step));
}

void PreTokenizer::run_from(std::size_t step, const Piece& piece, PatternMatcher& matcher,
                            const PieceSink& sink) const {
  if (step == steps_.size()) {
    if (!spelled_) return sink(piece);
    const auto bytes = bytes_of(piece.text);
    AUTOMODEL_CHECK(bytes.has_value(), "steps behind ByteLevel only cut");
    return sink({*bytes, piece.first});
  }
  if (step + 1 == steps_.size() && !spelled_) return steps_[step]->run(piece, matcher, sink);
  const auto go_on = [&](const Piece& part) { run_from(step + 1, part, matcher, sink); };
  steps_[step]->run(piece, matcher, go_on);
}

}  // namespace automodel::tokenizer
