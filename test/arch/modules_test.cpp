#include "arch/modules.h"

#include <filesystem>
#include <map>
#include <set>

#include <catch2/catch.hpp>

#include "arch/counts.h"
#include "arch/families.h"
#include "arch/hf_config.h"
#include "base/diagnostic.h"
#include "checkpoint/format/weight_names.h"
#include "golden_file.h"
#include "golden_folder.h"

namespace automodel::arch {
namespace {

ModelSpec spec_of(const nlohmann::json& config) {
  const auto text = config.dump();
  const auto parsed = parse_hf_config(text, "config.json", {false, true});
  INFO(to_text(parsed.errors));
  REQUIRE(parsed.spec);
  CHECK(parsed.warnings.empty());
  return *parsed.spec;
}

}  // namespace

TEST_CASE("parameters have the names and shapes that transformers writes", "[arch][golden]") {
  std::set<std::string> families;
  for (const auto& row : golden::load("arch/hf_models.json")) {
    CAPTURE(row["name"].get<std::string>());
    const auto spec = spec_of(row["config"]);
    families.insert(spec.model_type);
    std::map<std::string, std::vector<std::int64_t>> ours;
    for (const auto& parameter : parameters(spec)) {
      if (!parameter.tied_to.empty()) continue;
      const bool fresh =
          ours.emplace(parameter.fqn, std::vector(parameter.shape.begin(), parameter.shape.end())).second;
      CHECK(fresh);
    }
    CHECK(ours == row["tensors"].get<std::map<std::string, std::vector<std::int64_t>>>());
  }
  for (const auto& entry : std::filesystem::directory_iterator(automodel::golden_folder() + "/hf_families")) {
    if (entry.path().extension() != ".json") continue;
    CAPTURE(entry.path().filename().string());
    const auto row = golden::load("hf_families/" + entry.path().filename().string());
    const auto spec = spec_of(row["config"]);
    families.insert(spec.model_type);
    std::map<std::string, std::vector<std::int64_t>> ours, theirs;
    std::set<std::string> buffers;
    std::int64_t elements = 0;
    for (const auto& parameter : parameters(spec)) {
      if (!parameter.tied_to.empty()) continue;
      const bool joined = !row["weights"].contains(parameter.fqn);  // experts in one tensor
      const auto written = checkpoint::written_as(parameter, spec);
      ours[joined ? written.name : parameter.fqn] =
          joined ? written.shape : std::vector(parameter.shape.begin(), parameter.shape.end());
      if (!parameter.trainable) buffers.insert(parameter.fqn);
      elements += parameter.shape.elements();
    }
    for (const auto& [name, rule] : row["weights"].items())
      theirs[name] = rule["shape"].get<std::vector<std::int64_t>>();
    CHECK(ours == theirs);
    CHECK(buffers == row["not_trained"].get<std::set<std::string>>());
    CHECK(count_parameters(spec).total() == elements);
  }
  CHECK(families.size() == arch::families().size());
}

TEST_CASE("the configs of transformers 4 and 5 describe the same model", "[arch][golden]") {
  std::size_t compared = 0;
  for (const auto& row : golden::load("arch/hf_models.json")) {
    if (!row.contains("legacy")) continue;
    CAPTURE(row["name"].get<std::string>());
    CHECK(spec_of(row["config"]) == spec_of(row["legacy"]));
    ++compared;
  }
  CHECK(compared == 5);
}

TEST_CASE("each parameter records its layer, expert, module and tied tensor", "[arch]") {
  const auto rows = golden::load("arch/hf_models.json");
  const auto config = [&](const std::string& name) {
    for (const auto& row : rows)
      if (row["name"] == name) return row["config"];
    FAIL("no model " << name);
    return nlohmann::json();
  };
  std::map<std::string, Parameter> deepseek;
  for (const auto& parameter : parameters(spec_of(config("deepseek_v3")))) deepseek[parameter.fqn] = parameter;
  CHECK(deepseek["model.layers.1.mlp.experts.5.up_proj.weight"].expert == 5);
  CHECK(deepseek["model.layers.1.mlp.experts.5.up_proj.weight"].layer == 1);
  CHECK(deepseek["model.layers.1.mlp.experts.5.up_proj.weight"].is_expert());
  CHECK_FALSE(deepseek["model.layers.1.mlp.shared_experts.up_proj.weight"].is_expert());
  CHECK_FALSE(deepseek["model.layers.1.mlp.gate.e_score_correction_bias"].trainable);
  CHECK(deepseek["model.layers.0.mlp.up_proj.weight"].module() == "model.layers.0.mlp.up_proj");
  CHECK(deepseek["model.norm.weight"].layer == -1);

  const auto tied = parameters(spec_of(config("llama_tied")));
  CHECK(tied.back().fqn == "lm_head.weight");
  CHECK(tied.back().tied_to == "model.embed_tokens.weight");
  const auto fused = parameters(spec_of(config("gpt_oss")));
  const auto gate_up = std::find_if(fused.begin(), fused.end(), [](const Parameter& p) {
    return p.fqn == "model.layers.2.mlp.experts.gate_up_proj";
  });
  REQUIRE(gate_up != fused.end());
  CHECK(gate_up->is_expert());
  CHECK(gate_up->expert == -1);
}

TEST_CASE("the coarse and the fine module tree count the same parameters", "[arch]") {
  for (const auto& row : golden::load("arch/hf_models.json")) {
    CAPTURE(row["name"].get<std::string>());
    const auto spec = spec_of(row["config"]);
    const auto layout = layout_of(spec);
    const ModuleTree coarse(layout);
    const ModuleTree fine(layout, TreeDepth::kLeaves);
    std::int64_t listed = 0;
    for (const auto& parameter : parameters(layout)) {
      if (!parameter.tied_to.empty()) continue;
      listed += parameter.shape.elements();
      const int module = fine.find(parameter.module());
      REQUIRE(module >= 0);
      CHECK(fine[module].layer == parameter.layer);
    }
    CHECK(count_parameters(spec).total() == listed);
    for (const auto& module : coarse.modules()) {
      REQUIRE(fine.find(module.fqn) >= 0);
      CHECK(fine[fine.find(module.fqn)].elements == module.elements);
      CHECK(fine[fine.find(module.fqn)].kind == module.kind);
    }
    CHECK(coarse[coarse.find(layout.base)].elements + coarse[coarse.find("lm_head")].elements == listed);
  }
}

TEST_CASE("a module tree built by hand derives parent modules and layer numbers", "[arch]") {
  ModuleTree tree;
  tree.add("model.language_model.layers.0.mlp", 10);
  tree.add("model.language_model.layers.1.mlp", 20);
  tree.add("model.visual", 5);
  tree.mark_layers("model.language_model.layers");
  CHECK(tree[tree.find("model")].elements == 35);
  CHECK(tree[tree.find("model.language_model.layers.1")].kind == ModuleKind::kLayer);
  CHECK(tree[tree.find("model.language_model.layers.1.mlp")].layer == 1);
  CHECK(tree[tree.find("model.visual")].layer == -1);
  CHECK(tree.find("model.audio") == -1);
  for (std::size_t i = 0; i < tree.modules().size(); ++i) CHECK(tree.modules()[i].parent < static_cast<int>(i));
}

}  // namespace automodel::arch
