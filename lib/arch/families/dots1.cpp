#include "arch/families/decoder.h"
#include "arch/families/experts.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace dots1 {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  read_decoder(config, spec, defaults);
  spec.head_norm.emplace();
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);
  spec.sliding_window =
      config.integer({"sliding_window"}, config.mentions("sliding_window") ? 0 : 4096, 0, kMostPositions);
  const int first = config.integer({"max_window_layers"}, 62, 0, kMostPositions);
  read_layer_attention(config, spec, [&](int layer) { return spec.sliding_window > 0 && layer >= first; });
  read_sigmoid_experts(config, spec, {.normalize = false});
  leave_dense(spec, config.integer({"first_k_dense_replace"}, 0, 0, kMostLayers));
}

}  // namespace dots1

extern const Family kDots1 = {"dots1",     "Dots1ForCausalLM", "dots.llm1: head norms, experts with a sigmoid router",
                              dots1::read, lay_out_llama,      divide_by_part};

}  // namespace automodel::arch
