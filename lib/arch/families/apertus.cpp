#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace apertus {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 65536;
  defaults.norm_eps = 1e-5;
  defaults.rope_theta = 12'000'000.0;
  defaults.activation = "xielu";
  defaults.pad_token = 3;
  read_decoder(config, spec, defaults);
  spec.head_norm.emplace();
  spec.gated_mlp = false;
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);
  spec.mlp_bias = config.boolean({"mlp_bias"}, false);
}

constexpr LayerNames kNames = {.mixer_norm = "attention_layernorm", .feed_norm = "feedforward_layernorm"};

void lay_out_layer(const ModelSpec& spec, int /*number*/, LayerBuilder& layer) {
  lay_out_blocks(spec, layer, kNames, [](const ModelSpec& of, LayerBuilder& to) {
    lay_out_mlp(of, to);
    if (of.activation == Activation::kXielu) lay_out_xielu("mlp.act_fn", to);
  });
}

}  // namespace apertus

extern const Family kApertus = {"apertus",     "ApertusForCausalLM",   "Apertus: head norms, a plain MLP of xIELU",
                                apertus::read, apertus::lay_out_layer, divide_by_part};

}  // namespace automodel::arch
