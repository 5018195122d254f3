#include "arch/families/decoder.h"
#include "arch/families/experts.h"
#include "arch/families/family.h"
#include "arch/rope_config.h"

namespace automodel::arch {
namespace unknown {

bool has_any(const ConfigReader& config, Keys keys) {
  for (const auto key : keys)
    if (config.has(key)) return true;
  return false;
}

/// Reads experts if the config has the keys that most families use.
void read_possible_experts(ConfigReader& config, ModelSpec& spec) {
  const Keys counts = {"num_experts", "num_local_experts", "n_routed_experts"};
  if (!has_any(config, counts) || !config.has("num_experts_per_tok")) return;
  auto& moe = read_experts(config, spec, counts, 0.0);
  moe.ffn = config.integer({"moe_intermediate_size"}, spec.ffn, 1, kMostWidth);
  moe.shared_ffn = moe.ffn * config.integer({"n_shared_experts", "num_shared_experts"}, 0, 0, 256);
  leave_dense(spec, config.integer({"first_k_dense_replace"}, 0, 0, kMostLayers));
  check_experts(config, spec);
}

void read(ConfigReader& config, ModelSpec& spec) {
  spec.hidden = config.required({"hidden_size", "n_embd", "d_model"}, 1, kMostWidth);
  spec.layers = config.required({"num_hidden_layers", "n_layer", "num_layers"}, 1, kMostLayers);
  spec.vocab = config.required({"vocab_size"}, 1, kMostVocab);
  spec.ffn = config.integer({"intermediate_size", "n_inner", "ffn_dim", "d_ff"}, 4 * spec.hidden, 1, 4 * kMostWidth);
  spec.max_positions = config.integer({"max_position_embeddings", "n_positions"}, 2048, 1, kMostPositions);
  read_heads(config, spec, {});
  spec.attention_gate = config.boolean({"attn_output_gate", "use_attn_output_gate"}, false);
  spec.tied_embeddings = config.boolean({"tie_word_embeddings"}, false);
  spec.rope.rotary_dim = spec.head_dim;
  spec.attention.assign(static_cast<std::size_t>(spec.layers), LayerAttention::kFull);
  spec.moe_layers.assign(static_cast<std::size_t>(spec.layers), false);
  read_possible_experts(config, spec);
}

}  // namespace unknown

extern const Family kUnknownFamily = {"", "", "a decoder of unknown family, by its sizes", unknown::read,
                                      lay_out_llama};

}  // namespace automodel::arch
