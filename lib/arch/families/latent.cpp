#include "arch/families/latent.h"

#include <cmath>
#include <string>

#include <fmt/format.h>

namespace automodel::arch {
namespace {

/// Head width^-1/2 with DeepSeek's correction for a context extended by YaRN.
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
  config.ignore({"qk_head_dim"});
  defaults.rotated_dim = latent.rope_dim;
  defaults.head_dim = latent.nope_dim + latent.rope_dim;
  read_decoder(config, spec, defaults);
  // transformers writes head_dim = qk_rope_head_dim; the actual head widths are those of latent attention.
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
    layer.linear(Part::kQueryUp, below("q_b_proj"), latent.q_rank, spec.query_width(0));
  } else {
    layer.linear(Part::kQueryUp, below("q_proj"), spec.hidden, spec.query_width(0));
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

void read_token_index(ConfigReader& config, ModelSpec& spec, const IndexDefaults& defaults) {
  auto& index = spec.index.emplace();
  index.top_k = config.integer({"index_topk"}, 2048, 1, kMostPositions);
  index.heads = config.integer({"index_n_heads"}, defaults.heads, 1, kMostWidth);
  index.dim = config.integer({"index_head_dim"}, 128, 1, kMostWidth);
  index.interleaved = config.boolean({"indexer_rope_interleave"}, defaults.interleaved);
  index.layers.assign(static_cast<std::size_t>(spec.layers), true);
  if (config.good({"index_head_dim", "qk_rope_head_dim"}) && index.dim < spec.latent->rope_dim)
    config.bad_value("index_head_dim", fmt::format("'index_head_dim' is {}", index.dim),
                     fmt::format("it must be at least qk_rope_head_dim: {}", spec.latent->rope_dim));
  if (spec.latent->q_rank == 0)
    config.bad_value("q_lora_rank", "the index selects tokens with low-rank queries, but q_lora_rank is 0",
                     "give q_lora_rank");
}

void lay_out_indexed_attention(const ModelSpec& spec, LayerBuilder& layer) {
  lay_out_latent_attention(spec, layer, {});
  const auto& index = *spec.index;
  layer.linear(Part::kIndexQuery, "self_attn.indexer.wq_b", spec.latent->q_rank, std::int64_t{index.heads} * index.dim);
  layer.linear(Part::kIndexKey, "self_attn.indexer.wk", spec.hidden, index.dim);
  layer.layer_norm(Part::kIndexKeyNorm, "self_attn.indexer.k_norm", index.dim);
  layer.linear(Part::kIndexWeights, "self_attn.indexer.weights_proj", spec.hidden, index.heads);
}

}  // namespace automodel::arch
