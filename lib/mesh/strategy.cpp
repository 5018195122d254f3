#include "mesh/strategy.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <utility>

namespace automodel::mesh {
namespace {

constexpr std::array<std::pair<std::string_view, Strategy>, 5> kSpellings = {{
    {"fsdp2", Strategy::kFsdp2},
    {"megatron_fsdp", Strategy::kMegatronFsdp},
    {"ddp", Strategy::kDdp},
    {"megatron-fsdp", Strategy::kMegatronFsdp},
    {"mfsdp", Strategy::kMegatronFsdp},
}};

}  // namespace

std::string_view name_of(Strategy strategy) {
  return std::find_if(kSpellings.begin(), kSpellings.end(), [&](const auto& row) { return row.second == strategy; })
      ->first;
}

std::optional<Strategy> parse_strategy(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const auto& [name, strategy] : kSpellings)
    if (name == lower) return strategy;
  return std::nullopt;
}

}  // namespace automodel::mesh
