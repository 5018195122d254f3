// Names of models, tokenizers and data sets on the Hugging Face hub.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace automodel {

enum class HubKind { kModel, kDataset };

/// ": 'hf download Qwen/Qwen3-0.6B' does that", what brings a repository into the local cache, for a name of the form
/// OWNER/NAME; "" for any other.
std::string download_advice(std::string_view name, const std::optional<std::string>& revision,
                            HubKind kind = HubKind::kModel);

}  // namespace automodel
