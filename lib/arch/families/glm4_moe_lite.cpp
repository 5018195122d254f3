#include "arch/families/decoder.h"
#include "arch/families/experts.h"
#include "arch/families/family.h"
#include "arch/families/latent.h"

namespace automodel::arch {
namespace glm4_moe_lite {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 202752;
  defaults.norm_eps = 1e-5;
  defaults.partial_rotary = 1.0;
  read_latent_decoder(config, spec, defaults, {.q_rank = 768, .nope_dim = 192, .v_dim = 256});
  spec.rope.interleaved = config.boolean({"rope_interleave"}, true);
  read_sigmoid_experts(config, spec, {.scaling = 1.8, .ffn = 1536});
  read_mlp_layer_types(config, spec, 1);
  spec.mtp_layers = config.integer({"num_nextn_predict_layers"}, 0, 0, kMostLayers);
}

void lay_out_layer(const ModelSpec& spec, int number, LayerBuilder& layer) {
  lay_out_blocks(spec, layer, {}, spec.is_moe(number) ? LayOut(lay_out_experts) : LayOut(lay_out_mlp),
                 lay_out_latent_attention);
}

}  // namespace glm4_moe_lite

extern const Family kGlm4MoeLite = {
    "glm4_moe_lite",     "Glm4MoeLiteForCausalLM",     "GLM-4.7-Flash: latent attention, experts with a sigmoid router",
    glm4_moe_lite::read, glm4_moe_lite::lay_out_layer, divide_by_part};

}  // namespace automodel::arch
