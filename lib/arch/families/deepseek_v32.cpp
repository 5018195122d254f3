#include "arch/families/decoder.h"
#include "arch/families/experts.h"
#include "arch/families/family.h"
#include "arch/families/latent.h"

namespace automodel::arch {
namespace deepseek_v32 {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 163840;
  config.ignore({"pretraining_tp", "ep_size", "aux_loss_alpha", "seq_aux", "layer_types"});
  read_latent_decoder(config, spec, defaults);
  spec.rope.interleaved = config.boolean({"rope_interleave"}, true);
  read_token_index(config, spec, {});
  read_sigmoid_experts(config, spec, {.scaling = 2.5, .groups = 8, .top_groups = 4, .ffn = 2048});
  read_mlp_layer_types(config, spec, 3);
  spec.mtp_layers = config.integer({"num_nextn_predict_layers"}, 0, 0, kMostLayers);
}

void lay_out_layer(const ModelSpec& spec, int number, LayerBuilder& layer) {
  lay_out_blocks(spec, layer, {}, spec.is_moe(number) ? LayOut(lay_out_experts) : LayOut(lay_out_mlp),
                 lay_out_indexed_attention);
}

}  // namespace deepseek_v32

extern const Family kDeepseekV32 = {"deepseek_v32", "DeepseekV32ForCausalLM",
                                    "DeepSeek V3.2: V3 with attention over tokens selected by an index",
                                    deepseek_v32::read, deepseek_v32::lay_out_layer};

}  // namespace automodel::arch
