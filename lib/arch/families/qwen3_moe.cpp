#include <fmt/format.h>

#include "arch/families/decoder.h"
#include "arch/families/experts.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 32768;
  read_decoder(config, spec, defaults);
  read_upper_window(config, spec);
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);
  spec.qk_norm = true;
  auto& moe = read_experts(config, spec, {"num_experts", "num_local_experts"}, 0.001);
  moe.ffn = config.required({"moe_intermediate_size"}, 1, kMostWidth);
  moe.normalize_top_k = config.boolean({"norm_topk_prob"}, false);
  const int step = config.integer({"decoder_sparse_step"}, 1, 1, kMostLayers);
  for (int i = 0; i < spec.layers; ++i) spec.moe_layers[static_cast<std::size_t>(i)] = (i + 1) % step == 0;
  for (const int layer : config.integers("mlp_only_layers")) {
    if (layer < 0 || layer >= spec.layers)
      config.bad_value("mlp_only_layers", fmt::format("'mlp_only_layers' names layer {}", layer),
                       fmt::format("the layers are 0 to {}", spec.layers - 1));
    else
      spec.moe_layers[static_cast<std::size_t>(layer)] = false;
  }
  check_experts(config, spec);
}

void lay_out_layer(const ModelSpec& spec, bool moe, LayerBuilder& layer) {
  if (!moe) return lay_out_dense(spec, moe, layer);
  layer.norm("input_layernorm", spec.hidden);
  lay_out_attention(spec, layer);
  layer.norm("post_attention_layernorm", spec.hidden);
  lay_out_experts(spec, layer);
}

}  // namespace

extern const Family kQwen3Moe = {"qwen3_moe", "Qwen3MoeForCausalLM", "Qwen 3 with experts", read, lay_out_layer};

}  // namespace automodel::arch
