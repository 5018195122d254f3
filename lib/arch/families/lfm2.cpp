#include <array>

#include "arch/families/experts.h"
#include "arch/families/family.h"
#include "arch/families/recurrent.h"

namespace automodel::arch {
namespace lfm2 {

void read_common(ConfigReader& config, ModelSpec& spec, const DecoderDefaults& given) {
  auto defaults = given;
  defaults.max_positions = 128000;
  defaults.norm_key = "norm_eps";
  defaults.norm_eps = 1e-5;
  defaults.rope_theta = 1'000'000.0;
  defaults.kv_heads = 8;
  defaults.tied = true;
  read_decoder(config, spec, defaults);
  spec.head_norm.emplace();
  auto& state = spec.recurrence.emplace();
  state.taps = config.integer({"conv_L_cache"}, 3, 1, 8);
  state.conv_bias = state.in_bias = state.out_bias = config.boolean({"conv_bias"}, false);
  const std::int64_t hidden = spec.hidden;
  state.sections = {hidden, hidden, hidden};
  const std::array words = {MixerWord{"conv", Mixer::kShortConv}, MixerWord{"full_attention", Mixer::kAttention}};
  const auto attending = config.integers("full_attn_idxs");
  if (!read_mixers(config, spec, "layer_types", words)) {
    spec.mixers.assign(static_cast<std::size_t>(spec.layers),
                       attending.empty() ? Mixer::kAttention : Mixer::kShortConv);
    for (const int layer : attending)
      if (layer >= 0 && layer < spec.layers) spec.mixers[static_cast<std::size_t>(layer)] = Mixer::kAttention;
  }
  config.ignore({"block_dim", "block_mlp_init_scale", "block_norm_eps", "block_out_init_scale", "block_use_swiglu",
                 "block_use_xavier_init", "conv_dim", "conv_dim_out", "conv_use_xavier_init", "num_heads", "theta",
                 "use_pos_enc", "full_attn_idxs"});
}

/// The model's actual MLP width: two thirds of the given one, times a factor, rounded up to a multiple.
int adjusted_width(ConfigReader& config, int given) {
  const bool adjust = config.boolean({"block_auto_adjust_ff_dim"}, true);
  const int multiple = config.integer({"block_multiple_of"}, 256, 1, kMostWidth);
  const auto factor =
      config.has("block_ffn_dim_multiplier") ? config.number("block_ffn_dim_multiplier") : std::optional<double>(1.0);
  if (!adjust) return given;
  int width = 2 * given / 3;
  if (factor) width = static_cast<int>(*factor * width);
  return (width + multiple - 1) / multiple * multiple;
}

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.ffn_key = config.has("block_ff_dim") ? "block_ff_dim" : "intermediate_size";
  read_common(config, spec, defaults);
  config.ignore({"intermediate_size"});
  spec.ffn = adjusted_width(config, spec.ffn);
}

void read_moe(ConfigReader& config, ModelSpec& spec) {
  read_common(config, spec, {});
  auto& moe = read_experts(config, spec, {"num_experts"}, 0.0);
  moe.score = RouterScore::kSigmoid;
  moe.ffn = config.required({"moe_intermediate_size"}, 1, kMostWidth);
  moe.correction_bias = config.boolean({"use_expert_bias"}, true);
  moe.normalize_top_k = config.boolean({"norm_topk_prob"}, true);
  moe.normalize_added = 1e-6;
  moe.scaling = config.number({"routed_scaling_factor"}, 1.0);
  leave_dense(spec, config.integer({"num_dense_layers"}, 2, 0, kMostLayers));
  check_experts(config, spec);
}

void lay_out_conv(const ModelSpec& spec, LayerBuilder& layer) {
  const auto& state = *spec.recurrence;
  layer.linear(Part::kStateIn, "conv.in_proj", spec.hidden, std::int64_t{3} * spec.hidden, state.in_bias);
  layer.conv(Part::kStateConv, "conv.conv", spec.hidden, state.taps, state.conv_bias);
  layer.linear(Part::kStateOut, "conv.out_proj", spec.hidden, spec.hidden, state.out_bias);
}

void lay_out_layer(const ModelSpec& spec, int number, LayerBuilder& layer) {
  const auto dense = [](const ModelSpec& of, LayerBuilder& to) {
    to.linear(Part::kGate, "feed_forward.w1", of.hidden, of.ffn);
    to.linear(Part::kUp, "feed_forward.w3", of.hidden, of.ffn);
    to.linear(Part::kDown, "feed_forward.w2", of.ffn, of.hidden);
  };
  const auto experts = [](const ModelSpec& of, LayerBuilder& to) {
    lay_out_experts(of, to,
                    {.router = "feed_forward.gate",
                     .router_bias = "feed_forward.expert_bias",
                     .experts = "feed_forward.experts",
                     .gate = "w1",
                     .up = "w3",
                     .down = "w2"});
  };
  lay_out_blocks(spec, layer,
                 {.mixer_norm = "operator_norm",
                  .feed_norm = "ffn_norm",
                  .output = "self_attn.out_proj",
                  .query_norm = "self_attn.q_layernorm",
                  .key_norm = "self_attn.k_layernorm"},
                 spec.is_moe(number) ? LayOut(experts) : LayOut(dense), spec.attends(number) ? nullptr : lay_out_conv);
}

void lay_out_names(const ModelSpec& spec, Layout& layout) {
  lay_out_ends(spec, layout, {.norm = "embedding_norm", .rotary = "pos_emb"});
}

}  // namespace lfm2

extern const Family kLfm2 = {"lfm2",
                             "Lfm2ForCausalLM",
                             "LFM2: gated short convolutions, attention in some layers",
                             lfm2::read,
                             lfm2::lay_out_layer,
                             kNoTensorPlan,
                             lfm2::lay_out_names};
extern const Family kLfm2Moe = {"lfm2_moe",          "Lfm2MoeForCausalLM", "LFM2 with experts", lfm2::read_moe,
                                lfm2::lay_out_layer, kNoTensorPlan,        lfm2::lay_out_names};

}  // namespace automodel::arch
