#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace starcoder2 {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 4096;
  defaults.norm_key = "norm_epsilon";
  defaults.norm_eps = 1e-5;
  defaults.kv_heads = 2;
  defaults.tied = true;
  defaults.activation = "gelu_pytorch_tanh";
  defaults.initializer_range = 0.018042;
  read_decoder(config, spec, defaults);
  read_uniform_window(config, spec, 0);
  spec.norm = NormKind::kLayerNorm;
  spec.norm_bias = true;
  spec.gated_mlp = false;
  spec.qkv_bias = spec.output_bias = spec.mlp_bias = config.boolean({"use_bias"}, true);
  spec.embedding_dropout = config.number({"embedding_dropout"}, 0.0);
  spec.residual_dropout = config.number({"residual_dropout"}, 0.0);
  config.ignore({"norm_type", "mlp_type"});
}

void lay_out_layer(const ModelSpec& spec, int /*number*/, LayerBuilder& layer) {
  lay_out_blocks(spec, layer, {}, [](const ModelSpec& of, LayerBuilder& to) {
    to.linear(Part::kUp, "mlp.c_fc", of.hidden, of.ffn, of.mlp_bias);
    to.linear(Part::kDown, "mlp.c_proj", of.ffn, of.hidden, of.mlp_bias);
  });
}

}  // namespace starcoder2

extern const Family kStarcoder2 = {
    "starcoder2",     "Starcoder2ForCausalLM",   "StarCoder 2: LayerNorm and biases, a plain MLP, one window",
    starcoder2::read, starcoder2::lay_out_layer, divide_by_part};

}  // namespace automodel::arch
