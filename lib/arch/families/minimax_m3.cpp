#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "arch/families/decoder.h"
#include "arch/families/experts.h"
#include "arch/families/family.h"
#include "arch/rope_config.h"

namespace automodel::arch {
namespace minimax_m3 {

constexpr std::string_view kSparse = "minimax_m3_sparse";

/// Layers that a list of 0 and 1 marks; empty if the config has none or it is wrong.
std::vector<bool> marked_layers(ConfigReader& config, const ModelSpec& spec, std::string_view key) {
  const auto marks = config.integers(key);
  if (!marks.empty() && marks.size() != static_cast<std::size_t>(spec.layers)) {
    config.bad_value(key, fmt::format("'{}' has {} numbers", key, marks.size()),
                     fmt::format("it must have one for each of the {} layers", spec.layers));
    return {};
  }
  std::vector<bool> out;
  for (const int mark : marks) out.push_back(mark != 0);
  return out;
}

/// Layers of the kind `wanted` among two; `marks` if the config does not name them, else `otherwise` for all.
std::vector<bool> layers_of_kind(ConfigReader& config, const ModelSpec& spec, std::string_view key,
                                 std::string_view wanted, std::string_view other, std::vector<bool> marks,
                                 bool otherwise) {
  const auto kinds = names_of_layers(config, spec, key, {wanted, other});
  if (kinds.empty() && !marks.empty()) return marks;
  std::vector<bool> out(static_cast<std::size_t>(spec.layers), otherwise);
  for (std::size_t layer = 0; layer < kinds.size(); ++layer) out[layer] = kinds[layer] == wanted;
  return out;
}

void require_text(ConfigReader& config, const char* key, std::string_view wanted) {
  if (const auto given = config.text({key}, wanted); given != wanted)
    config.bad_value(key, fmt::format("'{}' is '{}'", key, given), fmt::format("only {} is supported", wanted));
}

/// What the config's own section says of the index wins over keys beside it, as in transformers, except for the layers.
void read_index(ConfigReader& config, ModelSpec& spec) {
  TokenIndex index;
  index.heads = config.integer({"index_n_heads"}, 4, 1, kMostWidth);
  index.dim = config.integer({"index_head_dim"}, 128, 1, kMostWidth);
  index.block = config.integer({"index_block_size"}, 128, 1, 1 << 15);
  int blocks = config.integer({"index_topk_blocks"}, 16, 1, 1 << 14);
  index.local = config.integer({"index_local_blocks"}, 1, 0, 1 << 14);
  std::vector<bool> marks;
  if (auto section = config.child("sparse_attention_config")) {
    index.heads = section->integer({"sparse_num_index_heads"}, index.heads, 1, kMostWidth);
    index.dim = section->integer({"sparse_index_dim"}, index.dim, 1, kMostWidth);
    index.block = section->integer({"sparse_block_size"}, index.block, 1, 1 << 15);
    blocks = section->integer({"sparse_topk_blocks"}, blocks, 1, 1 << 14);
    index.local = section->integer({"sparse_local_block"}, index.local, 0, 1 << 14);
    marks = marked_layers(*section, spec, "sparse_attention_freq");
    require_true(*section, "use_sparse_attention");
    require_text(*section, "sparse_score_type", "max");
    if (section->integer({"sparse_init_block"}, 0, 0, kMostPositions) != 0)
      section->bad_value("sparse_init_block", "blocks at the beginning that are always chosen are not supported",
                         "use sparse_init_block: 0");
    const auto without_values = marked_layers(*section, spec, "sparse_disable_index_value");
    for (std::size_t layer = 0; layer < std::min(marks.size(), without_values.size()); ++layer)
      if (marks[layer] && !without_values[layer]) {
        section->bad_value("sparse_disable_index_value", fmt::format("the index of layer {} has values", layer),
                           "an index only chooses: 1 for each of its layers");
        break;
      }
  }
  index.layers =
      layers_of_kind(config, spec, "layer_types", kSparse, name_of(LayerAttention::kFull), std::move(marks), false);
  if (std::ranges::find(index.layers, true) == index.layers.end()) return;
  index.top_k = index.block * blocks;
  if (index.dim < spec.rope.rotary_dim)
    config.bad_value("index_head_dim", fmt::format("'index_head_dim' is {}", index.dim),
                     fmt::format("it must be at least the {} dimensions that RoPE rotates", spec.rope.rotary_dim));
  const bool shared = spec.kv_heads % index.heads == 0 || index.heads % spec.kv_heads == 0;
  if (!shared || spec.heads % index.heads != 0)
    config.refuse("indivisible", "index_n_heads")
        .says("{} heads of the index choose for {} heads, which share {} keys and values", index.heads, spec.heads,
              spec.kv_heads)
        .hint(
            "each chooses for the same number of heads; num_key_value_heads is a multiple or a part of index_n_heads");
  spec.index = std::move(index);
}

void read_moe(ConfigReader& config, ModelSpec& spec) {
  auto& moe = read_experts(config, spec, {"num_local_experts", "num_experts"}, 0.001);
  moe.ffn = config.integer({"intermediate_size"}, 3072, 1, kMostWidth);
  moe.shared_ffn = config.integer({"shared_intermediate_size"}, 3072, 1, kMostWidth);
  moe.score = RouterScore::kSigmoid;
  moe.correction_bias = true;
  moe.float_router = true;  // published router weights are float32
  moe.scaling = config.number({"routed_scaling_factor"}, 2.0);
  moe.shifted_gates = true;
  moe.swiglu_alpha = config.number({"swiglu_alpha"}, 1.702);
  moe.swiglu_limit = config.number({"swiglu_limit"}, 7.0);
  if (moe.swiglu_limit <= 0)
    config.bad_value("swiglu_limit", fmt::format("'swiglu_limit' is {}", moe.swiglu_limit), "it must be above 0");
  spec.moe_layers = layers_of_kind(config, spec, "mlp_layer_types", "sparse", "dense",
                                   marked_layers(config, spec, "moe_layer_freq"), true);
  if (config.integer({"n_shared_experts"}, 1, 0, kMostLayers) != 1)
    config.bad_value("n_shared_experts", "a number of shared experts other than 1 is not supported",
                     "shared_intermediate_size is the width of all of them");
  require_text(config, "scoring_func", "sigmoid");
  require_true(config, "use_routing_bias");
  if (config.number({"router_jitter_noise"}, 0.0) != 0)
    config.bad_value("router_jitter_noise", "router jitter is not supported", "use router_jitter_noise: 0.0");
  check_experts(config, spec);
}

/// transformers rotates what partial_rotary_factor says, and does not read rotary_dim.
void check_rotary(ConfigReader& config, const ModelSpec& spec) {
  const auto turned = config.integer("rotary_dim");
  if (turned && !has_partial_rotary(config) && *turned != spec.head_dim)
    config.bad_value("rotary_dim", fmt::format("'rotary_dim' is {}, without a partial_rotary_factor", *turned),
                     fmt::format("give partial_rotary_factor: {}", static_cast<double>(*turned) / spec.head_dim));
}

/// Source: MiniMaxM3VLTextConfig of transformers 5.23, with the other names of the published config.
void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 524288;
  defaults.rope_theta = 5'000'000.0;
  defaults.partial_rotary = 1.0;
  defaults.head_dim = 128;
  defaults.ffn_key = "dense_intermediate_size";
  defaults.activation_key = "";  // the activation is of its own kind, whatever hidden_act says
  read_decoder(config, spec, defaults);
  if (const auto given = config.text({"hidden_act"}, "swigluoai"); given != "swigluoai" && given != "silu")
    config.bad_value("hidden_act", fmt::format("'hidden_act' is '{}'", given), "swigluoai, or silu as its other name");
  spec.norm_scale = NormScale::kOnePlusInFloat;
  spec.head_norm.emplace();
  check_rotary(config, spec);
  require_true(config, "use_gemma_norm");
  require_true(config, "use_qk_norm");
  require_text(config, "qk_norm_type", "per_head");
  if (config.boolean({"attention_output_gate"}, false))
    config.bad_value("attention_output_gate", "gates of attention's output are not supported",
                     "use attention_output_gate: false");
  read_index(config, spec);
  read_moe(config, spec);
  config.ignore({"num_nextn_predict_layers"});
  spec.mtp_layers = config.integer({"num_mtp_modules"}, 0, 0, kMostLayers);
}

void lay_out_indexed(const ModelSpec& spec, LayerBuilder& layer) {
  lay_out_attention(spec, layer);
  const auto& index = *spec.index;
  layer.linear(Part::kIndexQuery, "self_attn.index_q_proj", spec.hidden, std::int64_t{index.heads} * index.dim);
  layer.linear(Part::kIndexKey, "self_attn.index_k_proj", spec.hidden, index.dim);
  layer.norm(Part::kIndexQueryNorm, "self_attn.index_q_norm", index.dim);
  layer.norm(Part::kIndexKeyNorm, "self_attn.index_k_norm", index.dim);
}

void lay_out_plain(const ModelSpec& spec, LayerBuilder& layer) {
  lay_out_attention(spec, layer);
}

void lay_out_own_experts(const ModelSpec& spec, LayerBuilder& layer) {
  auto names = kMixtralExperts;
  names.shared = "block_sparse_moe.shared_experts";
  lay_out_experts(spec, layer, names);
}

/// Published names, also of a language model by itself, which transformers stores otherwise
/// (checkpoint/format/weight_names.h).
void lay_out_layer(const ModelSpec& spec, int number, LayerBuilder& layer) {
  const bool chooses = spec.index && spec.index->chooses(number);
  lay_out_blocks(spec, layer, {}, spec.is_moe(number) ? LayOut(lay_out_own_experts) : LayOut(lay_out_mlp),
                 chooses ? lay_out_indexed : lay_out_plain);
}

}  // namespace minimax_m3

extern const Family kMiniMaxM3 = {
    "minimax_m3_vl_text", "MiniMaxM3VLForCausalLM",
    "MiniMax-M3: attention over blocks of tokens that an index selects, clamped gates, a sigmoid router",
    minimax_m3::read, minimax_m3::lay_out_layer};

}  // namespace automodel::arch
