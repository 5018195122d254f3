#include "base/error.h"
#include "model/blocks.h"
#include "model/recurrent_blocks.h"

namespace automodel::model {

std::unique_ptr<Block> make_mixer(const BlockContext& context, int layer) {
  switch (context.spec.mixer(layer)) {
    case arch::Mixer::kAttention:
      if (context.spec.compressed) return make_compressed_attention(context, layer);
      return context.spec.latent ? make_latent_attention(context, layer) : make_attention(context, layer);
    case arch::Mixer::kGatedDelta: return make_gated_delta(context, layer);
    case arch::Mixer::kChannelDelta: return make_channel_delta(context, layer);
    case arch::Mixer::kShortConv: return make_gated_conv(context, layer);
    case arch::Mixer::kMamba: return make_mamba(context, layer);
    case arch::Mixer::kMambaAndAttention: return make_mamba_and_attention(context, layer);
    case arch::Mixer::kNone: return nullptr;
    case arch::Mixer::kLightning: break;
  }
  throw InternalError("a mixer without a block");
}

}  // namespace automodel::model
