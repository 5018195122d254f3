// Shared by Cohere's families.
#pragma once

#include "arch/families/decoder.h"

namespace automodel::arch {

/// read_decoder() for parallel blocks with one LayerNorm, interleaved RoPE and scaled logits.
inline void read_cohere(ConfigReader& config, ModelSpec& spec, DecoderDefaults defaults) {
  defaults.max_positions = 8192;
  defaults.norm_key = "layer_norm_eps";
  defaults.norm_eps = 1e-5;
  defaults.tied = true;
  defaults.pad_token = 0;
  read_decoder(config, spec, defaults);
  spec.norm = NormKind::kLayerNorm;
  spec.parallel_blocks = true;
  spec.rope.interleaved = true;
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);
  spec.logit_scale = config.number({"logit_scale"}, 0.0625);
}

inline void lay_out_cohere(const ModelSpec& spec, int /*number*/, LayerBuilder& layer) {
  lay_out_blocks(spec, layer, {.feed_norm = ""}, lay_out_mlp);
}

}  // namespace automodel::arch
