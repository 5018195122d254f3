// Text with pictures as tokens, as transformers' processors write it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "data/chat_format.h"
#include "pictures/processor.h"
#include "tokenizer/tokenizer.h"

namespace automodel::data {

/// Pixels of the pictures of one text, as files and as the processor resizes them before it crops: they are in memory
/// together, in 1 GiB at most. A picture of 1 x 16,384 pixels would be resized to 336 x 5.5 million before its middle
/// is cut out.
class TextPixels {
 public:
  /// `processor` must outlive this.
  explicit TextPixels(const std::optional<pictures::Processor>& processor) : processor_(processor) {}
  /// Throws PictureError if the text cannot have this picture, too.
  void add(pictures::Size size);

 private:
  const std::optional<pictures::Processor>& processor_;
  std::int64_t sum_ = 0;
};

/// Tokens of one text's pictures: a limit where nothing else sets one.
inline constexpr std::int64_t kMostPictureTokens = 1 << 20;
/// "its pictures need more than the 20 tokens that there may be".
RowRefused no_room_for_pictures(std::int64_t most);

class PictureText {
 public:
  /// `special`: with the tokens that the tokenizer puts around a text.
  using Encode = std::function<std::vector<std::int32_t>(std::string_view text, bool special)>;

  /// Nothing after `bad-tokenizer`: it lacks tokens that the processor puts around and between placeholders.
  /// `tokenizer` must outlive this.
  static std::optional<PictureText> open(const tokenizer::Tokenizer& tokenizer, Encode encode,
                                         const pictures::PictureTokens& tokens, const std::string& key,
                                         Diagnostics& problems);

  /// The tokens of a rendered conversation, with one placeholder for each picture.
  std::vector<std::int32_t> ids(std::string text) const;
  /// The same with all placeholders of each picture, and what is between them. Throws RowRefused if there are not as
  /// many placeholders as pictures, or if these need more than `most` tokens.
  std::vector<std::int32_t> with_pictures(const std::vector<std::int32_t>& ids, std::span<const pictures::Size> sizes,
                                          std::int64_t most) const;
  const pictures::PictureTokens& tokens() const { return tokens_; }
  /// The id of a text that is one token.
  std::optional<std::int32_t> single_token(std::string_view text) const;

 private:
  PictureText(const tokenizer::Tokenizer& tokenizer, Encode encode, const pictures::PictureTokens& tokens)
      : tokenizer_(&tokenizer), encode_(std::move(encode)), tokens_(tokens) {}
  /// The ids of the processor's tokens; false after a problem.
  bool find_tokens(const std::string& key, Diagnostics& problems);
  /// Each picture with PictureTokens::begin and `end` around it, as Gemma's processors write it.
  std::string enclosed(const std::string& text) const;
  /// Appends the tokens of a picture in parts.
  void add_parts(pictures::Size size, std::vector<std::int32_t>& out) const;

  const tokenizer::Tokenizer* tokenizer_;
  Encode encode_;
  pictures::PictureTokens tokens_;
  std::optional<std::int32_t> row_end_ = {}, picture_end_ = {};  ///< of Processor
  /// Around a part and the whole picture, and behind a row of parts (PictureTokens::in_parts).
  std::int32_t part_begin_ = -1, part_end_ = -1, parts_row_end_ = -1, whole_begin_ = -1, whole_end_ = -1;
};

}  // namespace automodel::data
