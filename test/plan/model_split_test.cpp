#include "plan/model_split.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include <catch2/catch.hpp>

#include "arch/counts.h"
#include "arch/families.h"
#include "arch/hf_config.h"
#include "golden_file.h"
#include "golden_names.h"
#include "nemo_stage_fqns.h"
#include "plan/model_names.h"
#include "plan/stage_rounding.h"
#include "plan/virtual_stages.h"

namespace automodel::plan {
namespace {

ModelNames names_of(const arch::Layout& layout) {
  ModelChoice model;
  model.layout = layout;
  return plan::names_of(model);
}

arch::ModelSpec spec_of(const nlohmann::json& config) {
  const auto text = config.dump();
  const auto parsed = arch::parse_hf_config(text, "c");
  REQUIRE(parsed.spec);
  return *parsed.spec;
}

/// The tiny models of the recorded splits.
arch::ModelSpec tiny(const std::string& family, int layers) {
  return spec_of({{"model_type", family},
                  {"hidden_size", 16},
                  {"intermediate_size", 32},
                  {"num_hidden_layers", layers},
                  {"num_attention_heads", 4},
                  {"num_key_value_heads", 2},
                  {"head_dim", 4},
                  {"vocab_size", 64}});
}

/// The state of a stage as in the recorded splits: one word per layer or parameter.
std::vector<std::string> state_keys(const arch::ModuleTree& tree, const StagePart& part) {
  std::vector<std::string> out;
  for (const int module : part.modules)
    if (tree[module].elements > 0)
      out.push_back(tree[module].kind == arch::ModuleKind::kLayer ? tree[module].fqn : tree[module].fqn + ".weight");
  std::sort(out.begin(), out.end());
  return out;
}

std::string top_modules(const StagePart& part) {
  std::set<std::string> tops;
  for (const auto& fqn : part.fqns) tops.insert(fqn.substr(0, fqn.find('.')));
  std::string out;
  for (const auto& top : tops) out += (out.empty() ? "" : " ") + top;
  return out;
}

struct Schedule {
  bool single;
  schedule::PlacementStyle placement;  ///< as NeMo AutoModel places it: DualPipeV as a loop, which it cannot run
};
const std::map<std::string, Schedule> kSchedules = {{"1f1b", {true, schedule::PlacementStyle::kLoop}},
                                                    {"gpipe", {true, schedule::PlacementStyle::kLoop}},
                                                    {"interleaved1f1b", {false, schedule::PlacementStyle::kLoop}},
                                                    {"loopedbfs", {false, schedule::PlacementStyle::kLoop}},
                                                    {"PipelineScheduleMulti", {false, schedule::PlacementStyle::kLoop}},
                                                    {"zbvzerobubble", {false, schedule::PlacementStyle::kV}},
                                                    {"dualpipev", {false, schedule::PlacementStyle::kLoop}}};

struct Case {
  arch::ModelSpec spec;
  int pp;
  Schedule schedule;
  std::optional<std::int64_t> layers_per_stage;
  StageRounding rounding = StageRounding::kRefuse;
  std::optional<StageFqns> given;
};

/// The module names of all stages, or problems.
std::optional<StageFqns> split_names(const Case& c, const ModelNames& names, Diagnostics& problems) {
  VirtualStagesRequest request{
      c.spec.layers, c.layers_per_stage, c.pp, c.schedule.single, c.schedule.placement == schedule::PlacementStyle::kV,
      c.rounding};
  const auto stages = calculate_virtual_stages(request, problems);
  if (!stages) return std::nullopt;
  if (!c.given) return stage_fqns(names, stages->stages, stages->per_rank, problems);
  if (static_cast<int>(c.given->size()) % c.pp == 0) return c.given;
  problems.push_back({"indivisible"});
  return std::nullopt;
}

bool holds(const Diagnostics& problems, const std::string& id) {
  return std::any_of(problems.begin(), problems.end(), [&](const Diagnostic& d) { return d.id == id; });
}

nlohmann::json family_config(const std::string& name) {
  for (const auto& row : golden::load("arch/hf_models.json"))
    if (row["name"] == name) return row["config"];
  FAIL("no model " << name);
  return {};
}

}  // namespace

TEST_CASE("models are split into stages as in NeMo AutoModel", "[plan][golden]") {
  int accepted = 0;
  int refused = 0;
  int skipped = 0;
  for (const auto& row : golden::load("plan/model_split.json")) {
    const auto& in = row["in"];
    CAPTURE(row.dump());
    if (in[3].is_null() || in[3] == "bogus") {  // names of schedules are looked up elsewhere
      ++skipped;
      continue;
    }
    Case c{tiny(in[0], in[1]), in[2], kSchedules.at(in[3]), {}, StageRounding::kRefuse, {}};
    if (!in[4].is_null()) c.layers_per_stage = in[4].get<int>();
    if (!in[5].is_null()) c.rounding = rounding_named(in[5].get<std::string>()).value();
    if (row.contains("fqns")) c.given = row["fqns"].get<StageFqns>();
    const auto layout = arch::layout_of(c.spec);
    const arch::ModuleTree tree(layout);
    Diagnostics problems;
    const auto names = split_names(c, names_of(layout), problems);
    if (row.contains("error")) {
      CHECK_FALSE(names);
      CHECK(problems.size() == 1);
      ++refused;
      continue;
    }
    REQUIRE(names);
    ++accepted;
    const auto parts = split_model(tree, *names);
    const auto placement = schedule::make_placement(c.schedule.placement, c.pp, static_cast<int>(parts.size()));
    for (int rank = 0; rank < c.pp; ++rank) {
      const auto& ids = placement.stages_of(rank);
      const auto& expected = row["ranks"][static_cast<std::size_t>(rank)];
      REQUIRE(ids.size() == expected.size());
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const auto& part = parts[ids[i].at()];
        CHECK(ids[i].at() == expected[i][0].get<std::size_t>());
        CHECK(part.parameters == expected[i][1].get<std::int64_t>());
        CHECK(top_modules(part) == expected[i][2].get<std::string>());
        CHECK(state_keys(tree, part) == golden::names(expected[i][3]));
      }
    }
  }
  CHECK(accepted == 88);
  CHECK(refused == 21);
  CHECK(skipped == 2);
}

