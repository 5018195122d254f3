#include "arch/families/bailing.h"
#include "arch/families/family.h"
#include "arch/families/kda.h"

namespace automodel::arch {
namespace bailing_hybrid {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 131072;
  defaults.rope_theta = 6'000'000.0;
  const int width = config.integer({"head_dim"}, 128, 1, kMostWidth);
  read_latent_decoder(config, spec, defaults, {.q_rank = 0});
  config.ignore({"model_max_length", "layer_group_size", "mtp_loss_scaling_factor"});
  spec.rope.interleaved = config.boolean({"rope_interleave"}, true);
  read_channel_delta(config, spec, spec.heads, width, 4);
  if (config.boolean({"kda_safe_gate"}, true))
    spec.recurrence->decay_bound = config.number({"kda_lower_bound"}, -5.0);
  else
    config.ignore({"kda_lower_bound"});
  read_attention_interval(config, spec, Mixer::kChannelDelta, config.integer({"layer_group_size"}, 8, 1, kMostLayers));
  read_kimi_experts(config, spec);
  spec.mtp_layers = config.integer({"num_nextn_predict_layers"}, 0, 0, kMostLayers);
}

void lay_out_layer(const ModelSpec& spec, int number, LayerBuilder& layer) {
  const auto state = [](const ModelSpec& of, LayerBuilder& to) {
    lay_out_channel_delta(of, to,
                          {.module = "attention", .output = "attention.dense", .decay = "f_proj", .gate = "g_proj"});
  };
  const auto attention = [](const ModelSpec& of, LayerBuilder& to) {
    lay_out_latent_attention(of, to, {.module = "attention", .output = "attention.dense", .gate = "attention.g_proj"});
  };
  lay_out_blocks(spec, layer, {}, spec.is_moe(number) ? LayOut(lay_out_bailing_experts) : LayOut(lay_out_mlp),
                 spec.attends(number) ? LayOut(attention) : LayOut(state));
}

}  // namespace bailing_hybrid

extern const Family kBailingHybrid = {"bailing_hybrid",
                                      "BailingHybridForCausalLM",
                                      "Ling 3: delta attention by channel, latent attention with a gate, experts",
                                      bailing_hybrid::read,
                                      bailing_hybrid::lay_out_layer,
                                      kNoTensorPlan,
                                      lay_out_bailing_ends};

}  // namespace automodel::arch
