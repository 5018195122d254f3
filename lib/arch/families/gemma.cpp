#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace gemma {

void read(ConfigReader& config, ModelSpec& spec) {
  auto defaults = gemma_defaults();
  defaults.max_positions = 8192;
  // Older configs have both keys, or the exact "gelu" as hidden_act, which transformers takes for the tanh form.
  if (!config.has("hidden_activation")) defaults.activation_key = "hidden_act";
  config.ignore({"hidden_act"});
  read_decoder(config, spec, defaults);
  if (spec.activation == Activation::kGelu) spec.activation = Activation::kGeluTanh;
  spec.norm_scale = NormScale::kOnePlusInFloat;
  read_gemma(config, spec);
  refuse_bidirectional(config);
}

}  // namespace gemma

extern const Family kGemma = {
    "gemma",     "GemmaForCausalLM", "Gemma 1: Llama with scaled embeddings and norms of 1 + weight",
    gemma::read, lay_out_llama,      divide_by_part};

}  // namespace automodel::arch
