#include "arch/families/decoder.h"
#include "arch/families/family.h"
#include "arch/families/hunyuan.h"

namespace automodel::arch {
namespace hunyuan_v1_dense {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.norm_eps = 1e-5;
  defaults.pad_token = 0;
  read_decoder(config, spec, defaults);
  read_hunyuan(config, spec);
  spec.mlp_bias = config.boolean({"mlp_bias"}, false);
}

void lay_out_layer(const ModelSpec& spec, int /*number*/, LayerBuilder& layer) {
  lay_out_blocks(spec, layer, kHunyuanNames, lay_out_mlp);
}

}  // namespace hunyuan_v1_dense

extern const Family kHunyuanDense = {"hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM",
                                     "Hunyuan 0.5B to 7B: norms of heads after RoPE", hunyuan_v1_dense::read,
                                     hunyuan_v1_dense::lay_out_layer};

}  // namespace automodel::arch
