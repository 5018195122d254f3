// Tokens that are matched in the text before any other processing.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/bpe.h"
#include "tokenizer/json_part.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pattern.h"

namespace automodel::tokenizer {

struct AddedToken {
  std::string content = {};
  Id id = kNoId;             ///< `tokenizers` does not take it from the file (Tokenizer::take_added)
  bool special = false;      ///< dropped when decoding skips special tokens
  bool normalized = false;   ///< matched in the normalized text
  bool lstrip = false;       ///< absorbs white space before it
  bool rstrip = false;       ///< absorbs white space after it
  bool single_word = false;  ///< matches only if no word character is adjacent
};

/// Reads one entry of `added_tokens`. Adds problems.
AddedToken read_added_token(const JsonPart& part);

/// Finds tokens in text: leftmost first, the longest among those that start at the same position.
class TokenFinder {
 public:
  /// `contents` are the strings to search for: those of the tokens, or their normalized forms.
  TokenFinder(std::vector<AddedToken> tokens, const std::vector<std::string>& contents);

  bool empty() const { return tokens_.empty(); }
  /// Passes every part of `text` to `give`, in order: with the token it matched, or null.
  void split(std::string_view text, PatternMatcher& matcher,
             const std::function<void(std::string_view part, const AddedToken* token)>& give) const;

 private:
  struct Node {
    std::unordered_map<unsigned char, std::int32_t> next = {};
    std::int32_t token = -1;  ///< index into tokens_
  };
  struct Found {
    std::size_t begin;
    std::size_t end;
    const AddedToken* token;
  };
  std::optional<Found> find(std::string_view text, std::size_t from) const;
  bool stands_alone(std::string_view text, const Found& found, PatternMatcher& matcher) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<std::int32_t, 256> first_{};  ///< node after the first byte; 0 if no token starts with it
  std::optional<Pattern> word_;            ///< a word character; set only if a token needs it
};

}  // namespace automodel::tokenizer
