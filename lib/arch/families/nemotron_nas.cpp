#include <algorithm>

#include <fmt/format.h>

#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace nemotron_nas {

constexpr std::string_view kModelType = "nemotron-nas";

/// Llama's rule for an MLP's width, from a factor of the hidden size.
int width_of(double factor, int hidden) {
  constexpr int kUnit = 256;
  const auto width = static_cast<int>(2 * factor * hidden / 3);
  return (width + kUnit - 1) / kUnit * kUnit;
}

/// Rejects block options other than present or absent; returns whether it did.
bool refuse_others(ConfigReader& block, std::initializer_list<std::string_view> unknown) {
  for (const auto key : unknown)
    if (block.has(key)) {
      block.bad_value(key, fmt::format("'{}' of a block is not supported", key), "leave it out, or null");
      return true;
    }
  if (!block.boolean({"replace_with_linear"}, false)) return false;
  block.bad_value("replace_with_linear", "blocks that are a linear module are not supported",
                  "a block is as it is in Llama, or not there (no_op)");
  return true;
}

void read_attention(ConfigReader& block, ModelSpec& spec, std::size_t layer) {
  block.ignore({"unshifted_sink", "use_prefill_window_in_sink_attention"});
  if (refuse_others(block, {"num_sink_tokens", "sparsify", "window_length"})) return;
  const int group = block.integer({"n_heads_in_group"}, 1, 1, spec.heads);
  if (block.boolean({"no_op"}, false)) {
    spec.mixers[layer] = Mixer::kNone;
    return;
  }
  const bool first = std::find(spec.mixers.begin(), spec.mixers.begin() + static_cast<std::ptrdiff_t>(layer),
                               Mixer::kAttention) == spec.mixers.begin() + static_cast<std::ptrdiff_t>(layer);
  const int kv_heads = std::max(1, spec.heads / group);
  if (spec.heads % group != 0 || (!first && kv_heads != spec.kv_heads))
    block.bad_value("n_heads_in_group", fmt::format("groups of {} heads in layer {}", group, layer),
                    "the number of heads per group must divide num_attention_heads and be the same in every layer");
  spec.kv_heads = kv_heads;
}

void read_feed(ConfigReader& block, ModelSpec& spec, std::size_t layer) {
  if (refuse_others(block, {"sparsify"})) return;
  const double factor = block.number({"ffn_mult"}, 0);
  spec.feeds[layer] = !block.boolean({"no_op"}, false);
  if (!spec.feeds[layer]) return;
  if (!(factor > 0 && factor * spec.hidden < kMostWidth))
    return block.bad_value(
        "ffn_mult", fmt::format("layer {} has no MLP width", layer),
        "give a multiplier of hidden_size: the width is 2/3 of the result, rounded up to a multiple of 256");
  spec.ffns[layer] = width_of(factor, spec.hidden);
}

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.ffn_times_hidden = 4;  // intermediate_size is null: each layer has its own
  read_decoder(config, spec, defaults);
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);
  spec.mlp_bias = config.boolean({"mlp_bias"}, false);
  auto blocks = config.children("block_configs");
  const auto layers = static_cast<std::size_t>(spec.layers);
  if (!config.good({"block_configs"})) return;
  if (blocks.size() != layers)
    return config.bad_value("block_configs", fmt::format("'block_configs' describes {} layers", blocks.size()),
                            fmt::format("it must describe each of the {} layers", spec.layers));
  spec.mixers.assign(layers, Mixer::kAttention);
  spec.feeds.assign(layers, true);
  spec.ffns.assign(layers, 0);
  for (std::size_t layer = 0; layer < layers; ++layer) {
    if (auto attention = blocks[layer].child("attention")) read_attention(*attention, spec, layer);
    if (auto feed = blocks[layer].child("ffn")) read_feed(*feed, spec, layer);
    if (spec.mixers[layer] == Mixer::kNone && !spec.feeds[layer])
      blocks[layer].bad_value("ffn", fmt::format("layer {} has neither attention nor an MLP", layer),
                              "layers without blocks are not supported");
  }
  spec.ffn = std::max(1, *std::max_element(spec.ffns.begin(), spec.ffns.end()));
}

void lay_out_layer(const ModelSpec& spec, int number, LayerBuilder& layer) {
  const LayerNames names;
  if (spec.attends(number)) {
    layer.norm(Part::kMixerNorm, names.mixer_norm, spec.hidden);
    lay_out_attention(spec, layer, names);
  }
  if (!spec.has_feed(number)) return;
  layer.norm(Part::kFeedNorm, names.feed_norm, spec.hidden);
  ModelSpec narrow = spec;
  narrow.ffn = spec.ffn_of(number);
  lay_out_mlp(narrow, layer);
}

}  // namespace nemotron_nas

extern const Family kNemotronNas = {
    nemotron_nas::kModelType, "DeciLMForCausalLM",
    "Llama-Nemotron Super: Llama with MLPs of different widths and some layers without attention", nemotron_nas::read,
    nemotron_nas::lay_out_layer};

}  // namespace automodel::arch
