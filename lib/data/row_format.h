// From text to ids, labels and attention mask: prompts with answers, and the packaging step that all builders share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/data_config.h"
#include "data/picture_source.h"
#include "data/row_tokenizer.h"

namespace automodel::data {

/// A finished row; the sizes of input_ids and labels are equal.
struct BuiltRow {
  std::vector<std::int32_t> input_ids = {};
  std::vector<std::int32_t> labels = {};     ///< shifted: labels[t] is what position t must predict
  std::int64_t attended = 0;                 ///< the attention mask is 1 for this many leading positions, 0 after them
  std::vector<PictureSource> pictures = {};  ///< in the order of their placeholders
  bool cuts_answers = false;  ///< labels end inside an answer, at a token that the template puts behind it

  bool has_labels() const;
};

/// Length limits of rows, in tokens.
struct RowLengths {
  std::optional<std::int64_t> limit = std::nullopt;  ///< truncation
  std::optional<std::int64_t> full = std::nullopt;   ///< padding
};
/// From a section's seq_length, padding and truncation; adds `missing-key` at `key`.seq_length if padding has no
/// length.
RowLengths row_lengths(const config::EncodedFields& fields, const std::string& key, Diagnostics& problems);

/// Shifts labels by one, masks them (`counts`: whether each token is a label) and pads up to `full`.
BuiltRow package(std::vector<std::int32_t> ids, const std::vector<bool>& counts, std::optional<std::int64_t> full,
                 const RowTokenizer& tokenizer);

/// Concatenates prompt and answer. `answer_only`: the prompt is masked; its length is counted by encoding it alone,
/// without special tokens (plus the BOS if one is added). If a token spans both, the first token of the answer is
/// masked too, as in NeMo AutoModel.
BuiltRow format_prompt(const RowTokenizer& tokenizer, const std::string& prompt, const std::string& answer,
                       const RowLengths& lengths, bool answer_only);

}  // namespace automodel::data
