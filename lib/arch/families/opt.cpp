#include <fmt/format.h>

#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace opt {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.norm_key = "layer_norm_eps";
  defaults.norm_eps = 1e-5;
  defaults.ffn_key = "ffn_dim";
  defaults.activation_key = "activation_function";
  defaults.activation = "relu";
  defaults.tied = true;
  defaults.pad_token = 1;
  defaults.initializer_range = config.number({"init_std"}, 0.02);
  read_decoder(config, spec, defaults);
  spec.norm = NormKind::kLayerNorm;
  spec.norm_bias = config.boolean({"layer_norm_elementwise_affine"}, true);
  spec.norm_weight = spec.norm_bias;
  spec.gated_mlp = false;
  spec.qkv_bias = spec.output_bias = spec.mlp_bias = config.boolean({"enable_bias"}, true);
  spec.rope.kind = RopeKind::kNone;
  spec.learned_positions = true;
  spec.first_position_row = 2;
  spec.residual_dropout = config.number({"dropout"}, 0.1);
  if (!config.boolean({"do_layer_norm_before"}, true))
    config.bad_value("do_layer_norm_before", "norms of the residual stream itself are not supported",
                     "of the published models only opt-350m has them");
  if (config.boolean({"_remove_final_layer_norm"}, false))
    config.bad_value("_remove_final_layer_norm", "a decoder without its last norm is not supported", "leave it out");
  if (config.integer({"word_embed_proj_dim"}, spec.hidden, 1, kMostWidth) != spec.hidden)
    config.bad_value("word_embed_proj_dim", "embeddings of another width than the decoder are not supported",
                     fmt::format("it must be hidden_size, {}", spec.hidden));
  config.ignore({"layerdrop"});
}

void lay_out_layer(const ModelSpec& spec, int /*number*/, LayerBuilder& layer) {
  const LayerNames names = {
      .mixer_norm = "self_attn_layer_norm", .feed_norm = "final_layer_norm", .output = "self_attn.out_proj"};
  lay_out_blocks(spec, layer, names, [](const ModelSpec& of, LayerBuilder& to) {
    to.linear(Part::kUp, "fc1", of.hidden, of.ffn, of.mlp_bias);
    to.linear(Part::kDown, "fc2", of.ffn, of.hidden, of.mlp_bias);
  });
}

void lay_out_names(const ModelSpec& spec, Layout& layout) {
  lay_out_ends(spec, layout, {.base = "model.decoder", .norm = "final_layer_norm", .rotary = ""});
  layout.embeddings.emplace_back("model.decoder.embed_positions");
  layout.embedding_parameters.push_back(table("model.decoder.embed_positions.weight",
                                              spec.max_positions + spec.first_position_row, spec.hidden,
                                              Role::kPositions));
}

}  // namespace opt

extern const Family kOpt = {
    "opt",         "OPTForCausalLM",  "OPT: learned positions, LayerNorm, ReLU, biases", opt::read, opt::lay_out_layer,
    kNoTensorPlan, opt::lay_out_names};

}  // namespace automodel::arch
