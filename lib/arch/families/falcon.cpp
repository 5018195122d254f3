#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace falcon {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.norm_key = "layer_norm_epsilon";
  defaults.norm_eps = 1e-5;
  defaults.ffn_key = "ffn_hidden_size";
  defaults.ffn_times_hidden = 4;
  defaults.activation_key = "activation";
  defaults.activation = "gelu";
  defaults.kv_heads_key = "num_kv_heads";
  defaults.heads_key = config.has("num_attention_heads") ? "num_attention_heads" : "n_head";
  defaults.layers_key = config.has("num_hidden_layers") ? "num_hidden_layers" : "n_layer";
  defaults.tied = true;
  read_decoder(config, spec, defaults);
  const bool grouped = config.boolean({"new_decoder_architecture"}, false);
  if (!grouped) spec.kv_heads = config.boolean({"multi_query"}, true) ? 1 : spec.heads;
  config.ignore({"multi_query"});
  spec.norm = NormKind::kLayerNorm;
  spec.norm_bias = true;
  spec.gated_mlp = false;
  spec.parallel_blocks = config.boolean({"parallel_attn"}, true);
  if (grouped && !spec.parallel_blocks)
    config.bad_value("parallel_attn", "the new decoder has parallel blocks", "use parallel_attn: true");
  spec.separate_input_norms =
      spec.parallel_blocks && config.integer({"num_ln_in_parallel_attn"}, grouped ? 2 : 1, 1, 2) == 2;
  spec.qkv_order = QkvOrder::kGroups;
  spec.qkv_bias = spec.output_bias = spec.mlp_bias = config.boolean({"bias"}, false);
  spec.residual_dropout = config.number({"hidden_dropout"}, 0.0);
  if (config.boolean({"alibi"}, false))
    config.bad_value("alibi", "attention that is biased by distance (ALiBi) is not supported",
                     "of the published models only falcon-rw has it");
}

void lay_out_layer(const ModelSpec& spec, int /*number*/, LayerBuilder& layer) {
  LayerNames names;
  if (spec.separate_input_norms) names = {.mixer_norm = "ln_attn", .feed_norm = "ln_mlp"};
  if (spec.parallel_blocks && !spec.separate_input_norms) names.feed_norm = "";
  lay_out_blocks(
      spec, layer, names,
      [](const ModelSpec& of, LayerBuilder& to) {
        to.linear(Part::kUp, "mlp.dense_h_to_4h", of.hidden, of.ffn, of.mlp_bias);
        to.linear(Part::kDown, "mlp.dense_4h_to_h", of.ffn, of.hidden, of.mlp_bias);
      },
      [](const ModelSpec& of, LayerBuilder& to) {
        const auto query = std::int64_t{of.heads} * of.head_dim, key = std::int64_t{of.kv_heads} * of.head_dim;
        to.linear(Part::kQkv, "self_attention.query_key_value", of.hidden, query + 2 * key, of.qkv_bias);
        to.linear(Part::kAttentionOut, "self_attention.dense", query, of.hidden, of.output_bias);
      });
}

void lay_out_names(const ModelSpec& spec, Layout& layout) {
  lay_out_ends(spec, layout, {.base = "transformer", .layers = "h", .embedding = "word_embeddings", .norm = "ln_f"});
}

}  // namespace falcon

extern const Family kFalcon = {"falcon",
                               "FalconForCausalLM",
                               "Falcon 7B to 180B and 2-11B: parallel blocks, joined projections by group",
                               falcon::read,
                               falcon::lay_out_layer,
                               kNoTensorPlan,
                               falcon::lay_out_names};

}  // namespace automodel::arch
