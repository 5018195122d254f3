// Data-parallel strategies.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace automodel::mesh {

enum class Strategy : std::uint8_t { kFsdp2, kMegatronFsdp, kDdp };

/// "fsdp2", "megatron_fsdp", "ddp".
std::string_view name_of(Strategy strategy);
/// Also accepts "megatron-fsdp" and "mfsdp". Case-insensitive, as in NeMo AutoModel. Empty for an unknown name.
std::optional<Strategy> parse_strategy(std::string_view text);

}  // namespace automodel::mesh