TEST_CASE("the stages of a Llama model have the module names of NeMo's generator", "[plan]") {
  const auto spec = tiny("llama", 13);
  for (int stages = 1; stages <= 13; ++stages) {
    Diagnostics problems;
    FqnSplitRequest request;
    request.stages = stages;
    request.layers = 13;
    request.encoders = false;
    CHECK(stage_fqns(names_of(arch::layout_of(spec)), stages, 1, problems) == nemo_stage_fqns(request, problems));
  }
}

TEST_CASE("each parameter is in exactly one stage, tied embeddings in the first and the last", "[plan][property]") {
  std::mt19937 random(17);
  for (const auto& row : golden::load("arch/hf_models.json")) {
    CAPTURE(row["name"].get<std::string>());
    auto config = row["config"];
    const auto spec = spec_of(config);
    const auto layout = arch::layout_of(spec);
    const arch::ModuleTree tree(layout, arch::TreeDepth::kLeaves);
    const auto all = arch::parameters(layout);
    for (int repeat = 0; repeat < 30; ++repeat) {
      // Random ranges of layers; some stages have none.
      const int stages = static_cast<int>(random() % 6) + 1;
      std::vector<int> cuts = {0, spec.layers};
      for (int i = 1; i < stages; ++i)
        cuts.push_back(static_cast<int>(random() % static_cast<unsigned>(spec.layers + 1)));
      std::sort(cuts.begin(), cuts.end());
      std::vector<LayerRange> ranges;
      for (int i = 0; i < stages; ++i)
        ranges.push_back({cuts[static_cast<std::size_t>(i)], cuts[static_cast<std::size_t>(i) + 1]});
      const auto names = stage_fqns(names_of(layout), ranges);
      CHECK(check_split(tree, names).empty());
      const auto parts = split_model(tree, names);
      std::int64_t sum = 0;
      for (const auto& part : parts) sum += part.parameters;
      const bool copied = spec.tied_embeddings && stages > 1;
      CHECK(sum == arch::count_parameters(spec).total() + (copied ? layout.head_parameter.shape.elements() : 0));
      for (const auto& parameter : all) {
        int found = 0;
        for (const auto& part : parts)
          for (const auto& fqn : part.fqns) found += parameter.fqn.starts_with(fqn + ".") ? 1 : 0;
        CHECK(found == 1);
      }
      if (spec.tied_embeddings) {
        CHECK(parts.front().has_embedding);
        CHECK(parts.back().has_head);
      }
      for (int i = 0; i < stages; ++i) {
        const auto at = static_cast<std::size_t>(i);
        CHECK(static_cast<int>(parts[at].layers.size()) == ranges[at].size());
        const arch::Portion portion{i == 0, ranges[at].begin, ranges[at].end, i + 1 == stages, i + 1 == stages};
        CHECK(parts[at].parameters == arch::count_parameters(layout, portion).total());
      }
    }
  }
}

