// Conversations with pictures as rows: placeholders for the pictures, and labels as NeMo AutoModel's collate functions
// set them.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

#include "data/chat_format.h"
#include "data/open_dataset.h"
#include "data/picture_text.h"
#include "data/row_format.h"
#include "data/row_tokenizer.h"

namespace automodel::data {

/// Which tokens are answers: those between a marker and the stop token, which counts too. A marker that a user typed
/// opens an answer as well. Source: build_labels_from_template in NeMo AutoModel 0.7.
struct AnswerMarks {
  std::vector<std::int32_t> marker = {};  ///< not empty
  std::int32_t stop = 0;

  std::vector<bool> find(const std::vector<std::int32_t>& ids) const;
  /// The tokens with `prefix` behind each marker. Source: gemma4_prefix_collate_fn in NeMo AutoModel 0.7.
  std::vector<std::int32_t> prefixed(const std::vector<std::int32_t>& ids,
                                     const std::vector<std::int32_t>& prefix) const;
};

/// What a row's tokens are searched for where the template puts nothing before an answer.
struct AnswerText {
  std::vector<std::int32_t> ids = {};
  std::vector<std::int32_t> trimmed = {};  ///< without the spaces in front
};
/// Which tokens are answers: the first place of each answer behind the one before it, also in what a user says, with
/// one of `stops` behind it. From an answer that is not found on, there are none. Source: build_labels in NeMo
/// AutoModel 0.7.
std::vector<bool> find_answers(const std::vector<std::int32_t>& ids, const std::vector<AnswerText>& answers,
                               const std::vector<std::int32_t>& stops);

class PictureChat {
 public:
  /// Null after `bad-template` if the template does not say where answers end (with `answer_prefix`, where they begin),
  /// and after `bad-tokenizer` without the tokens that the processor puts around and between placeholders.
  static std::unique_ptr<const PictureChat> open(std::shared_ptr<const RowTokenizer> tokenizer,
                                                 std::unique_ptr<const ChatFormat> chat,
                                                 const pictures::PictureTokens& tokens,
                                                 const std::string& answer_prefix, const std::string& key,
                                                 Diagnostics& problems);

  /// `messages` as picture_messages() gives them, with pictures of the row. Decodes the pictures. A row longer than the
  /// limit is cut, but not within its pictures. Throws RowRefused and rows::RowError.
  BuiltRow build(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                 const RowPictures& pictures, const RowLengths& lengths) const;
  const ChatFormat& chat() const { return *chat_; }

 private:
  std::vector<std::int32_t> ids_of(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools) const;
  /// What shows answers; false if nothing does.
  bool find_marks();
  std::vector<bool> answers_in(const std::vector<std::int32_t>& ids, const nlohmann::ordered_json& messages) const;
  /// Whether labels end inside an answer.
  bool cuts_answers(const std::vector<std::int32_t>& ids, const std::vector<bool>& answers,
                    const nlohmann::ordered_json& messages) const;

  std::shared_ptr<const RowTokenizer> tokenizer_;
  std::unique_ptr<const ChatFormat> chat_;
  pictures::PictureTokens tokens_;
  std::optional<PictureText> text_ = {};   ///< never empty once opened
  std::optional<AnswerMarks> marks_ = {};  ///< empty: answers are searched for
  std::vector<std::int32_t> stops_ = {};   ///< then, behind one
  std::vector<std::int32_t> prefix_ = {};  ///< tokens that answers begin with
};

}  // namespace automodel::data
