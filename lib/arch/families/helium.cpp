#include <fmt/format.h>

#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace helium {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 4096;
  defaults.norm_eps = 1e-8;
  defaults.rope_theta = 100'000.0;
  defaults.head_dim = 128;
  defaults.pad_token = 3;
  read_decoder(config, spec, defaults);
  spec.rope.interleaved = true;
  spec.qkv_bias = config.boolean({"attention_bias"}, false);
  spec.mlp_bias = config.boolean({"mlp_bias"}, false);
  if (config.good({"hidden_size", "num_attention_heads", "head_dim"}) && spec.heads * spec.head_dim != spec.hidden)
    config.bad_value("head_dim",
                     fmt::format("{} heads of {} are not hidden_size {} wide", spec.heads, spec.head_dim, spec.hidden),
                     "the output projection of this family is square");
}

}  // namespace helium

extern const Family kHelium = {"helium",     "HeliumForCausalLM", "Helium: Llama with RoPE on adjacent pairs",
                               helium::read, lay_out_llama,       divide_by_part};

}  // namespace automodel::arch
