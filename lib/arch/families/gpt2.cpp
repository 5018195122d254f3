#include <fmt/format.h>

#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace gpt2 {

void read(ConfigReader& config, ModelSpec& spec) {
  spec.hidden = config.required({"n_embd", "hidden_size"}, 1, kMostWidth);
  spec.layers = config.required({"n_layer", "num_hidden_layers"}, 1, kMostLayers);
  spec.heads = spec.kv_heads = config.required({"n_head", "num_attention_heads"}, 1, kMostWidth);
  spec.vocab = config.required({"vocab_size"}, 1, kMostVocab);
  spec.max_positions = config.integer({"n_positions", "max_position_embeddings", "n_ctx"}, 1024, 1, kMostVocab);
  spec.ffn = config.integer({"n_inner"}, 4 * spec.hidden, 1, 4 * kMostWidth);
  spec.head_dim = std::max(1, spec.hidden / spec.heads);
  if (config.good({"n_embd", "n_head"}) && spec.hidden % spec.heads != 0)
    config.refuse("indivisible", "n_head")
        .says("n_embd {} is not a multiple of n_head {}", spec.hidden, spec.heads)
        .hint("every head has the same width");
  spec.norm = NormKind::kLayerNorm;
  spec.norm_bias = true;
  spec.norm_eps = config.number({"layer_norm_epsilon"}, 1e-5);
  spec.activation = read_activation(config, "activation_function", "gelu_new");
  spec.gated_mlp = false;
  spec.mlp_bias = spec.qkv_bias = spec.output_bias = true;
  spec.learned_positions = true;
  spec.depth_scaled_start = true;
  spec.rope.kind = RopeKind::kNone;
  spec.tied_embeddings = config.boolean({"tie_word_embeddings"}, true);
  spec.attention_dropout = config.number({"attn_pdrop"}, 0.1);
  spec.embedding_dropout = config.number({"embd_pdrop"}, 0.1);
  spec.residual_dropout = config.number({"resid_pdrop"}, 0.1);
  if (!config.boolean({"scale_attn_weights"}, true)) spec.attention_scale = 1.0;
  spec.scale_by_layer = config.boolean({"scale_attn_by_inverse_layer_idx"}, false);
  if (config.boolean({"add_cross_attention"}, false))
    config.bad_value("add_cross_attention", "cross-attention is not supported", "a language model has only a decoder");
  config.ignore({"reorder_and_upcast_attn"});
  spec.attention.assign(static_cast<std::size_t>(spec.layers), LayerAttention::kFull);
  spec.moe_layers.assign(static_cast<std::size_t>(spec.layers), false);
  read_training_details(config, spec);
}

void lay_out_layer(const ModelSpec& spec, int /*number*/, LayerBuilder& layer) {
  layer.norm(Part::kMixerNorm, "ln_1", spec.hidden);
  layer.transposed(Part::kQkv, "attn.c_attn", spec.hidden, std::int64_t{3} * spec.hidden);
  layer.transposed(Part::kAttentionOut, "attn.c_proj", spec.hidden, spec.hidden);
  layer.norm(Part::kFeedNorm, "ln_2", spec.hidden);
  layer.transposed(Part::kUp, "mlp.c_fc", spec.hidden, spec.ffn);
  layer.transposed(Part::kDown, "mlp.c_proj", spec.ffn, spec.hidden);
}

void lay_out_names(const ModelSpec& spec, Layout& layout) {
  lay_out_ends(spec, layout, {.base = "transformer", .layers = "h", .embedding = "wte", .norm = "ln_f", .rotary = ""});
  layout.embeddings.emplace_back("transformer.wpe");
  layout.embedding_parameters.push_back(
      table("transformer.wpe.weight", spec.max_positions, spec.hidden, Role::kPositions));
}

}  // namespace gpt2

extern const Family kGpt2 = {"gpt2",
                             "GPT2LMHeadModel",
                             "GPT-2: learned positions, LayerNorm, transposed linear layers",
                             gpt2::read,
                             gpt2::lay_out_layer,
                             kNoTensorPlan,
                             gpt2::lay_out_names};

}  // namespace automodel::arch
