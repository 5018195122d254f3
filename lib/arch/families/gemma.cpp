#include <cmath>

#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace gemma {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 8192;
  defaults.head_dim = 256;
  defaults.tied = true;
  defaults.pad_token = 0;
  // Published configs may have the exact "gelu" as hidden_act, which transformers replaces by the tanh form.
  defaults.activation_key = config.has("hidden_activation") ? "hidden_activation" : "hidden_act";
  defaults.activation = "gelu_pytorch_tanh";
  read_decoder(config, spec, defaults);
  spec.activation = Activation::kGeluTanh;
  spec.norm_scale = NormScale::kOnePlusInFloat;
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);
  spec.embedding_scale = std::sqrt(static_cast<double>(spec.hidden));
  spec.round_embedding_scale = true;
  if (config.boolean({"use_bidirectional_attention"}, false))
    config.bad_value("use_bidirectional_attention", "bidirectional attention is not supported",
                     "a causal language model attends only to earlier tokens");
}

}  // namespace gemma

extern const Family kGemma = {
    "gemma",     "GemmaForCausalLM", "Gemma 1: Llama with scaled embeddings and norms of 1 + weight",
    gemma::read, lay_out_llama,      divide_by_part};

}  // namespace automodel::arch
