#include <fmt/format.h>

#include "arch/families/family.h"
#include "arch/families/recurrent.h"

namespace automodel::arch {
namespace bamba {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 262144;
  defaults.norm_eps = 1e-5;
  defaults.partial_rotary = 0.5;
  defaults.kv_heads = 8;
  read_decoder(config, spec, defaults);
  spec.rope.rotary_dim = spec.head_dim / 2;  // regardless of partial_rotary_factor
  spec.mlp_bias = config.boolean({"mlp_bias"}, false);
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);
  read_mamba(config, spec, kBambaKeys, {});
  read_step_limit(config, spec);
  if (config.number({"z_loss_coefficient"}, 0.0) != 0)
    config.bad_value("z_loss_coefficient", "z-loss is not supported", "use z_loss_coefficient: 0.0");
  config.ignore({"attn_rotary_emb", "layer_types"});
  spec.mixers.assign(static_cast<std::size_t>(spec.layers), Mixer::kMamba);
  for (const int layer : config.integers("attn_layer_indices")) {
    if (layer < 0 || layer >= spec.layers)
      config.bad_value("attn_layer_indices", fmt::format("'attn_layer_indices' names layer {}", layer),
                       fmt::format("the layers are 0 to {}", spec.layers - 1));
    else
      spec.mixers[static_cast<std::size_t>(layer)] = Mixer::kAttention;
  }
}

void lay_out_layer(const ModelSpec& spec, int number, LayerBuilder& layer) {
  const auto mamba = [](const ModelSpec& of, LayerBuilder& to) { lay_out_mamba(of, to, "mamba"); };
  lay_out_blocks(
      spec, layer, {.feed_norm = "pre_ff_layernorm"},
      [](const ModelSpec& of, LayerBuilder& to) { lay_out_mlp(of, to, "feed_forward"); },
      spec.attends(number) ? nullptr : LayOut(mamba));
}

void lay_out_names(const ModelSpec& spec, Layout& layout) {
  lay_out_ends(spec, layout, {.norm = "final_layernorm"});
}

}  // namespace bamba

extern const Family kBamba = {"bamba",
                              "BambaForCausalLM",
                              "Bamba: Mamba-2 in most layers, attention in some",
                              bamba::read,
                              bamba::lay_out_layer,
                              kNoTensorPlan,
                              bamba::lay_out_names};

}  // namespace automodel::arch
