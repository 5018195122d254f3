#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace baichuan {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 4096;
  defaults.pad_token = 0;
  read_decoder(config, spec, defaults);
  config.ignore({"model_max_length"});
  spec.kv_heads = spec.heads;
  spec.head_rows_normed = true;
  if (config.number({"z_loss_weight"}, 0.0) != 0)
    config.bad_value("z_loss_weight", "'z_loss_weight' is not 0", "the loss is cross-entropy only: 0");
  if (spec.tied_embeddings)
    config.bad_value("tie_word_embeddings", "'tie_word_embeddings' is true",
                     "the rows of this family's head are normalised: false");
  // The family's larger model uses ALiBi instead of RoPE, which only its size reveals.
  if (spec.hidden == 5120) spec.plan_only = "its attention is biased by distance (ALiBi), which is not supported";
}

void lay_out_joined_attention(const ModelSpec& spec, LayerBuilder& layer) {
  const auto width = std::int64_t{spec.heads} * spec.head_dim;
  layer.linear(Part::kQkv, "self_attn.W_pack", spec.hidden, 3 * width);
  layer.linear(Part::kAttentionOut, "self_attn.o_proj", width, spec.hidden);
}

void lay_out_layer(const ModelSpec& spec, int /*number*/, LayerBuilder& layer) {
  lay_out_blocks(spec, layer, {}, lay_out_mlp, lay_out_joined_attention);
}

}  // namespace baichuan

extern const Family kBaichuan = {"baichuan", "BaichuanForCausalLM",
                                 "Baichuan 2 7B: joined projections, a head whose rows have length 1", baichuan::read,
                                 baichuan::lay_out_layer};

}  // namespace automodel::arch
