#include "arch/families/experts.h"

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "arch/families/decoder.h"

namespace automodel::arch {

namespace {

/// Also accepts a list with one number per layer.
int required_top_k(ConfigReader& config, Keys keys) {
  for (const auto key : keys)
    if (config.is_list(key)) return uniform(config, key, 1);
  return config.required(keys, 1, kMostLayers);
}

}  // namespace

MixtureOfExperts& read_experts(ConfigReader& config, ModelSpec& spec, Keys count_keys, double aux_loss_coefficient,
                               Keys top_k_keys) {
  auto& moe = spec.moe.emplace();
  moe.experts = config.required(count_keys, 1, kMostLayers);
  moe.top_k = required_top_k(config, top_k_keys);
  moe.aux_loss_coefficient = config.number({"router_aux_loss_coef"}, aux_loss_coefficient);
  moe.output_router_logits = config.boolean({"output_router_logits"}, false);
  spec.moe_layers.assign(static_cast<std::size_t>(spec.layers), true);
  return moe;
}

void check_experts(ConfigReader& config, const ModelSpec& spec) {
  const auto& moe = *spec.moe;
  constexpr std::array<std::string_view, 4> kTopK = {"num_experts_per_tok", "num_experts_per_token", "moe_k",
                                                     "top_k_experts"};
  if (!config.good({"num_experts", "num_local_experts", "n_routed_experts", "num_experts_per_tok"})) return;
  const auto written = std::ranges::find_if(kTopK, [&](auto key) { return config.has(key); });
  if (moe.top_k > moe.experts)
    config.bad_value(written == kTopK.end() ? kTopK.front() : *written,
                     fmt::format("{} of {} experts per token", moe.top_k, moe.experts),
                     fmt::format("it must be at most {}", moe.experts));
  if (moe.experts % moe.groups != 0)
    config.refuse("indivisible", "n_group")
        .says("{} experts in {} groups", moe.experts, moe.groups)
        .hint("the number of groups must divide the number of experts");
  if (moe.top_groups > moe.groups)
    config.bad_value("topk_group", fmt::format("{} of {} groups per token", moe.top_groups, moe.groups),
                     fmt::format("it must be at most {}", moe.groups));
}

void set_sigmoid_router(MixtureOfExperts& moe) {
  moe.score = RouterScore::kSigmoid;
  moe.float_router = true;
  moe.correction_bias = true;
  moe.normalize_added = 1e-20;
}

MixtureOfExperts& read_sigmoid_experts(ConfigReader& config, ModelSpec& spec, const SigmoidDefaults& defaults) {
  auto& moe = read_experts(config, spec, {"n_routed_experts", "num_local_experts", "num_experts"}, 0.0);
  set_sigmoid_router(moe);
  moe.ffn = defaults.ffn > 0 ? config.integer({"moe_intermediate_size"}, defaults.ffn, 1, kMostWidth)
                             : config.required({"moe_intermediate_size"}, 1, kMostWidth);
  moe.normalize_top_k = config.boolean({"norm_topk_prob"}, defaults.normalize);
  moe.scaling = config.number({"routed_scaling_factor"}, defaults.scaling);
  moe.groups = config.integer({"n_group"}, defaults.groups, 1, kMostLayers);
  moe.top_groups = config.integer({"topk_group"}, defaults.top_groups, 1, kMostLayers);
  moe.shared_ffn = moe.ffn * config.integer({"n_shared_experts"}, defaults.shared, 0, 256);
  if (const auto given = config.text({"scoring_func"}, "sigmoid"); given == "softmax")
    spec.plan_only = "its router scores by softmax, and the family's own modules by sigmoid";
  else if (given != "sigmoid")
    config.bad_value("scoring_func", fmt::format("'scoring_func' is '{}'", given),
                     "only sigmoid is supported; softmax can be planned");
  if (const auto given = config.text({"topk_method"}, "noaux_tc"); given != "noaux_tc")
    config.bad_value("topk_method", fmt::format("'topk_method' is '{}'", given), "only noaux_tc is supported");
  if (config.integer({"moe_layer_freq"}, 1, 1, kMostLayers) != 1)
    config.bad_value("moe_layer_freq", "experts in some of the later layers only are not supported",
                     "use moe_layer_freq: 1");
  check_experts(config, spec);
  return moe;
}

int uniform(ConfigReader& config, std::string_view key, int otherwise) {
  const auto given = config.integers(key);
  if (given.empty()) return otherwise;
  if (std::adjacent_find(given.begin(), given.end(), std::not_equal_to<>()) != given.end())
    config.bad_value(key, fmt::format("'{}' differs from layer to layer", key), "such models are not supported");
  return given.front();
}

void require_true(ConfigReader& config, const char* key) {
  if (!config.boolean({key}, true)) config.bad_value(key, fmt::format("'{}' is false", key), "only true is supported");
}

void leave_dense(ModelSpec& spec, int dense) {
  for (int i = 0; i < std::min(dense, spec.layers); ++i) spec.moe_layers[static_cast<std::size_t>(i)] = false;
}

void read_mlp_layer_types(ConfigReader& config, ModelSpec& spec, int dense) {
  const auto types = config.texts("mlp_layer_types");
  if (types.empty()) return leave_dense(spec, config.integer({"first_k_dense_replace"}, dense, 0, kMostLayers));
  config.ignore({"first_k_dense_replace"});
  if (types.size() != static_cast<std::size_t>(spec.layers))
    return config.bad_value("mlp_layer_types", fmt::format("'mlp_layer_types' names {} layers", types.size()),
                            fmt::format("it must name each of the {} layers", spec.layers));
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (types[i] != "dense" && types[i] != "sparse")
      config.bad_value("mlp_layer_types",
                       fmt::format("unknown kind of feed-forward block '{}' of layer {}", types[i], i),
                       "known: dense, sparse");
    spec.moe_layers[i] = types[i] != "dense";
  }
}

