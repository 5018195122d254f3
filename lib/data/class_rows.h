// Rows of a sequence classifier: one class per row, predicted from its last token.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "data/dataset.h"
#include "data/token_row.h"
#include "data/tokenizer.h"

namespace automodel::data {

/// Sets the labels of a sample whose ids are known: `label` at the last token, ignored elsewhere. Tokens at the end
/// that equal `pad` are passed over, as transformers' classifiers do with config.json's pad_token_id, unless all are.
/// `pad`: the model's, else the id that pads rows, which is then saved as the model's.
void label_last_token(Sample& sample, std::int32_t label, std::optional<std::int32_t> pad);

/// Says that `label` is not a class; nothing if it is.
std::optional<RowProblem> check_class(std::int64_t label, int classes);

struct ClassOptions {
  std::string text_key = "text", first_key = "text_a", second_key = "text_b", label_key = "label";
  int classes = 0;
  std::optional<std::int32_t> pad = {};  ///< of the model, else what pads rows
  std::size_t limit = 0;                 ///< longer rows are cut to this many tokens; 0: not
};

/// Encodes rows {"text", "label"}, or {"text_a", "text_b", "label"} whose second text follows the first (transformers'
/// pair of a decoder's tokenizer). The tokenizer's special tokens are put around the whole.
class ClassEncoder {
 public:
  /// `tokenizer` must outlive the encoder.
  ClassEncoder(const Tokenizer& tokenizer, ClassOptions options)
      : tokenizer_(tokenizer), options_(std::move(options)) {}
  /// Fills ids and labels of `out`.
  std::optional<RowProblem> encode(std::string_view line, Sample& out) const;

 private:
  const Tokenizer& tokenizer_;
  ClassOptions options_;
};

}  // namespace automodel::data
