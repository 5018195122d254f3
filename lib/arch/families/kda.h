// What Kimi-Linear and Ling share: Kimi Delta Attention in most layers, latent attention in the others, experts with a
// sigmoid router.
#pragma once

#include "arch/families/experts.h"
#include "arch/families/latent.h"
#include "arch/families/recurrent.h"

namespace automodel::arch {

/// The keys that only these families have for their experts.
MixtureOfExperts& read_kimi_experts(ConfigReader& config, ModelSpec& spec);
/// Heads, their width and the taps, where the config has them, else these.
void read_channel_delta(ConfigReader& config, ModelSpec& spec, int heads, int width, int taps);

/// What the modules of such a layer are called. A product without the name of its low rank is one matrix.
struct ChannelDeltaNames {
  std::string_view module, output;
  std::string_view decay_down = "", decay, gate_down = "", gate;
  bool rate_of_four = false;  ///< A_log is [1, 1, heads, 1]
};
void lay_out_channel_delta(const ModelSpec& spec, LayerBuilder& layer, const ChannelDeltaNames& names);

}  // namespace automodel::arch
