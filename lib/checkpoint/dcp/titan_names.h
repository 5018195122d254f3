// torchtitan's names of Llama's and Qwen3's parameters, in Hugging Face's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace automodel::checkpoint {

struct TitanName {
  std::string hugging_face = {};
  bool paired_rows = false;  ///< rows of a head's two halves alternate, as torchtitan's RoPE of Llama takes them
};

/// Empty for a name that torchtitan does not have.
std::optional<TitanName> from_titan(std::string_view name, std::string_view model_type);
/// The counterpart: torchtitan's name, as it is today, of a Hugging Face parameter; empty if it has none. `paired_rows`
/// as of from_titan.
struct ForTitan {
  std::string name = {};
  bool paired_rows = false;
};
std::optional<ForTitan> to_titan(std::string_view name, std::string_view model_type);
/// Model types whose names are known.
bool has_titan_names(std::string_view model_type);

/// The row of a projection in Hugging Face's order, where the halves of each head follow one another: pair i of a head
/// becomes rows i and head_dim / 2 + i.
std::int64_t unpaired_row(std::int64_t row, std::int64_t head_dim);

}  // namespace automodel::checkpoint