TEST_CASE("encoders and projectors of a multimodal model are in the first stage", "[plan]") {
  ModelChoice model;
  model.config_text = R"({"model_type": "llava", "text_config": {"model_type": "llama", "hidden_size": 8,
      "intermediate_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "vocab_size": 32},
      "vision_config": {"model_type": "clip_vision_model", "hidden_size": 4, "intermediate_size": 8,
      "num_hidden_layers": 2, "patch_size": 2, "image_size": 4}})";
  const auto config = arch::parse_hf_config(model.config_text, "config.json");
  REQUIRE(config.spec);
  model.spec = *config.spec;
  model.layout = arch::layout_of(model.spec);
  const auto towers = towers_of(model);
  REQUIRE(towers.size() == 2);
  Diagnostics problems;
  const auto split = stage_fqns(plan::names_of(model), 2, 1, problems);
  REQUIRE(split);
  CHECK((*split)[0] == std::vector<std::string>{"model.language_model.embed_tokens", "model.vision_tower",
                                                "model.multi_modal_projector", "model.language_model.layers.0",
                                                "model.language_model.layers.1", "model.language_model.rotary_emb"});
  arch::ModuleTree tree(model.layout);
  for (const auto& tower : towers) tree.add(tower.fqn, *tower.parameters);
  const auto parts = split_model(tree, *split);
  const arch::Portion first{true, 0, 2, false, false};
  CHECK(parts[0].parameters ==
        arch::count_parameters(model.layout, first).total() + *towers[0].parameters + *towers[1].parameters);
  CHECK(towers_of(model, parts[0]).size() == 2);
  CHECK(towers_of(model, parts[1]).empty());
  // A list without one of them is refused.
  auto without = *split;
  without[0].erase(without[0].begin() + 1);
  const auto refused = check_split(tree, without);
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].message == "no stage holds 'model.vision_tower'");
}

