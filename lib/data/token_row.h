// One line of a tokens file: {"input_ids": [...], "labels": [...], "attention_mask": [...]}.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace automodel::data {

struct TokenRow {
  std::vector<std::int32_t> input_ids = {};
  std::vector<std::int32_t> labels = {};          ///< unshifted; empty if the row has none
  std::vector<std::int32_t> attention_mask = {};  ///< 0 or 1; empty if the row has none
  std::optional<std::int32_t> label = {};         ///< a classifier's
  bool shifted = false;  ///< the text's labels[i] was the target of input_ids[i], as `automodel data --json` prints it
};

struct RowProblem {
  std::size_t column = 1;  ///< in bytes, from 1
  std::string reason = {};
  std::string help = {};  ///< empty: use the general help on row format
};

/// Reads a row into `out`, reusing its memory. The whole line must be one JSON object; keys other than the three are
/// skipped, except that keys which would change the result (position_ids, loss_mask, ...) are refused. A row with
/// "shifted": true is read as one whose labels are not. Lengths and the
/// allowed values of labels and masks are checked here; the vocabulary range of ids is left to the caller.
/// With `classes` > 0 a row is {"input_ids": [...], "label": k} with k below it, and "labels" is refused.
std::optional<RowProblem> parse_token_row(std::string_view line, TokenRow& out, int classes = 0);

}  // namespace automodel::data
