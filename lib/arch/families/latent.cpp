#include "arch/families/latent.h"

#include <cmath>
#include <string>

namespace automodel::arch {
namespace {

/// Width^-1/2, corrected for a context stretched by YaRN as DeepSeek does.
double attention_scale(const ModelSpec& spec) {
  const double scale = 1 / std::sqrt(spec.latent->nope_dim + spec.latent->rope_dim);
  if (spec.rope.kind == RopeKind::kDefault || !spec.rope.mscale_all_dim || spec.rope.factor <= 1) return scale;
  const double m = 0.1 * *spec.rope.mscale_all_dim * std::log(spec.rope.factor) + 1;
  return scale * m * m;
}

}  // namespace

void read_latent_decoder(ConfigReader& config, ModelSpec& spec, DecoderDefaults defaults,
                         const LatentDefaults& latent_defaults) {
  const auto& d = latent_defaults;
  auto& latent = spec.latent.emplace();
  latent.q_rank = config.integer({"q_lora_rank"}, config.mentions("q_lora_rank") ? 0 : d.q_rank, 1, kMostWidth);
  latent.kv_rank = config.integer({"kv_lora_rank"}, d.kv_rank, 1, kMostWidth);
  latent.nope_dim = config.integer({"qk_nope_head_dim"}, d.nope_dim, 1, kMostWidth);
  latent.rope_dim = config.integer({"qk_rope_head_dim"}, d.rope_dim, 1, kMostWidth);
  latent.v_dim = config.integer({"v_head_dim"}, d.v_dim, 1, kMostWidth);
  config.pass_over({"qk_head_dim"});
  defaults.rotated_dim = latent.rope_dim;
  defaults.head_dim = latent.nope_dim + latent.rope_dim;
  read_decoder(config, spec, defaults);
  // transformers writes head_dim = qk_rope_head_dim; the heads' widths are those of the latent attention.
  spec.head_dim = latent.nope_dim + latent.rope_dim;
  spec.kv_heads = spec.heads;
  spec.attention_scale = attention_scale(spec);
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);
}

void lay_out_latent_attention(const ModelSpec& spec, LayerBuilder& layer, const LatentNames& names) {
  const auto below = [&](std::string_view name) { return std::string(names.module) + "." + std::string(name); };
  const auto& latent = *spec.latent;
  const std::int64_t heads = spec.heads;
  if (latent.q_rank > 0) {
    layer.linear(Part::kQueryDown, below("q_a_proj"), spec.hidden, latent.q_rank, spec.qkv_bias);
    layer.rms_norm(Part::kQueryDownNorm, below("q_a_layernorm"), latent.q_rank);
    layer.linear(Part::kQueryUp, below("q_b_proj"), latent.q_rank, spec.query_width());
  } else {
    layer.linear(Part::kQueryUp, below("q_proj"), spec.hidden, spec.query_width());
  }
  layer.linear(Part::kKeyValueDown, below("kv_a_proj_with_mqa"), spec.hidden, latent.kv_rank + latent.rope_dim,
               spec.qkv_bias);
  layer.rms_norm(Part::kKeyValueDownNorm, below("kv_a_layernorm"), latent.kv_rank);
  layer.linear(Part::kKeyValueUp, below("kv_b_proj"), latent.kv_rank, heads * (latent.nope_dim + latent.v_dim));
  if (!names.gate.empty()) layer.linear(Part::kAttentionGate, names.gate, spec.hidden, heads);
  layer.linear(Part::kAttentionOut, names.output, heads * latent.v_dim, spec.hidden, spec.output_bias);
}

void lay_out_latent_attention(const ModelSpec& spec, LayerBuilder& layer) {
  lay_out_latent_attention(spec, layer, {});
}

}  // namespace automodel::arch
