// Shared by Kimi-Linear and Ling: Kimi Delta Attention in most layers, latent attention in the others, experts with a
// sigmoid router.
#pragma once

#include "arch/families/experts.h"
#include "arch/families/latent.h"
#include "arch/families/recurrent.h"

namespace automodel::arch {

/// Reads the expert keys specific to these families.
MixtureOfExperts& read_kimi_experts(ConfigReader& config, ModelSpec& spec);
/// Reads heads, head width and convolution taps, with these defaults.
void read_channel_delta(ConfigReader& config, ModelSpec& spec, int heads, int width, int taps);

/// Module names of such a layer. A projection whose `_down` name is empty is a single matrix instead of a low-rank
/// pair.
struct ChannelDeltaNames {
  std::string_view module, output;
  std::string_view decay_down = "", decay, gate_down = "", gate;
  bool rate_of_four = false;  ///< A_log is [1, 1, heads, 1]
};
void lay_out_channel_delta(const ModelSpec& spec, LayerBuilder& layer, const ChannelDeltaNames& names);

}  // namespace automodel::arch
