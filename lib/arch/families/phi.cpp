#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace phi {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.norm_key = "layer_norm_eps";
  defaults.norm_eps = 1e-5;
  defaults.partial_rotary = 0.5;
  defaults.activation = "gelu_new";
  read_decoder(config, spec, defaults);
  spec.norm = NormKind::kLayerNorm;
  spec.norm_bias = true;
  spec.parallel_blocks = true;
  spec.gated_mlp = false;
  spec.qkv_bias = spec.output_bias = spec.mlp_bias = spec.head_bias = true;
  if (config.boolean({"qk_layernorm"}, false)) spec.head_norm = HeadNorm{.kind = NormKind::kLayerNorm, .bias = true};
  spec.embedding_dropout = config.number({"embd_pdrop"}, 0.0);
  spec.residual_dropout = config.number({"resid_pdrop"}, 0.0);
}

/// self_attn.dense, mlp.fc1 and fc2; every module has a bias.
void lay_out_layer(const ModelSpec& spec, int /*number*/, LayerBuilder& layer) {
  const LayerNames names = {.feed_norm = "",
                            .output = "self_attn.dense",
                            .query_norm = "self_attn.q_layernorm",
                            .key_norm = "self_attn.k_layernorm"};
  lay_out_blocks(spec, layer, names, [](const ModelSpec& of, LayerBuilder& to) {
    to.linear(Part::kUp, "mlp.fc1", of.hidden, of.ffn, true);
    to.linear(Part::kDown, "mlp.fc2", of.ffn, of.hidden, true);
  });
}

void lay_out_names(const ModelSpec& spec, Layout& layout) {
  lay_out_ends(spec, layout, {.norm = "final_layernorm"});
}

}  // namespace phi

extern const Family kPhi = {"phi",
                            "PhiForCausalLM",
                            "Phi 1 to 2: parallel blocks, LayerNorm, biases everywhere",
                            phi::read,
                            phi::lay_out_layer,
                            divide_by_part,
                            phi::lay_out_names};

}  // namespace automodel::arch
