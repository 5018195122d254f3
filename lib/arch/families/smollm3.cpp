#include <fmt/format.h>

#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace smollm3 {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 32768;
  defaults.rope_theta = 2'000'000.0;
  defaults.kv_heads = 4;
  defaults.tied = true;
  defaults.pad_token = 128004;
  read_decoder(config, spec, defaults);
  const int interval = config.integer({"no_rope_layer_interval"}, 4, 1, kMostLayers);
  const auto given = config.integers("no_rope_layers");  // despite the name, 1 means with RoPE
  if (!given.empty() && given.size() != static_cast<std::size_t>(spec.layers))
    config.bad_value("no_rope_layers", fmt::format("'no_rope_layers' names {} layers", given.size()),
                     fmt::format("it must name each of the {} layers", spec.layers));
  for (int i = 0; i < spec.layers; ++i) {
    const auto at = static_cast<std::size_t>(i);
    spec.rope_layers.push_back(at < given.size() ? given[at] != 0 : (i + 1) % interval != 0);
  }
  const bool windows = config.boolean({"use_sliding_window"}, false);
  spec.sliding_window = config.integer({"sliding_window"}, 0, 0, kMostPositions);
  read_layer_attention(config, spec,
                       [&](int layer) { return windows && spec.sliding_window > 0 && !spec.has_rope(layer); });
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);
  spec.mlp_bias = config.boolean({"mlp_bias"}, false);
}

}  // namespace smollm3

extern const Family kSmolLm3 = {"smollm3",     "SmolLM3ForCausalLM", "SmolLM3: Llama with some layers without RoPE",
                                smollm3::read, lay_out_llama,        divide_by_part};

}  // namespace automodel::arch
