// torchtitan's names of Llama's and Qwen3's parameters, in Hugging Face's.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace automodel::checkpoint {

/// A parameter's name on the other side.
struct Renamed {
  std::string name = {};
  bool paired_rows = false;  ///< torchtitan has rows of a head's two halves in turn, as its RoPE of Llama takes them
};

/// Hugging Face's name; empty for a name that torchtitan does not have.
std::optional<Renamed> from_titan(std::string_view name, std::string_view model_type);
/// torchtitan's name, as it is today, of a Hugging Face parameter; empty if it has none.
std::optional<Renamed> to_titan(std::string_view name, std::string_view model_type);
/// Model types whose names are known.
bool has_titan_names(std::string_view model_type);

}  // namespace automodel::checkpoint