void read_sparse_steps(ConfigReader& config, ModelSpec& spec) {
  const int step = config.integer({"decoder_sparse_step"}, 1, 1, kMostLayers);
  for (int i = 0; i < spec.layers; ++i) spec.moe_layers[static_cast<std::size_t>(i)] = (i + 1) % step == 0;
  for (const int layer : config.integers("mlp_only_layers")) {
    if (layer < 0 || layer >= spec.layers)
      config.bad_value("mlp_only_layers", fmt::format("'mlp_only_layers' names layer {}", layer),
                       fmt::format("the layers are 0 to {}", spec.layers - 1));
    else
      spec.moe_layers[static_cast<std::size_t>(layer)] = false;
  }
}

namespace {
std::string below(std::string_view module, std::string_view name) {
  return std::string(module) + "." + std::string(name);
}
}  // namespace

void lay_out_each_expert(const ModelSpec& spec, LayerBuilder& layer, const ExpertNames& names) {
  const auto width = spec.expert_hidden();
  layer.copies(spec.moe->experts);
  const auto each = below(names.experts, "{}");
  if (spec.gated_mlp) layer.linear(Part::kExpertGate, below(each, names.gate), width, spec.moe->ffn);
  layer.linear(Part::kExpertUp, below(each, names.up), width, spec.moe->ffn);
  layer.linear(Part::kExpertDown, below(each, names.down), spec.moe->ffn, width);
  layer.copies(1);
}

void lay_out_experts(const ModelSpec& spec, LayerBuilder& layer, const ExpertNames& names) {
  const auto& moe = *spec.moe;
  layer.linear(Part::kRouter, names.router, spec.hidden, moe.experts, moe.bias);
  if (moe.correction_bias)
    layer.tensor(Part::kRouterBias, names.router_bias,
                 {.name = std::string(names.router_bias),
                  .shape = names.router_bias_row ? Shape{1, moe.experts} : Shape{moe.experts},
                  .trainable = false,
                  .initial = Initial::kZero});
  const auto width = spec.expert_hidden();
  if (moe.latent > 0) layer.linear(Part::kLatentIn, names.latent_in, spec.hidden, width, moe.shared_bias);
  lay_out_each_expert(spec, layer, names);
  if (moe.latent > 0) layer.linear(Part::kLatentOut, names.latent_out, width, spec.hidden, moe.shared_bias);
  if (moe.shared_ffn == 0) return;
  if (spec.gated_mlp)
    layer.linear(Part::kSharedGate, below(names.shared, "gate_proj"), spec.hidden, moe.shared_ffn, moe.shared_bias);
  layer.linear(Part::kSharedUp, below(names.shared, "up_proj"), spec.hidden, moe.shared_ffn, moe.shared_bias);
  layer.linear(Part::kSharedDown, below(names.shared, "down_proj"), moe.shared_ffn, spec.hidden, moe.shared_bias);
  if (moe.shared_switch) layer.linear(Part::kSharedSwitch, names.shared_switch, spec.hidden, 1);
}

void lay_out_experts(const ModelSpec& spec, LayerBuilder& layer) {
  lay_out_experts(spec, layer, {});
}

}  // namespace automodel::arch
