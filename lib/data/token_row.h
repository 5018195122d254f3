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
  std::vector<std::int32_t> labels = {};          ///< under their own token; empty where the row has none
  std::vector<std::int32_t> attention_mask = {};  ///< 0 or 1; empty where the row has none
};

struct RowProblem {
  std::size_t column = 1;  ///< from 1, in bytes
  std::string reason = {};
  std::string help = {};  ///< empty: that of the form of rows
};

/// Reads a row into `out`, whose memory is reused. The whole line must be one JSON object; keys other than the three
/// are skipped, but those that would change the result (position_ids, loss_mask, ...) are refused. Lengths, and that
/// labels and masks hold what they may, are checked here; that ids lie in a vocabulary is for the caller.
std::optional<RowProblem> parse_token_row(std::string_view line, TokenRow& out);

}  // namespace automodel::data
