#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace nemotron {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 4096;
  defaults.norm_key = "norm_eps";
  defaults.norm_eps = 1e-5;
  defaults.partial_rotary = 0.5;
  defaults.activation = "relu2";
  defaults.initializer_range = 0.0134;
  read_decoder(config, spec, defaults);
  spec.norm = NormKind::kLayerNorm;
  spec.norm_scale = NormScale::kOnePlusInFloat;
  spec.norm_bias = true;
  spec.gated_mlp = false;
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);
  spec.mlp_bias = config.boolean({"mlp_bias"}, false);
}

}  // namespace nemotron

extern const Family kNemotron = {"nemotron", "NemotronForCausalLM",
                                 "Nemotron 3 and 4, Minitron: LayerNorm of 1 + weight, squared ReLU", nemotron::read,
                                 lay_out_llama};

}  // namespace automodel::arch
