#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "arch/families/experts.h"
#include "arch/families/family.h"
#include "arch/families/recurrent.h"

namespace automodel::arch {
namespace nemotron_h {

/// Layer kinds: each layer is either a mixer or a feed-forward block.
struct Kind {
  std::string_view word, older;
  char letter;  ///< in hybrid_override_pattern
  Mixer mixer;
  bool experts = false;
};
constexpr std::array kKinds = {
    Kind{"linear_attention", "mamba", 'M', Mixer::kMamba},
    Kind{"full_attention", "attention", '*', Mixer::kAttention},
    Kind{"mlp", "mlp", '-', Mixer::kNone},
    Kind{"moe", "moe", 'E', Mixer::kNone, true},
};

/// One word per layer; for hybrid_override_pattern its letters.
std::vector<std::string> read_words(ConfigReader& config, std::string_view& key) {
  key = config.has("layers_block_type") ? "layers_block_type" : "hybrid_override_pattern";
  config.ignore({"hybrid_override_pattern"});
  if (config.has("layers_block_type")) return config.texts(key);
  std::vector<std::string> out;
  for (const char letter : config.text({key}, "")) out.emplace_back(1, letter);
  return out;
}

void read_kinds(ConfigReader& config, ModelSpec& spec) {
  std::string_view key;
  const auto words = read_words(config, key);
  if (words.size() != static_cast<std::size_t>(spec.layers))
    return config.bad_value(key, fmt::format("'{}' names {} layers", key, words.size()),
                            fmt::format("it must name each of the {} layers", spec.layers));
  for (const auto& word : words) {
    const auto found = std::find_if(kKinds.begin(), kKinds.end(), [&](const Kind& kind) {
      return word == kind.word || word == kind.older || word == std::string_view(&kind.letter, 1);
    });
    if (found == kKinds.end())
      return config.bad_value(key, fmt::format("unknown kind of layer '{}'", word),
                              "known: M (linear_attention), * (full_attention), - (mlp), E (moe)");
    spec.mixers.push_back(found->mixer);
    spec.feeds.push_back(found->mixer == Mixer::kNone);
    spec.moe_layers[spec.mixers.size() - 1] = found->experts;
  }
}

/// The number of layers, if given only by the list of kinds.
int layers_of(ConfigReader& config) {
  std::string_view key;
  return static_cast<int>(read_words(config, key).size());
}

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 4096;
  defaults.norm_key = "layer_norm_epsilon";
  defaults.norm_eps = 1e-5;
  defaults.head_dim = 128;
  defaults.kv_heads = 8;
  defaults.activation_key = "mlp_hidden_act";
  defaults.activation = "relu2";
  defaults.layers = layers_of(config);
  read_decoder(config, spec, defaults);
  config.ignore({"hidden_dropout", "mamba_proj_bias", "attention_head_dim", "n_shared_experts",
                 "moe_shared_expert_overlap", "mtp_layers_block_type", "mtp_hybrid_override_pattern", "time_step_limit",
                 "sliding_window", "norm_eps", "rms_norm_eps", "rope_theta"});
  spec.pad_token = std::nullopt;  // its embedding is trained like any other
  spec.rope.kind = RopeKind::kNone;
  spec.gated_mlp = false;
  spec.mlp_bias = config.boolean({"mlp_bias"}, false);
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);
  read_mamba(config, spec,
             {.heads = "mamba_num_heads",
              .head_dim = "mamba_head_dim",
              .groups = "n_groups",
              .state = "ssm_state_size",
              .taps = "conv_kernel",
              .conv_bias = "use_conv_bias",
              .in_bias = "use_bias",
              .out_bias = "use_bias",
              .activation = "mamba_hidden_act"},
             {.heads = 128, .head_dim = 64, .groups = 8, .state = 128});
  spec.recurrence->least_step = config.number({"time_step_min"}, 0.001);
  spec.mtp_layers = config.integer({"num_nextn_predict_layers"}, 0, 0, kMostLayers);
  if (config.has("n_routed_experts")) {
    auto& moe = read_sigmoid_experts(config, spec, {.shared = 0, .ffn = 7688});
    moe.shared_ffn = config.integer({"moe_shared_expert_intermediate_size"}, 7688, 0, kMostWidth);
    moe.shared_bias = spec.mlp_bias;
    moe.latent = config.integer({"moe_latent_size"}, 0, 0, kMostWidth);
    spec.moe_layers.assign(spec.moe_layers.size(), false);
  }
  read_kinds(config, spec);
}

void lay_out_layer(const ModelSpec& spec, int number, LayerBuilder& layer) {
  layer.norm(spec.has_feed(number) ? Part::kFeedNorm : Part::kMixerNorm, "norm", spec.hidden);
  if (spec.is_moe(number))
    lay_out_experts(spec, layer,
                    {.router = "mixer.gate",
                     .router_bias = "mixer.gate.e_score_correction_bias",
                     .experts = "mixer.experts",
                     .shared = "mixer.shared_experts",
                     .latent_in = "mixer.fc1_latent_proj",
                     .latent_out = "mixer.fc2_latent_proj"});
  else if (spec.has_feed(number))
    lay_out_mlp(spec, layer, "mixer");
  else if (spec.attends(number))
    lay_out_attention(spec, layer, {.attention = "mixer", .output = "mixer.o_proj"});
  else
    lay_out_mamba(spec, layer, "mixer");
}

void lay_out_names(const ModelSpec& spec, Layout& layout) {
  lay_out_ends(spec, layout, {.base = "backbone", .embedding = "embeddings", .norm = "norm_f", .rotary = ""});
}

}  // namespace nemotron_h

extern const Family kNemotronH = {
    "nemotron_h",
    "NemotronHForCausalLM",
    "Nemotron-H, Nemotron Nano 2, Nemotron 3: each layer one of Mamba-2, attention, MLP, experts",
    nemotron_h::read,
    nemotron_h::lay_out_layer,
    kNoTensorPlan,
    nemotron_h::lay_out_names};

}  // namespace automodel::arch