TEST_CASE("unknown, repeated, missing and misplaced modules of an explicit split are reported at once", "[plan]") {
  const auto layout = arch::layout_of(tiny("llama", 6));
  const arch::ModuleTree tree(layout);
  const auto check = [&](const StageFqns& names) { return check_split(tree, names); };
  CHECK(check({{"model.embed_tokens", "model.layers.0", "model.layers.1", "model.layers.2"},
               {"model.layers.3", "model.layers.4", "model.layers.5", "model.norm", "lm_head"}})
            .empty());
  const auto problems = check({{"model.embed_token", "model.layers.1", "model.layers.0", "lm_head"},
                               {"model.layers.1", "model.layers.2.mlp", "model.norm", "model.layers.9"}});
  std::vector<std::string> lines;
  for (const auto& problem : problems) lines.push_back(std::string(problem.id) + ": " + problem.message);
  CHECK(lines == std::vector<std::string>{
                     "unknown-module: the model has no module 'model.embed_token'",
                     "duplicate-module: 'model.layers.1' is in stage 0 and in stage 1",
                     "unknown-module: 'model.layers.2.mlp' is a part of a layer",
                     "unknown-module: the model has no module 'model.layers.9'",
                     "missing-module: no stage holds 'model.embed_tokens'",
                     "missing-module: no stage holds layers 2 to 5",
                     "stage-order: 'lm_head' is in stage 0",
                     "stage-order: layer 0 comes after layer 1",
                 });
  CHECK(problems[0].help == "did you mean 'model.embed_tokens'?");
  CHECK(problems[2].help == "a layer is the smallest part of a stage; use 'model.layers.2'");
  CHECK(holds(check({}), "bad-value"));
}

TEST_CASE("an explicit split may name a parent module instead of its children", "[plan]") {
  const auto layout = arch::layout_of(tiny("llama", 4));
  const arch::ModuleTree tree(layout);
  const StageFqns whole = {{"model", "lm_head"}};
  CHECK(check_split(tree, whole).empty());
  const auto parts = split_model(tree, whole);
  CHECK(parts[0].layers == std::vector<int>{0, 1, 2, 3});
  CHECK(parts[0].has_embedding);
  CHECK(parts[0].parameters == arch::count_parameters(tiny("llama", 4)).total());
  CHECK(holds(check_split(tree, {{"model", "model.layers.2", "lm_head"}}), "duplicate-module"));
  CHECK(split_model(tree, {{"model.layers.2", "model.layers", "model.layers.2"}})[0].fqns ==
        std::vector<std::string>{"model.layers"});
}

TEST_CASE("the number of explicit stages must suit the ranks and the schedule", "[plan]") {
  CHECK(check_split_schedule(4, 4, true, schedule::PlacementStyle::kLoop).empty());
  CHECK(check_split_schedule(8, 4, false, schedule::PlacementStyle::kV).empty());
  CHECK(holds(check_split_schedule(8, 4, true, schedule::PlacementStyle::kLoop), "schedule-single-stage"));
  CHECK(holds(check_split_schedule(12, 4, false, schedule::PlacementStyle::kV), "schedule-v-stages"));
  CHECK(holds(check_split_schedule(4, 4, false, schedule::PlacementStyle::kLoop), "schedule-multi-stage"));
  CHECK(check_split_schedule(10, 4, false, schedule::PlacementStyle::kLoop)[0].help ==
        "every rank runs the same number of stages; name 8 or 12 stages");
}

TEST_CASE("split_model ignores names of modules that the model does not have", "[plan]") {
  const auto layout = arch::layout_of(tiny("qwen3", 3));
  const arch::ModuleTree tree(layout);
  const auto parts = split_model(tree, {{"model.layers.7", "nothing", "model.layers.1"}, {}});
  CHECK(parts[0].fqns == std::vector<std::string>{"model.layers.1"});
  CHECK(parts[1].parameters == 0);
  // Nor does it count a module twice that is named twice.
  const auto again = split_model(tree, {{"model.layers.1", "model.layers.1"}, {}});
  CHECK(again[0].fqns == parts[0].fqns);
  CHECK(again[0].parameters == parts[0].parameters);
}

TEST_CASE("the module tree used to split a MoE model does not list its experts", "[plan]") {
  const auto spec = spec_of(family_config("deepseek_v3"));
  const arch::ModuleTree tree(arch::layout_of(spec));
  CHECK(tree.modules().size() == 9);
}

}  // namespace automodel::plan
