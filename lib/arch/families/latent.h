// Multi-head latent attention of DeepSeek's and other families.
#pragma once

#include "arch/families/decoder.h"

namespace automodel::arch {

/// Default ranks and widths.
struct LatentDefaults {
  int q_rank = 1536, kv_rank = 512, nope_dim = 128, rope_dim = 64, v_dim = 128;
};

/// read_decoder() with latent attention: ranks and widths, score scale (with DeepSeek's YaRN correction),
/// attention_bias.
void read_latent_decoder(ConfigReader& config, ModelSpec& spec, DecoderDefaults defaults,
                         const LatentDefaults& latent_defaults = {});

/// Defaults for the sparse-attention indexer (ModelSpec::index).
struct IndexDefaults {
  int heads = 64;
  bool interleaved = false;
};
void read_token_index(ConfigReader& config, ModelSpec& spec, const IndexDefaults& defaults);

/// Module names; an empty `gate` means there is none.
struct LatentNames {
  std::string_view module = "self_attn";
  std::string_view output = "self_attn.o_proj";
  std::string_view gate = "";
};
/// `module`.{q_a_proj,q_a_layernorm,q_b_proj} (or q_proj), kv_a_proj_with_mqa, kv_a_layernorm, kv_b_proj, and the
/// output.
void lay_out_latent_attention(const ModelSpec& spec, LayerBuilder& layer, const LatentNames& names);
/// The same with DeepSeek's names.
void lay_out_latent_attention(const ModelSpec& spec, LayerBuilder& layer);
/// The same plus the indexer: self_attn.indexer.{wq_b,wk,k_norm,weights_proj}.
void lay_out_indexed_attention(const ModelSpec& spec, LayerBuilder& layer);

}  // namespace automodel::arch
