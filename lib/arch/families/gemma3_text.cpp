#include <cmath>

#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace gemma3_text {

void read(ConfigReader& config, ModelSpec& spec) {
  auto defaults = gemma_defaults();
  defaults.max_positions = 131072;
  defaults.rope_theta = 1'000'000.0;
  // The text_config of the published multimodal models contains only what differs from the class's defaults.
  defaults.vocab = 262208;
  defaults.heads = 8;
  defaults.kv_heads = 4;
  read_decoder(config, spec, defaults);
  spec.sliding_rope = read_sliding_rope(config, spec, config.number({"rope_local_base_freq"}, 10000.0));
  spec.norm_scale = NormScale::kOnePlusInFloat;
  spec.branch_norms = true;
  spec.head_norm.emplace();
  read_gemma(config, spec);
  spec.attention_scale = 1 / std::sqrt(config.number({"query_pre_attn_scalar"}, 256.0));
  if (config.number({"attn_logit_softcapping"}, 0.0) != 0)
    config.bad_value("attn_logit_softcapping", "Gemma 3 has no soft cap of attention scores",
                     "transformers does not read the key: leave it out");
  spec.logit_softcap = config.number({"final_logit_softcapping"}, 0.0);
  spec.sliding_window = config.integer({"sliding_window"}, 4096, 1, kMostPositions);
  const int pattern = config.integer({"sliding_window_pattern", "_sliding_window_pattern"}, 6, 1, kMostLayers);
  read_layer_attention(config, spec, [&](int layer) { return (layer + 1) % pattern != 0; });
  refuse_bidirectional(config);
}

void lay_out_layer(const ModelSpec& spec, int /*number*/, LayerBuilder& layer) {
  lay_out_blocks(spec, layer, kSandwichNames, lay_out_mlp);
}

}  // namespace gemma3_text

extern const Family kGemma3Text = {"gemma3_text",
                                   "Gemma3ForCausalLM",
                                   "Gemma 3, text: Gemma 2 with head norms and one RoPE for each kind of layer",
                                   gemma3_text::read,
                                   gemma3_text::lay_out_layer,
                                   divide_by_part};

}  // namespace automodel::arch
