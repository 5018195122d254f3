// docs/plan-json.md names every field that `plan --json` prints, and no other.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "docs/pages.h"

namespace automodel {
namespace {

void add_keys(const nlohmann::json& value, std::set<std::string>& keys) {
  for (const auto& [key, item] : value.items()) {
    if (value.is_object()) keys.insert(key);
    if (key == "settings" || key == "styles") continue;  // keys of the recipe, names of modules
    if (item.is_structured()) add_keys(item, keys);
  }
}

const std::string kDense =
    "model: {config: {model_type: llama, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 8, "
    "num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 260, max_position_embeddings: 128}}\n";
const std::string kExperts =
    "model: {config: {model_type: mixtral, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 4, "
    "num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 260, num_local_experts: 4, num_experts_per_tok: 2, "
    "max_position_embeddings: 128}}\n";
const std::string kRest =
    "dataset: {_target_: mock, vocab_size: 260, seq_length: 64}\n"
    "step_scheduler: {global_batch_size: 16, local_batch_size: 8}\n";

struct Printed {
  std::string recipe;
  std::string words;
  int code;
};

const std::vector<Printed> kPrinted = {
    {kDense + "teacher_" + kDense + kRest +
         "distributed: {strategy: ddp, dp_size: 2, pp_size: 2, pipeline: {pp_schedule: interleaved_1f1b}}\nci: {x: "
         "1}\npeft: {dim: 4}\n",
     "--actions lowered --step_scheduler.max_steps 10", 0},
    {kExperts + kRest + "distributed: {dp_size: 2, ep_size: 2, pipeline: {}}\ncheckpoint: {memory_every_steps: 10}\n",
     "", 0},
    {"model: {_target_: nemo_automodel.NeMoAutoModelForImageTextToText.from_pretrained, "
     "pretrained_model_name_or_path: " +
         (test::repository() / "test/golden/vlm/llava").native() +
         "}\ndataset: {_target_: mock_pictures}\nfreeze_config: {freeze_vision_tower: true}\n",
     "", 0},
    {kDense + kRest + "distributed: {dp_sise: 2}\n", "", 2},
};

}  // namespace

TEST_CASE("docs/plan-json.md documents every field of plan --json, and no others", "[docs]") {
  std::set<std::string> printed;
  for (const auto& row : kPrinted) {
    const test::TemporaryFolder folder;
    folder.write("r.yaml", row.recipe);
    const auto outcome = test::run_program(folder, "plan r.yaml --json " + row.words);
    INFO(outcome.out << outcome.err);
    REQUIRE(outcome.code == row.code);
    add_keys(nlohmann::json::parse(outcome.out), printed);
  }
  const auto page = test::first_column(test::read_file(test::repository() / "docs/plan-json.md"));
  for (const auto& key : printed)
    if (!page.contains(key)) FAIL_CHECK("plan --json prints '" << key << "': add a row to docs/plan-json.md");
  for (const auto& key : page)
    if (!printed.contains(key)) FAIL_CHECK("docs/plan-json.md names '" << key << "', which plan --json does not print");
}

TEST_CASE("the generated part of docs/plan-json.md is current", "[docs]") {
  const auto page = test::read_file(test::repository() / "docs/plan-json.md");
  const std::string mark = "automodel schema --plan -->\n";
  const auto at = page.find(mark);
  REQUIRE(at != std::string::npos);
  const test::TemporaryFolder folder;
  CHECK(page.substr(at + mark.size()) == test::run_program(folder, "schema --plan").out);
}

}  // namespace automodel
