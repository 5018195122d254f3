#include <array>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace muse_glimmer {

constexpr int kPattern = 4;  // every fourth layer, counted from the last, has full attention and no RoPE

/// transformers reads of `layer_rope_theta` only where it is 0; all others have `rope_theta`.
void read_rope_layers(ConfigReader& config, ModelSpec& spec) {
  const auto thetas = config.numbers("layer_rope_theta");
  if (thetas.empty()) {
    for (int layer = 0; layer < spec.layers; ++layer)
      spec.rope_layers.push_back((spec.layers - 1 - layer) % kPattern != 0);
    return;
  }
  if (thetas.size() != static_cast<std::size_t>(spec.layers))
    return config.bad_value("layer_rope_theta", fmt::format("'layer_rope_theta' has {} numbers", thetas.size()),
                            fmt::format("it must have one for each of the {} layers", spec.layers));
  for (const double theta : thetas) {
    if (theta != 0 && theta != spec.rope.theta)
      return config.bad_value("layer_rope_theta", fmt::format("a layer has a base of RoPE of its own, {}", theta),
                              fmt::format("0, or rope_theta ({})", spec.rope.theta));
    spec.rope_layers.push_back(theta != 0);
  }
}

/// Source: MuseGlimmerTextConfig of transformers 5.23.
void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 131072;
  defaults.norm_eps = 1e-5;
  defaults.head_dim = 128;
  defaults.activation_key = "hidden_activation";
  read_decoder(config, spec, defaults);
  spec.norm_scale = NormScale::kOnePlusInFloat;
  spec.plain_end_norm = true;
  spec.branch_norms = true;
  spec.branch_norm_eps = config.number({"post_norm_eps"}, 1e-8);
  if (spec.branch_norm_eps <= 0)
    config.bad_value("post_norm_eps", fmt::format("'post_norm_eps' is {}", spec.branch_norm_eps), "it must be above 0");
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);
  spec.head_norm = HeadNorm{.weight = false};
  spec.output_gate = OutputGate::kChannelSigmoid;
  spec.embedding_norm = true;
  const double factor = config.number({"qk_scale_factor"}, 3.87);
  if (factor <= 0)
    config.bad_value("qk_scale_factor", fmt::format("'qk_scale_factor' is {}", factor), "it must be above 0");
  spec.attention_scale = factor / std::sqrt(static_cast<double>(spec.head_dim));
  spec.logit_scale = config.number({"output_multiplier"}, 0.19611613513818404);
  spec.logit_softcap = config.number({"final_logit_softcapping"}, 20.0);
  if (spec.logit_softcap <= 0)
    config.bad_value("final_logit_softcapping", fmt::format("'final_logit_softcapping' is {}", spec.logit_softcap),
                     "it must be above 0");
  spec.sliding_window = config.integer({"sliding_window"}, 2048, 1, kMostPositions);
  read_layer_attention(config, spec, [&](int layer) { return (spec.layers - 1 - layer) % kPattern != 0; });
  read_rope_layers(config, spec);
}

void lay_out_attention(const ModelSpec& spec, LayerBuilder& layer) {
  lay_out_gated_attention(spec, 0, layer, "self_attn.gate_proj");  // all layers have the same heads
}

void lay_out_layer(const ModelSpec& spec, int /*number*/, LayerBuilder& layer) {
  lay_out_blocks(spec, layer, kSandwichNames, lay_out_mlp, lay_out_attention);
}

constexpr std::array kNemoSpellings = {NemoSpelling{"model.language_model.", "model."},
                                       NemoSpelling{".self_attn.gate_proj", ".self_attn.output_gate_proj"}};

}  // namespace muse_glimmer

extern const Family kMuseGlimmer = {
    "muse_glimmer_text",
    "MuseGlimmerForConditionalGeneration",
    "Muse-Glimmer: norms around every block and of embeddings, gated attention, layers without RoPE",
    muse_glimmer::read,
    muse_glimmer::lay_out_layer,
    divide_by_part,
    nullptr,
    muse_glimmer::kNemoSpellings};

}  // namespace automodel::arch
