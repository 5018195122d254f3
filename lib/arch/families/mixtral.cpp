#include "arch/families/decoder.h"
#include "arch/families/experts.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace mixtral {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 131072;
  defaults.norm_eps = 1e-5;
  defaults.rope_theta = 1'000'000.0;
  read_decoder(config, spec, defaults);
  read_uniform_window(config, spec, 0);
  auto& moe = read_experts(config, spec, {"num_local_experts", "num_experts"}, 0.001);
  moe.ffn = spec.ffn;
  if (config.number({"router_jitter_noise"}, 0.0) != 0)
    config.bad_value("router_jitter_noise", "router jitter is not supported", "use router_jitter_noise: 0.0");
  check_experts(config, spec);
}

void lay_out_layer(const ModelSpec& spec, int /*number*/, LayerBuilder& layer) {
  lay_out_blocks(spec, layer, {},
                 [](const ModelSpec& of, LayerBuilder& to) { lay_out_experts(of, to, kMixtralExperts); });
}

}  // namespace mixtral

extern const Family kMixtral = {"mixtral",     "MixtralForCausalLM",   "Mixtral: Mistral with experts in every layer",
                                mixtral::read, mixtral::lay_out_layer, divide_by_part};

}  // namespace automodel::arch
