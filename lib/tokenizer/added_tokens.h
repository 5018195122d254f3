// Tokens that are found in the text before anything else happens to it.
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
  Id id = kNoId;
  bool special = false;      ///< left out where decoding skips special tokens
  bool normalized = false;   ///< looked for in normalised text
  bool lstrip = false;       ///< takes white space before it along
  bool rstrip = false;       ///< and after it
  bool single_word = false;  ///< only where no word goes on beside it
};

/// One entry of `added_tokens`. Adds problems.
AddedToken read_added_token(const JsonPart& part);

/// Finds tokens in text: the leftmost, and of those that begin there the longest.
class TokenFinder {
 public:
  /// `contents` are what is looked for: those of the tokens, or what normalising makes of them.
  TokenFinder(std::vector<AddedToken> tokens, const std::vector<std::string>& contents);

  bool empty() const { return tokens_.empty(); }
  /// Gives every part of `text` in order: with the token that it is, or with null.
  void split(std::string_view text, PatternMatcher& matcher,
             const std::function<void(std::string_view part, const AddedToken* token)>& give) const;

 private:
  struct Node {
    std::unordered_map<unsigned char, std::int32_t> next = {};
    std::int32_t token = -1;  ///< index of tokens_
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
  std::array<std::int32_t, 256> first_{};  ///< node after a first byte; 0 where no token begins with it
  std::optional<Pattern> word_;            ///< a word character; made where a token needs it
};

}  // namespace automodel::tokenizer
