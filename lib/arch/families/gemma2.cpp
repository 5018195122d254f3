#include <cmath>

#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace gemma2 {

void read(ConfigReader& config, ModelSpec& spec) {
  auto defaults = gemma_defaults();
  defaults.max_positions = 8192;
  read_decoder(config, spec, defaults);
  spec.norm_scale = NormScale::kOnePlusInFloat;
  spec.branch_norms = true;
  read_gemma(config, spec);
  spec.attention_scale = 1 / std::sqrt(config.number({"query_pre_attn_scalar"}, 256.0));
  spec.attention_softcap = number_or_off(config, "attn_logit_softcapping", 50.0);
  spec.logit_softcap = number_or_off(config, "final_logit_softcapping", 30.0);
  spec.sliding_window = config.integer({"sliding_window"}, 4096, 1, kMostPositions);
  read_layer_attention(config, spec, [](int layer) { return layer % 2 == 0; });
  refuse_bidirectional(config);
}

void lay_out_layer(const ModelSpec& spec, int /*number*/, LayerBuilder& layer) {
  lay_out_blocks(spec, layer, kSandwichNames, lay_out_mlp);
}

}  // namespace gemma2

extern const Family kGemma2 = {
    "gemma2",     "Gemma2ForCausalLM",   "Gemma 2: norms around every block, soft caps, alternating sliding window",
    gemma2::read, gemma2::lay_out_layer, divide_by_part};

}  // namespace automodel::arch
