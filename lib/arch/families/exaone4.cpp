#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace exaone4 {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.norm_eps = 1e-5;
  read_decoder(config, spec, defaults);
  spec.input_norms = false;
  spec.branch_norms = true;
  spec.head_norm.emplace();
  read_pattern_window(config, spec, 4096, 4);
  if (spec.sliding_window > 0)
    for (int i = 0; i < spec.layers; ++i) spec.rope_layers.push_back(spec.slides(i));
}

void lay_out_layer(const ModelSpec& spec, int /*number*/, LayerBuilder& layer) {
  lay_out_blocks(spec, layer, kPostNames, lay_out_mlp);
}

}  // namespace exaone4

extern const Family kExaone4 = {
    "exaone4",     "Exaone4ForCausalLM",   "EXAONE 4: norms of block outputs, windows, and RoPE only there",
    exaone4::read, exaone4::lay_out_layer, divide_by_part};

}  // namespace automodel::arch
