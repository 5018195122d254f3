#include "arch/families/decoder.h"
#include "arch/families/experts.h"
#include "arch/families/family.h"
#include "arch/families/latent.h"

namespace automodel::arch {
namespace deepseek_v3 {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 4096;
  config.ignore({"pretraining_tp", "ep_size", "aux_loss_alpha", "seq_aux"});
  read_latent_decoder(config, spec, defaults);
  spec.rope.interleaved = config.boolean({"rope_interleave"}, true);

  read_sigmoid_experts(config, spec, {.scaling = 2.5, .groups = 8, .top_groups = 4});
  leave_dense(spec, config.integer({"first_k_dense_replace"}, 3, 0, kMostLayers));
  spec.mtp_layers = config.integer({"num_nextn_predict_layers"}, 0, 0, kMostLayers);
}

void lay_out_layer(const ModelSpec& spec, int number, LayerBuilder& layer) {
  lay_out_blocks(spec, layer, {}, spec.is_moe(number) ? LayOut(lay_out_experts) : LayOut(lay_out_mlp),
                 lay_out_latent_attention);
}

}  // namespace deepseek_v3

// transformers 5 replicates its attention on every rank; here the heads are divided, as in the plan of DeepSeek-V2.
extern const Family kDeepseekV3 = {"deepseek_v3",
                                   "DeepseekV3ForCausalLM",
                                   "DeepSeek V3 and R1: latent attention, grouped experts with shared ones",
                                   deepseek_v3::read,
                                   deepseek_v3::lay_out_layer,
                                   divide_by_part};

}  // namespace automodel::arch
