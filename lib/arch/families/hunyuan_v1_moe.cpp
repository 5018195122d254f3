#include "arch/families/decoder.h"
#include "arch/families/experts.h"
#include "arch/families/family.h"
#include "arch/families/hunyuan.h"

namespace automodel::arch {
namespace hunyuan_v1_moe {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.norm_eps = 1e-5;
  defaults.pad_token = 0;
  read_decoder(config, spec, defaults);
  read_hunyuan(config, spec);
  auto& moe = read_experts(config, spec, {"num_experts"}, 0.0, {"moe_topk"});
  moe.ffn = uniform(config, "moe_intermediate_size", spec.ffn);
  moe.shared_ffn = spec.ffn * uniform(config, "num_shared_expert", 1);
  moe.float_router = true;
  check_experts(config, spec);
}

void lay_out_layer(const ModelSpec& spec, int /*number*/, LayerBuilder& layer) {
  lay_out_blocks(spec, layer, kHunyuanNames, [](const ModelSpec& of, LayerBuilder& to) {
    lay_out_experts(of, to, {.router = "mlp.gate.wg", .shared = "mlp.shared_mlp"});
  });
}

}  // namespace hunyuan_v1_moe

extern const Family kHunyuanMoe = {"hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM",
                                   "Hunyuan-A13B: Hunyuan with experts and a shared one", hunyuan_v1_moe::read,
                                   hunyuan_v1_moe::lay_out_layer};

}  // namespace automodel::arch
