#include "arch/families/family.h"
#include "arch/families/recurrent.h"

namespace automodel::arch {
namespace mamba2 {

void read(ConfigReader& config, ModelSpec& spec) {
  // No attention or feed-forward blocks: their sizes are set to those of a state head and are not used.
  spec.hidden = config.integer({"hidden_size"}, 4096, 1, kMostWidth);
  spec.layers = config.integer({"num_hidden_layers"}, 64, 1, kMostLayers);
  spec.vocab = config.integer({"vocab_size"}, 32768, 1, kMostVocab);
  spec.max_positions = kMostPositions;
  spec.norm_eps = config.number({"layer_norm_epsilon"}, 1e-5);
  spec.tied_embeddings = config.boolean({"tie_word_embeddings"}, false);
  spec.rope.kind = RopeKind::kNone;
  spec.attention.assign(static_cast<std::size_t>(spec.layers), LayerAttention::kFull);
  spec.moe_layers.assign(static_cast<std::size_t>(spec.layers), false);
  spec.mixers.assign(static_cast<std::size_t>(spec.layers), Mixer::kMamba);
  spec.feeds.assign(static_cast<std::size_t>(spec.layers), false);
  DecoderDefaults defaults;
  defaults.initializer_range = 0.1;
  read_training_details(config, spec, defaults);
  spec.pad_token = std::nullopt;  // its embedding is trained like any other
  auto& state = read_mamba(config, spec,
                           {.heads = "num_heads",
                            .head_dim = "head_dim",
                            .groups = "n_groups",
                            .state = "state_size",
                            .taps = "conv_kernel",
                            .conv_bias = "use_conv_bias",
                            .in_bias = "use_bias",
                            .out_bias = "use_bias"},
                           {.heads = 128, .head_dim = 64, .groups = 8, .state = 128});
  read_step_limit(config, spec);
  config.ignore({"rms_norm", "norm_before_gate"});
  spec.heads = spec.kv_heads = state.heads;
  spec.head_dim = state.value_dim;
  spec.ffn = spec.hidden;
}

void lay_out_layer(const ModelSpec& spec, int /*number*/, LayerBuilder& layer) {
  layer.norm(Part::kMixerNorm, "norm", spec.hidden);
  lay_out_mamba(spec, layer, "mixer");
}

void lay_out_names(const ModelSpec& spec, Layout& layout) {
  lay_out_ends(spec, layout, {.base = "backbone", .embedding = "embeddings", .norm = "norm_f", .rotary = ""});
}

}  // namespace mamba2

extern const Family kMamba2 = {"mamba2",
                               "Mamba2ForCausalLM",
                               "Mamba-2, Codestral Mamba: only Mamba-2 layers",
                               mamba2::read,
                               mamba2::lay_out_layer,
                               kNoTensorPlan,
                               mamba2::lay_out_names};

}  // namespace automodel::arch
