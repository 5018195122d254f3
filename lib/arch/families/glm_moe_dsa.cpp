#include <algorithm>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "arch/families/decoder.h"
#include "arch/families/experts.h"
#include "arch/families/family.h"
#include "arch/families/latent.h"

namespace automodel::arch {
namespace glm_moe_dsa {

/// Reads which layers have their own indexer: indexer_types, else index_topk_pattern ("FSSF"), else all layers before
/// index_skip_topk_offset and every index_topk_freq-th one counted from the last of those.
void read_choosing_layers(ConfigReader& config, ModelSpec& spec) {
  auto& chooses = spec.index->layers;
  const int every = std::max(1, config.integer({"index_topk_freq"}, 1, 0, kMostLayers));
  const int offset = config.integer({"index_skip_topk_offset"}, 2, 0, kMostLayers);
  for (int i = 0; i < spec.layers; ++i) chooses[static_cast<std::size_t>(i)] = std::max(i - offset + 1, 0) % every == 0;
  auto words = config.texts("indexer_types");
  std::string_view key = "indexer_types";
  if (words.empty() && config.has("index_topk_pattern")) {
    key = "index_topk_pattern";
    if (config.is_list(key))
      words = config.texts(key);
    else
      for (const char c : config.text({key}, ""))
        words.push_back(c == 'F' ? "full" : c == 'S' ? "shared" : std::string(1, c));
  }
  config.ignore({"index_topk_pattern"});
  if (words.empty()) return;
  if (words.size() != chooses.size())
    return config.bad_value(key, fmt::format("'{}' names {} layers", key, words.size()),
                            fmt::format("it must name each of the {} layers", spec.layers));
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] != "full" && words[i] != "shared")
      config.bad_value(key, fmt::format("unknown kind of index '{}' of layer {}", words[i], i), "known: full, shared");
    chooses[i] = words[i] != "shared";
  }
  if (!chooses.empty() && !chooses.front())
    config.bad_value(key, "the first layer has no earlier layer whose selection it could share",
                     "its kind must be full");
}

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 202752;
  defaults.norm_eps = 1e-5;
  config.ignore({"pretraining_tp", "ep_size", "layer_types", "index_share_for_mtp_iteration"});
  read_latent_decoder(config, spec, defaults, {.q_rank = 2048, .nope_dim = 192, .v_dim = 256});
  spec.rope.interleaved = config.boolean({"rope_interleave"}, true);
  read_token_index(config, spec, {.heads = 32, .interleaved = true});
  read_choosing_layers(config, spec);
  read_sigmoid_experts(config, spec, {.scaling = 2.5, .ffn = 2048});
  read_mlp_layer_types(config, spec, 3);
  spec.mtp_layers = config.integer({"num_nextn_predict_layers"}, 0, 0, kMostLayers);
}

void lay_out_layer(const ModelSpec& spec, int number, LayerBuilder& layer) {
  lay_out_blocks(spec, layer, {}, spec.is_moe(number) ? LayOut(lay_out_experts) : LayOut(lay_out_mlp),
                 spec.index->chooses(number) ? LayOut(lay_out_indexed_attention) : LayOut(lay_out_latent_attention));
}

}  // namespace glm_moe_dsa

extern const Family kGlmMoeDsa = {"glm_moe_dsa", "GlmMoeDsaForCausalLM",
                                  "GLM-5: GLM-4.7-Flash with attention over tokens selected by an index",
                                  glm_moe_dsa::read, glm_moe_dsa::lay_out_layer};

}  // namespace automodel::arch
