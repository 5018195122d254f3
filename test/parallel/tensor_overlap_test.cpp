// Which linear layers of a model gather their inputs in chunks, for every family.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>

#include "arch/families.h"
#include "arch/hf_config.h"
#include "golden_folder.h"
#include "model/stage_model.h"
#include "ops/graph.h"
#include "parallel/recording_group.h"
#include "parallel/tensor/placement.h"
#include "parallel/tensor/tensor_parallel.h"
#include "torch_catch.h"

namespace automodel::parallel {
namespace {

namespace fs = std::filesystem;

constexpr int kRanks = 2, kTokens = 4;

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A small model of each family, by model_type.
std::map<std::string, arch::ModelSpec> small_models() {
  const fs::path golden(automodel::golden_folder());
  std::map<std::string, arch::ModelSpec> out;
  const auto add = [&](nlohmann::json config) {
    // Ranks divide the groups of Mamba-2's states.
    for (const char* key : {"n_groups", "mamba_n_groups"})
      if (config.contains(key) && config[key] == 1) config[key] = kRanks;
    const auto parsed = arch::parse_hf_config(config.dump(), "config.json");
    REQUIRE(parsed.errors.empty());
    out.emplace(parsed.spec->model_type, *parsed.spec);
  };
  for (const auto& folder : fs::directory_iterator(golden / "hf" / "models"))
    add(nlohmann::json::parse(text_of(folder.path() / "config.json")));
  for (const auto& file : fs::directory_iterator(golden / "hf_families"))
    if (file.path().extension() == ".json") add(nlohmann::json::parse(text_of(file.path()))["config"]);
  return out;
}

/// How often the layers of a model exchange chunks in a forward pass on rank 0 of 2.
int chunked_exchanges(const arch::ModelSpec& spec, const arch::TensorOverlap& overlap) {
  const auto layout = arch::layout_of(spec);
  auto plan = arch::default_tensor_plan(layout);
  plan.sequence_parallel = true;
  plan.overlap = overlap;
  const auto group = std::make_shared<test::RecordingGroup>(kRanks);
  TensorParallel tensor(group, spec, layout, plan);
  model::StageModules modules{.embeddings = true};
  for (int layer = 0; layer < spec.layers; ++layer) modules.layers.push_back(layer);
  const auto placed = [&](const arch::Parameter& parameter) {
    return tensor_placement(spec, layout, plan, parameter, {.size = kRanks, .rank = 0});
  };
  model::StageModel stage(spec, layout, modules, {.seams = {.tensor = &tensor}, .placement = placed});
  for (const auto& weight : stage.weights().all())
    weight->parameter.value = at::full(weight->parameter.shape, 0.01, at::kFloat);
  const ops::NoGraph guard;
  const auto tokens = at::arange(kTokens, at::kLong).unsqueeze(0);
  const model::Microbatch microbatch{.ids = tokens, .labels = tokens, .positions = tokens, .length = kTokens};
  const auto hidden = stage.forward(microbatch, {}, {});
  CHECK(hidden.sizes() == at::IntArrayRef({1, kTokens / kRanks, spec.hidden}));
  return group->exchanges;
}

bool has_block(const arch::ModelSpec& spec, std::set<arch::Role> roles) {
  const auto layout = arch::layout_of(spec);
  for (const auto& kind : layout.kinds)
    for (const auto& each : kind.parameters)
      if (roles.contains(each.role)) return true;
  return false;
}

}  // namespace

TEST_CASE("for every family, chunks before attention and before feed-forward blocks can be switched off") {
  const auto models = small_models();
  for (const auto* family : arch::families()) CHECK(models.contains(std::string(family->model_type)));
  int without_attention = 0, without_feed = 0;
  for (const auto& [type, spec] : models) {
    CAPTURE(type);
    if (spec.full_heads || spec.compressed) continue;  // tensor parallelism is refused (check_unlike_layers)
    const int all = chunked_exchanges(spec, {.gather = true});
    const int no_qkv = chunked_exchanges(spec, {.gather = true, .gather_attention = false});
    const int no_fc1 = chunked_exchanges(spec, {.gather = true, .gather_mlp = false});
    const bool attention = has_block(spec, {arch::Role::kAttention});
    const bool feed = has_block(spec, {arch::Role::kMlp, arch::Role::kSharedExpert, arch::Role::kRecurrence});
    CHECK(all > 0);
    CHECK((no_qkv < all) == attention);
    CHECK((no_fc1 < all) == feed);
    // Each chunked layer of a layer belongs to exactly one of the two.
    CHECK((all - no_qkv) + (all - no_fc1) == all);
    CHECK(chunked_exchanges(spec, {.gather = true, .gather_attention = false, .gather_mlp = false}) == 0);
    CHECK(chunked_exchanges(spec, {}) == 0);
    without_attention += attention ? 0 : 1;
    without_feed += feed ? 0 : 1;
  }
  CHECK(without_attention == 1);  // Mamba-2
  CHECK(without_feed > 0);        // only routed experts
}

TEST_CASE("the switches for chunks apply to both passes of first layers, not to last ones") {
  const arch::TensorOverlap none{
      .gather = true, .scatter = true, .scatter_in_backward = true, .gather_attention = false};
  for (const auto part : {arch::Part::kQuery, arch::Part::kQkv, arch::Part::kKeyValueUp}) {
    const auto there = none.before(part);
    CHECK_FALSE(there.gather);
    CHECK_FALSE(there.scatter_in_backward);
    CHECK(there.scatter);
  }
  for (const auto part : {arch::Part::kAttentionOut, arch::Part::kUp, arch::Part::kStateIn, arch::Part::kNone})
    CHECK(none.before(part).gather);
}

}  // namespace automodel::parallel
