// Every recorded case of test/golden/foreign: what a configuration resolves to, what is said and what is refused.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "config/recipe.h"
#include "foreign/conversion.h"
#include "golden_folder.h"

namespace automodel::foreign {
namespace {

using nlohmann::json;

std::vector<json> cases() {
  std::ifstream file(golden_folder() + "/foreign/cases.jsonl");
  std::vector<json> out;
  for (std::string line; std::getline(file, line);) out.push_back(json::parse(line));
  return out;
}

std::string format_of(const std::string& file) {
  std::ifstream stream(file);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  return std::string(recognise(file, text));
}

Request request_of(const json& each) {
  const auto folder = golden_folder() + "/foreign/";
  Request request{.files = {{each["format"], folder + each["file"].get<std::string>()}},
                  .world_size = each["world_size"]};
  for (const auto& file : each.value("with", json::array())) {
    const auto path = folder + file.get<std::string>();
    if (format_of(path) == "accelerate") request.files.push_back({"accelerate", path});  // others are named by the file
  }
  const auto variables = each.value("env", std::map<std::string, std::string>());
  request.environment = [variables](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  return request;
}

/// The first word of what must be said that is a name of its file: "optimizer: adamw_bnb_8bit" -> adamw_bnb_8bit.
std::string subject(const std::string& text) {
  static const std::map<std::string, std::string> subjects = {
      {"vocabulary size: comes from the tokenizer", "vocabulary"},
      {"model is a local folder: sizes unknown without it", "local folder"},
      {"no model or length in the file", "no model"},
      {"no model, batch or length in the file: a mesh only; the training arguments must be given too", "no model"},
      {"tokenizer.max_seq_len is null: the sequence length must be given", "max_seq_len"},
      {"optimizer_in_bwd: gradients are freed during the backward pass; memory is overstated", "optimizer_in_bwd"},
      {"use_llama_pro: only every stride-th layer trains (freeze_trainable_layers 8)", "use_llama_pro"},
      {"step-batch-size-schedule: planned with its last batch size", "step_batch_size_schedule"},
      {"rampup_batch_size: planned with the final batch", "rampup_batch_size"},
      {"fp8_format hybrid: delayed scaling (TE)", "fp8_format hybrid"},
      {"optimizer PagedAdamW8bit", "PagedAdamW8bit"},
      {"scheduler WarmupLR", "WarmupLR"},
      {"offload_param without offload_optimizer", "offload_param without offload_optimizer"}};
  const auto found = subjects.find(text);
  return found == subjects.end() ? text : found->second;
}

/// What `--print-recipe` prints, as it was when it was last read by a person. AUTOMODEL_WRITE_RECIPES=FOLDER writes the
/// files there instead, to be read again.
void compare_recipe(const std::string& id, std::string recipe) {
  for (auto at = recipe.find(golden_folder() + "/"); at != std::string::npos; at = recipe.find(golden_folder() + "/"))
    recipe.erase(at, golden_folder().size() + 1);
  if (const char* folder = std::getenv("AUTOMODEL_WRITE_RECIPES")) {
    std::ofstream(fmt::format("{}/{}.yaml", folder, id)) << recipe;
    return;
  }
  std::ifstream stream(fmt::format("{}/foreign/recipes/{}.yaml", golden_folder(), id));
  const std::string recorded{std::istreambuf_iterator<char>(stream), {}};
  CHECK(recipe == recorded);
}

}  // namespace

TEST_CASE("recorded configurations resolve as their own trainers read them", "[foreign]") {
  const auto all = cases();
  REQUIRE(all.size() == 59);
  for (const auto& each : all) {
    const std::string id = each["id"];
    REQUIRE(std::ranges::find(formats(), each["format"].get<std::string>()) != formats().end());
    DYNAMIC_SECTION(id) {
      const auto made = convert(request_of(each));
      INFO(to_text(made.problems));
      const auto from = json::parse(to_json(made));
      CHECK(from["format"] == each["format"]);
      CHECK(made.findings.problems.empty());
      CHECK(made.findings.refused.has_value() == each.contains("refuse"));
      for (const auto& [key, wanted] : each["expect"].items()) {
        if (each.contains("refuse") && wanted.is_null()) continue;
        CAPTURE(key);
        if (id == "hf-vicuna-7b" && key == "model") {
          // Recorded before the shell replaced '~' in the file.
          CHECK(from["resolved"][key].get<std::string>().ends_with("/model_weights/llama-7b"));
          continue;
        }
        CHECK(from["resolved"][key] == wanted);
      }
      std::string said;
      for (const auto* list : {"not_expressed", "notes"})
        for (const auto& item : from[list])
          said += fmt::format("{}: {}\n", item["key"].get<std::string>(), item["reason"].get<std::string>());
      for (const auto& text : each["must_say"]) {
        CAPTURE(said);
        CHECK_THAT(said, Catch::Contains(subject(text)));
      }
      for (const auto& key : each["ignored_ok"]) {
        CAPTURE(key, said);
        for (const auto& item : from["not_expressed"])
          CHECK(item["key"].get<std::string>().substr(0, item["key"].get<std::string>().find(':')) != key);
      }
      if (made.findings.refused) continue;
      auto request = request_of(each);
      request.allow_inexact = true;
      request.vocab_size = 32000;
      if (!made.resolved.seq_length) request.seq_length = 2048;
      if (made.findings.refused || each["format"] == "accelerate" || each["format"] == "deepspeed") continue;
      if (!made.resolved.sizes && said.find("local folder") != std::string::npos)
        request.model = "meta-llama/Llama-2-7b-hf";
      const auto whole = convert(request);
      INFO(to_text(whole.problems));
      REQUIRE(whole.problems.empty());
      compare_recipe(id, whole.recipe);
      const auto loaded =
          config::read_recipe(whole.recipe, "recipe", {}, [](const std::string&) { return std::nullopt; });
      INFO(whole.recipe);
      INFO(to_text(loaded.problems));
      CHECK(loaded.problems.empty());
      CHECK(loaded.unsupported.empty());
      CHECK(loaded.ignored.empty());
    }
  }
}

TEST_CASE("recorded configurations are recognised by their keys", "[foreign]") {
  for (const auto& each : cases()) {
    const std::string id = each["id"];
    CAPTURE(id);
    if (id == "mg-t5") continue;  // an argument list with neither --num-layers ...
    CHECK(format_of(golden_folder() + "/foreign/" + each["file"].get<std::string>()) == each["format"]);
  }
}

}  // namespace automodel::foreign
