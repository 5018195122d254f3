// Transforms text before it is split: normal forms, replacements, prefixes.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/json_part.h"
#include "tokenizer/pattern.h"

namespace automodel::tokenizer {

/// Bytes that a text of `bytes` may become. Normal forms make at most 11 of one, marks of SentencePiece 3.
inline std::size_t most_normalized(std::size_t bytes) {
  return 16 * bytes + 4096;
}
/// Throws Error (kBadInput, bad-tokenizer) if a text has more bytes than it may become.
void check_normalized(std::size_t bytes, std::size_t most);

class Normalizer {
 public:
  /// Reads the `normalizer` of tokenizer.json: NFC, NFD, Prepend, Replace, Strip, those of text_cleaning.h, Sequence,
  /// or null. Adds problems.
  static Normalizer read(const JsonPart& part);

  bool empty() const { return steps_.empty(); }
  /// `text` must be valid UTF-8, and stays so. Throws Error (kBadInput, bad-tokenizer) if a step makes more than
  /// most_normalized() of it: tokenizer.json, which strangers write, decides what replaces what.
  /// False if the first character was removed: the text then begins later, so that Metaspace puts no mark before it.
  bool apply(std::string& text, PatternMatcher& matcher) const;

  /// One transformation of the whole text.
  class Step {
   public:
    Step() = default;
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;
    virtual ~Step() = default;
    /// As Normalizer::apply; throws before the text has more than `most` bytes.
    virtual bool apply(std::string& text, std::size_t most, PatternMatcher& matcher) const = 0;
  };

 private:
  void add(const JsonPart& part);
  std::vector<std::unique_ptr<const Step>> steps_;
};

/// The `pattern` of a Replace or Split: {"String": ...} or {"Regex": ...}.
class Needle {
 public:
  static std::optional<Needle> read(const JsonPart& part);
  /// The first match at or after `from`. An empty string never matches.
  std::optional<Match> find(std::string_view text, std::size_t from, PatternMatcher& matcher) const;
  /// `text` with every match replaced. Throws as Normalizer::apply.
  std::string replaced(std::string_view text, std::string_view by, std::size_t most, PatternMatcher& matcher) const;

 private:
  std::string text_;
  std::optional<Pattern> pattern_;
};

/// The match after `last` in a scan of the whole text; after an empty match the scan advances by one code point.
std::optional<Match> next_match(const Needle& needle, std::string_view text, const std::optional<Match>& last,
                                PatternMatcher& matcher);

}  // namespace automodel::tokenizer
