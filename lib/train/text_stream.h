// Decodes tokens one by one; text is emitted as soon as it is final.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace automodel::train {

/// A character may be spread over several tokens, and what a token adds may depend on the one before it (a leading
/// space). So each step decodes the last few tokens twice, with and without the new one, and emits the difference.
class TextStream {
 public:
  /// `before`: the last tokens of the text that is continued.
  TextStream(std::function<std::string(std::span<const std::int32_t>)> decode, std::vector<std::int32_t> before)
      : decode_(std::move(decode)), ids_(std::move(before)), given_(ids_.size()) {}

  /// Adds a token; returns the text that became final, empty inside a character.
  std::string add(std::int32_t token);
  /// Ends the text; returns the rest, with replacement characters for incomplete characters.
  std::string finish();
  /// Everything emitted so far.
  const std::string& text() const { return text_; }

 private:
  std::function<std::string(std::span<const std::int32_t>)> decode_;
  std::vector<std::int32_t> ids_;
  std::size_t first_ = 0, given_;  ///< decoding restarts at token first_; the text of tokens before given_ was
                                   ///< emitted
  std::string text_ = {};
};

}  // namespace automodel::train
