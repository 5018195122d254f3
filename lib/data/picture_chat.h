// Conversations with pictures as rows: placeholders for the pictures, and labels as NeMo AutoModel's collate functions
// set them.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

#include "data/chat_format.h"
#include "data/open_dataset.h"
#include "data/row_format.h"
#include "data/row_tokenizer.h"

namespace automodel::data {

/// Which tokens are answers: those between a marker and the stop token, which counts too. A marker that a user typed
/// opens an answer as well. Source: build_labels_from_template in NeMo AutoModel 0.7.
struct AnswerMarks {
  std::vector<std::int32_t> marker = {};  ///< not empty
  std::int32_t stop = 0;

  std::vector<bool> find(const std::vector<std::int32_t>& ids) const;
};

class PictureChat {
 public:
  /// Null after `bad-template` if the template does not say where answers begin and end.
  static std::unique_ptr<const PictureChat> open(std::shared_ptr<const RowTokenizer> tokenizer,
                                                 std::unique_ptr<const ChatFormat> chat,
                                                 const pictures::PictureTokens& tokens, const std::string& key,
                                                 Diagnostics& problems);

  /// `messages` as picture_messages() gives them, with pictures of the row. Decodes the pictures. A row longer than the
  /// limit is cut, but not within its pictures. Throws RowRefused and rows::RowError.
  BuiltRow build(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                 const RowPictures& pictures, const RowLengths& lengths) const;
  const ChatFormat& chat() const { return *chat_; }
  const AnswerMarks& marks() const { return marks_; }

 private:
  std::vector<std::int32_t> ids_of(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools) const;
  std::optional<AnswerMarks> find_marks() const;
  /// Each PictureTokens::begin as Gemma 3's processor writes it.
  std::string with_pictures_apart(const std::string& text) const;

  std::shared_ptr<const RowTokenizer> tokenizer_;
  std::unique_ptr<const ChatFormat> chat_;
  pictures::PictureTokens tokens_;
  AnswerMarks marks_;
};

}  // namespace automodel::data
