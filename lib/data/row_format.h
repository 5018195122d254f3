// From text to ids, labels and attention mask: prompts with answers, and the packaging that all builders share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/data_config.h"
#include "data/row_tokenizer.h"

namespace automodel::data {

/// A finished row; the three are of one length.
struct BuiltRow {
  std::vector<std::int32_t> input_ids = {};
  std::vector<std::int32_t> labels = {};  ///< shifted: labels[t] is what position t must predict
  std::int64_t attended = 0;              ///< the first so many positions have attention mask 1

  bool has_labels() const;
};

/// How long rows become.
struct RowLengths {
  std::optional<std::int64_t> limit = std::nullopt;  ///< truncation
  std::optional<std::int64_t> full = std::nullopt;   ///< padding
};
/// Of a section's seq_length, padding and truncation; `bad-value` at `key` where padding has no length.
RowLengths row_lengths(const config::RowDatasetFields& fields, const std::string& key, Diagnostics& problems);

/// Shifts by one, masks (`counts`: whether a token is a label) and fills up to `full`.
BuiltRow package(std::vector<std::int32_t> ids, const std::vector<bool>& counts, std::optional<std::int64_t> full,
                 const RowTokenizer& tokenizer);

/// Prompt and answer joined as they are. `answer_only`: the prompt's tokens, counted by themselves and without special
/// ones, do not count. Where a token spans the two, the first token of the answer goes unlearned, as in NeMo AutoModel.
BuiltRow format_prompt(const RowTokenizer& tokenizer, const std::string& prompt, const std::string& answer,
                       const RowLengths& lengths, bool answer_only);

}  // namespace automodel::data
