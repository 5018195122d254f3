#include "arch/families/bailing.h"
#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace bailing_moe {

void read_router(ConfigReader& config, ModelSpec& spec) {
  auto& moe = read_experts(config, spec, {"num_experts"}, 0.0);
  set_sigmoid_router(moe);
  moe.ffn = config.required({"moe_intermediate_size"}, 1, kMostWidth);
  moe.shared_ffn = config.integer({"moe_shared_expert_intermediate_size"}, moe.ffn, 1, kMostWidth) *
                   config.integer({"num_shared_experts"}, 1, 0, 256);
  moe.normalize_top_k = config.boolean({"norm_topk_prob"}, true);
  moe.scaling = config.number({"routed_scaling_factor"}, 1.0);
  moe.groups = config.integer({"n_group"}, 8, 1, kMostLayers);
  moe.top_groups = config.integer({"topk_group"}, 4, 1, kMostLayers);
  if (const auto given = config.text({"score_function"}, "sigmoid"); given != "sigmoid")
    config.bad_value("score_function", "'score_function' is '" + given + "'", "only sigmoid is supported");
  require_true(config, "moe_router_enable_expert_bias");
  leave_dense(spec, config.integer({"first_k_dense_replace"}, 1, 0, kMostLayers));
  check_experts(config, spec);
}

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 32768;
  defaults.rope_theta = 600'000.0;
  defaults.partial_rotary = 1.0;
  const int width = defaults.head_dim = config.integer({"head_dim"}, 128, 1, kMostWidth);
  // Ling-1T gives the number of RoPE dimensions, the smaller models the fraction.
  if (const int turned = config.integer({"rotary_dim"}, 0, 0, kMostWidth); turned > 0)
    defaults.partial_rotary = static_cast<double>(turned) / width;
  read_decoder(config, spec, defaults);
  spec.qkv_bias = config.boolean({"use_qkv_bias"}, false);
  spec.output_bias = config.boolean({"use_bias"}, false);
  if (config.boolean({"use_qk_norm"}, true)) spec.head_norm.emplace();
  spec.embedding_dropout = config.number({"embedding_dropout"}, 0.0);
  spec.residual_dropout = config.number({"output_dropout"}, 0.0);
  read_router(config, spec);
  spec.mtp_layers = config.integer({"num_nextn_predict_layers"}, 0, 0, kMostLayers);
  config.ignore({"max_window_layers", "mtp_loss_scaling_factor", "router_dtype", "use_rmsnorm",
                 "using_split_qkv_in_self_attention"});
}

void lay_out_joined_attention(const ModelSpec& spec, LayerBuilder& layer) {
  const auto query = std::int64_t{spec.heads} * spec.head_dim;
  const auto key = std::int64_t{spec.kv_heads} * spec.head_dim;
  layer.linear(Part::kQkv, "attention.query_key_value", spec.hidden, query + 2 * key, spec.qkv_bias);
  layer.head_norms("attention.query_layernorm", "attention.key_layernorm");
  layer.linear(Part::kAttentionOut, "attention.dense", query, spec.hidden, spec.output_bias);
}

void lay_out_layer(const ModelSpec& spec, int number, LayerBuilder& layer) {
  lay_out_blocks(spec, layer, {}, spec.is_moe(number) ? LayOut(lay_out_bailing_experts) : LayOut(lay_out_mlp),
                 lay_out_joined_attention);
}

}  // namespace bailing_moe

extern const Family kBailingMoe = {"bailing_moe",
                                   "BailingMoeV2ForCausalLM",
                                   "Ling 2: joined projections, norms of heads, sigmoid router in groups",
                                   bailing_moe::read,
                                   bailing_moe::lay_out_layer,
                                   kNoTensorPlan,
                                   lay_out_bailing_ends};

}  // namespace automodel::arch
