#include <cmath>

#include <fmt/format.h>

#include "arch/families/decoder.h"
#include "arch/families/experts.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace {

/// Width^-1/2, corrected for a context stretched by YaRN as DeepSeek does.
double attention_scale(const ModelSpec& spec) {
  const double scale = 1 / std::sqrt(spec.latent->nope_dim + spec.latent->rope_dim);
  if (spec.rope.kind == RopeKind::kDefault || !spec.rope.mscale_all_dim || spec.rope.factor <= 1) return scale;
  const double m = 0.1 * *spec.rope.mscale_all_dim * std::log(spec.rope.factor) + 1;
  return scale * m * m;
}

void read_router(ConfigReader& config, MixtureOfExperts& moe) {
  moe.router = RouterKind::kSigmoidGroups;
  moe.correction_bias = true;
  moe.normalize_top_k = config.boolean({"norm_topk_prob"}, true);
  moe.scaling = config.number({"routed_scaling_factor"}, 2.5);
  moe.groups = config.integer({"n_group"}, 8, 1, kMostLayers);
  moe.top_groups = config.integer({"topk_group"}, 4, 1, kMostLayers);
  moe.shared_experts = config.integer({"n_shared_experts"}, 1, 0, 256);
  for (const auto& [key, supported] : {std::pair{"scoring_func", "sigmoid"}, std::pair{"topk_method", "noaux_tc"}})
    if (const auto given = config.text({key}, supported); given != supported)
      config.bad_value(key, fmt::format("'{}' is '{}'", key, given), fmt::format("supported is {}", supported));
  if (config.integer({"moe_layer_freq"}, 1, 1, kMostLayers) != 1)
    config.bad_value("moe_layer_freq", "experts in some of the later layers only are not supported",
                     "use moe_layer_freq: 1");
}

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 4096;
  config.pass_over({"qk_head_dim", "pretraining_tp", "ep_size", "aux_loss_alpha", "seq_aux"});
  auto& latent = spec.latent.emplace();
  latent.q_rank = config.integer({"q_lora_rank"}, config.mentions("q_lora_rank") ? 0 : 1536, 1, kMostWidth);
  latent.kv_rank = config.integer({"kv_lora_rank"}, 512, 1, kMostWidth);
  latent.nope_dim = config.integer({"qk_nope_head_dim"}, 128, 1, kMostWidth);
  latent.rope_dim = config.integer({"qk_rope_head_dim"}, 64, 1, kMostWidth);
  latent.v_dim = config.integer({"v_head_dim"}, 128, 1, kMostWidth);
  latent.interleaved_rope = config.boolean({"rope_interleave"}, true);
  defaults.rotated_dim = latent.rope_dim;
  defaults.head_dim = latent.nope_dim + latent.rope_dim;
  read_decoder(config, spec, defaults);
  // transformers writes head_dim = qk_rope_head_dim; the heads' widths are those of the latent attention.
  spec.head_dim = latent.nope_dim + latent.rope_dim;
  spec.kv_heads = spec.heads;
  spec.attention_scale = attention_scale(spec);
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);

  auto& moe = read_experts(config, spec, {"n_routed_experts", "num_local_experts"}, 0.0);
  moe.ffn = config.required({"moe_intermediate_size"}, 1, kMostWidth);
  read_router(config, moe);
  const int dense = config.integer({"first_k_dense_replace"}, 3, 0, kMostLayers);
  for (int i = 0; i < std::min(dense, spec.layers); ++i) spec.moe_layers[static_cast<std::size_t>(i)] = false;
  spec.mtp_layers = config.integer({"num_nextn_predict_layers"}, 0, 0, kMostLayers);
  check_experts(config, spec);
}

void lay_out_latent_attention(const ModelSpec& spec, LayerBuilder& layer) {
  const auto& latent = *spec.latent;
  const std::int64_t heads = spec.heads;
  if (latent.q_rank > 0) {
    layer.linear("self_attn.q_a_proj", spec.hidden, latent.q_rank, spec.qkv_bias, Role::kAttention);
    layer.norm("self_attn.q_a_layernorm", latent.q_rank);
    layer.linear("self_attn.q_b_proj", latent.q_rank, spec.query_width(), false, Role::kAttention);
  } else {
    layer.linear("self_attn.q_proj", spec.hidden, spec.query_width(), false, Role::kAttention);
  }
  layer.linear("self_attn.kv_a_proj_with_mqa", spec.hidden, latent.kv_rank + latent.rope_dim, spec.qkv_bias,
               Role::kAttention);
  layer.norm("self_attn.kv_a_layernorm", latent.kv_rank);
  layer.linear("self_attn.kv_b_proj", latent.kv_rank, heads * (latent.nope_dim + latent.v_dim), false,
               Role::kAttention);
  layer.linear("self_attn.o_proj", heads * latent.v_dim, spec.hidden, spec.output_bias, Role::kAttention);
}

void lay_out_layer(const ModelSpec& spec, bool moe, LayerBuilder& layer) {
  layer.norm("input_layernorm", spec.hidden);
  lay_out_latent_attention(spec, layer);
  layer.norm("post_attention_layernorm", spec.hidden);
  if (moe)
    lay_out_experts(spec, layer);
  else
    lay_out_mlp(layer, "mlp", spec.hidden, spec.ffn, false, Role::kMlp);
}

}  // namespace

extern const Family kDeepseekV3 = {"deepseek_v3", "DeepseekV3ForCausalLM",
                                   "DeepSeek V3 and R1: latent attention, grouped experts with shared ones", read,
                                   lay_out_layer};

}  // namespace automodel::arch
