#include "arch/families/decoder.h"
#include "arch/families/experts.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace hy_v3 {

/// The keys of published configs, which differ from transformers' own.
void read_router(ConfigReader& config, ModelSpec& spec) {
  auto& moe = read_experts(config, spec, {"num_experts", "num_local_experts"}, 0.0);
  set_sigmoid_router(moe);
  moe.ffn = config.integer({"moe_intermediate_size", "expert_hidden_dim"}, 1536, 1, kMostWidth);
  moe.shared_ffn = moe.ffn * config.integer({"num_shared_experts"}, 1, 0, 256);
  moe.normalize_top_k = config.boolean({"route_norm"}, true);
  moe.scaling = config.number({"router_scaling_factor"}, 2.826);
  for (const char* key : {"moe_router_use_sigmoid", "moe_router_enable_expert_bias"}) require_true(config, key);
  read_mlp_layer_types(config, spec, 1);
  check_experts(config, spec);
}

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 131072;
  defaults.norm_eps = 1e-5;
  defaults.rope_theta = 11'158'840.0;
  defaults.head_dim = 128;
  defaults.initializer_range = 0.006;
  read_decoder(config, spec, defaults);
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);
  spec.mlp_bias = config.boolean({"mlp_bias"}, false);
  if (config.boolean({"qk_norm"}, true)) spec.head_norm.emplace();
  read_router(config, spec);
  spec.mtp_layers = config.integer({"num_nextn_predict_layers"}, 0, 0, kMostLayers);
  // Where to accumulate in float32. Here matmuls always do.
  config.ignore({"enable_moe_fp32_combine", "enable_lm_head_fp32", "enable_attention_fp32_softmax"});
}

void lay_out_layer(const ModelSpec& spec, int number, LayerBuilder& layer) {
  const auto experts = [](const ModelSpec& of, LayerBuilder& to) {
    lay_out_experts(of, to,
                    {.router = "mlp.router.gate", .router_bias = "mlp.expert_bias", .shared = "mlp.shared_mlp"});
  };
  lay_out_blocks(spec, layer, {}, spec.is_moe(number) ? LayOut(experts) : LayOut(lay_out_mlp));
}

}  // namespace hy_v3

extern const Family kHyV3 = {"hy_v3", "HYV3ForCausalLM", "Hy3, Hy-MT2: norms of heads, sigmoid router, a shared expert",
                             hy_v3::read, hy_v3::lay_out_layer};

}  // namespace automodel::arch
