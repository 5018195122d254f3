#include "arch/families/family.h"
#include "arch/families/kda.h"

namespace automodel::arch {
namespace kimi_linear {

/// Layer kinds from linear_attn_config, which counts layers from 1, unless layer_types gives them.
void read_kinds(ConfigReader& config, ModelSpec& spec, ConfigReader* section) {
  read_attention_interval(config, spec, Mixer::kChannelDelta, 4);
  if (section == nullptr) return;
  const auto attending = section->integers("full_attn_layers");
  section->ignore({"kda_layers"});
  if (attending.empty() || config.has("layer_types")) return;
  spec.mixers.assign(spec.mixers.size(), Mixer::kChannelDelta);
  for (const int layer : attending)
    if (layer >= 1 && layer <= spec.layers) spec.mixers[static_cast<std::size_t>(layer - 1)] = Mixer::kAttention;
}

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.norm_eps = 1e-5;
  read_latent_decoder(config, spec, defaults, {.q_rank = 0});
  config.ignore({"mla_use_nope", "model_max_length", "use_qk_norm", "head_dim"});
  spec.rope.kind = RopeKind::kNone;
  spec.max_positions = config.integer({"model_max_length", "max_position_embeddings"}, 1048576, 1, kMostPositions);
  auto section = config.child("linear_attn_config");
  read_channel_delta(config, spec, section ? section->integer({"num_heads"}, 32, 1, kMostWidth) : 32,
                     section ? section->integer({"head_dim"}, 128, 1, kMostWidth) : 128,
                     section ? section->integer({"short_conv_kernel_size"}, 4, 1, 8) : 4);
  read_kinds(config, spec, section ? &*section : nullptr);
  read_kimi_experts(config, spec);
  spec.mtp_layers = config.integer({"num_nextn_predict_layers"}, 0, 0, kMostLayers);
}

void lay_out_layer(const ModelSpec& spec, int number, LayerBuilder& layer) {
  const auto experts = [](const ModelSpec& of, LayerBuilder& to) {
    auto names = kMixtralExperts;
    names.router_bias = "block_sparse_moe.gate.e_score_correction_bias";
    names.shared = "block_sparse_moe.shared_experts";
    lay_out_experts(of, to, names);
  };
  const auto dense = [](const ModelSpec& of, LayerBuilder& to) { lay_out_mlp(of, to, "block_sparse_moe"); };
  const auto state = [](const ModelSpec& of, LayerBuilder& to) {
    lay_out_channel_delta(of, to,
                          {.module = "self_attn",
                           .output = "self_attn.o_proj",
                           .decay_down = "f_a_proj",
                           .decay = "f_b_proj",
                           .gate_down = "g_a_proj",
                           .gate = "g_b_proj",
                           .rate_of_four = true});
  };
  lay_out_blocks(spec, layer, {}, spec.is_moe(number) ? LayOut(experts) : LayOut(dense),
                 spec.attends(number) ? LayOut(lay_out_latent_attention) : LayOut(state));
}

}  // namespace kimi_linear

extern const Family kKimiLinear = {"kimi_linear", "KimiLinearForCausalLM",
                                   "Kimi-Linear: delta attention by channel, latent attention without RoPE, experts",
                                   kimi_linear::read, kimi_linear::lay_out_layer};

}  // namespace automodel::arch
