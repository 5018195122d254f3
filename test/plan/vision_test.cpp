// Models with a vision tower: which are trained, with which parameters, what is frozen, and what is refused.
#include <set>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "arch/families.h"
#include "arch/hf_config.h"
#include "arch/modules.h"
#include "estimate/estimated_plan.h"
#include "estimate/search.h"
#include "golden_folder.h"
#include "planned.h"
#include "temporary_folder.h"

namespace automodel::plan {
namespace {

const std::string kModel = golden_folder() + "/vlm/llava";

/// A config.json like llava-hf/llava-1.5-7b-hf's, with more keys of the tower and of the model.
std::string config(const std::string& tower = "", const std::string& rest = "") {
  return R"({"model_type": "llava", "text_config": {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
                             "num_attention_heads": 32, "vocab_size": 32064},
             "vision_config": {"model_type": "clip_vision_model", "hidden_size": 1024, "image_size": 336,
                               "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24,
                               "patch_size": 14)" +
         tower + "}, \"image_token_index\": 32000" + rest + "}";
}

/// Why a model is planned only; "" if it is trained.
std::string why_not(const std::string& text) {
  const auto parsed = arch::parse_hf_config(text, "config.json", {.allow_unknown_family = true});
  INFO(to_text(parsed.errors));
  REQUIRE(parsed.spec);
  CHECK(parsed.spec->vision.has_value() == parsed.spec->plan_only.empty());
  CHECK(parsed.warnings.empty() == parsed.spec->plan_only.empty());
  return parsed.spec->plan_only;
}

TEST_CASE("LLaVA with CLIP is trained, with the parameters that are published", "[plan][vision]") {
  const auto parsed = arch::parse_hf_config(config(), "config.json", {});
  REQUIRE(parsed.spec);
  REQUIRE(parsed.spec->vision);
  const auto& vision = *parsed.spec->vision;
  CHECK(vision.tokens() == 576);
  CHECK(vision.used_layers == 23);
  // llava-hf/llava-1.5-7b-hf: 7,063,427,072 parameters, of them 6,738,939,904 of Vicuna with 64 more rows.
  std::int64_t elements = 0, counted = 0;
  for (const auto& parameter : arch::parameters(*parsed.spec))
    if (parameter.role == arch::Role::kTower) elements += parameter.shape.elements();
  for (const auto& tower : parsed.towers) counted += tower.parameters.value_or(0);
  CHECK(elements == 7'063'427'072 - 6'738'939'904);
  CHECK(counted == elements);
  CHECK(arch::parse_hf_config(config("", R"(, "vision_feature_select_strategy": "full")"), "config.json", {})
            .spec->vision->tokens() == 577);
}

const std::string kSizes =
    R"("hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "vocab_size": 40000)";

TEST_CASE("other towers and decoders are planned only, with the reason", "[plan][vision]") {
  CHECK(why_not(config()).empty());
  for (
      const auto& [text, reason] : std::vector<std::pair<std::string, std::string>>{
          {config(R"(, "hidden_act": "gelu")"), "activation is gelu"},
          {config(R"(, "attention_dropout": 0.1)"), "dropout"},
          {config(R"(, "num_channels": 1)"), "3 channels"},
          {config("", R"(, "vision_feature_layer": -1)"), "vision_feature_layer"},
          {config("", R"(, "vision_feature_layer": [-2, -5])"), "several layers"},
          {config("", R"(, "vision_feature_select_strategy": "cls")"), "select_strategy is cls"},
          {config("", R"(, "projector_hidden_act": "relu")"), "projector's activation"},
          {config("", R"(, "image_token_index": 40000)"), "not in its vocabulary"},
          {R"({"model_type": "llava", "text_config": {"model_type": "llama", )" + kSizes + R"(},
                "vision_config": {"model_type": "clip_vision_model"}})",
           "has no hidden_size"},
          {R"({"model_type": "llava", "text_config": {"model_type": "llama", )" + kSizes + R"(},
                "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 8}})",
           "siglip_vision_model"},
          {R"({"model_type": "llava", "text_config": {"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 1, "vocab_size": 40000, "n_positions": 64}, "vision_config": {
                "model_type": "clip_vision_model", "hidden_size": 8, "image_size": 8, "intermediate_size": 8,
                "num_attention_heads": 1, "num_hidden_layers": 2, "patch_size": 4}})",
           "decoder is a gpt2"},
          {R"({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", )" + kSizes + R"(},
                "vision_config": {"model_type": "siglip_vision_model"}})",
           "gemma3"}}) {
    INFO(text);
    CHECK_THAT(why_not(text), Catch::Contains(reason));
  }
}

std::string recipe(const std::string& sections = "", const std::string& model = "") {
  return fmt::format(
      "recipe: FinetuneRecipeForVLM\n"
      "model: {{_target_: nemo_automodel.NeMoAutoModelForImageTextToText.from_pretrained, "
      "pretrained_model_name_or_path: {}{}}}\n"
      "dataset: {{_target_: chat, path_or_dataset_id: {}/samples.jsonl}}\n{}",
      kModel, model, kModel, sections);
}

/// "id key" of the problems of a run, and of the warnings.
std::pair<std::string, std::string> problems_of(const std::string& text, int ranks = 1) {
  const auto loaded = config::read_recipe(text, "recipe.yaml", {}, {});
  INFO(to_text(loaded.problems));
  REQUIRE(loaded.problems.empty());
  const auto result = estimate::make_plan(loaded, {.world_size = ranks, .training = true});
  const auto all = [](const Diagnostics& list) {
    std::string out;
    for (const auto& each : list) out += (out.empty() ? "" : ", ") + std::string(each.id.name()) + " " + each.key;
    return out;
  };
  return {all(result.problems), all(result.warnings)};
}

TEST_CASE("what does not work with pictures is refused where it is set", "[plan][vision]") {
  CHECK(problems_of(recipe()).first.empty());
  for (const auto& [sections, ranks, key] : std::vector<std::tuple<std::string, int, std::string>>{
           {"distributed: {strategy: fsdp2, tp_size: 2}\n", 2, "distributed.tp_size"},
           {"distributed: {strategy: fsdp2, cp_size: 2}\n", 2, "distributed.cp_size"},
           {"distributed: {strategy: ddp, pp_size: 2, pipeline: {}}\nstep_scheduler: {local_batch_size: 2}\n", 2,
            "distributed.pp_size"},
           {"packed_sequence: {packed_sequence_size: 64}\n", 1, "packed_sequence"},
           {"peft: {dim: 4}\n", 1, "peft"},
           {"fp8: {enabled: true}\n", 1, "fp8"},
           {"optimizer: {_target_: torch.optim.Muon, lr: 0.01}\n", 1, "optimizer"},
           {"generation: {prompts: [a]}\n", 1, "generation"}}) {
    INFO(sections);
    CHECK_THAT(problems_of(recipe(sections), ranks).first, Catch::Contains("unsupported-option " + key));
  }
}

TEST_CASE("a search proposes no mesh that pictures do not allow", "[plan][vision]") {
  const auto loaded = config::read_recipe(
      recipe("device: cpu\nstep_scheduler: {global_batch_size: 8, local_batch_size: 2}\n"), "recipe.yaml", {}, {});
  const auto result = estimate::search_plans(loaded, {.world_size = 4});
  CHECK(!result.best.empty());
  for (const auto& candidate : result.best) CHECK(candidate.sizes.tp * candidate.sizes.pp * candidate.sizes.cp == 1);
}

TEST_CASE("the processor's settings are found, fit the tower, or are refused", "[plan][vision]") {
  const auto plan = test::planned(recipe());
  REQUIRE(plan.model->processor);
  CHECK(plan.model->processor->result() == pictures::Size{32, 32});
  const test::TemporaryFolder folder;
  const auto other = [&](const std::string& text) {
    folder.write("preprocessor_config.json", text);
    return problems_of(recipe(fmt::format("processor: {{_target_: transformers.AutoProcessor.from_pretrained, "
                                          "pretrained_model_name_or_path: {}}}\n",
                                          folder.path().native())))
        .first;
  };
  const std::string key = "unsupported-model processor.pretrained_model_name_or_path";
  CHECK(other(R"({"image_processor_type": "CLIPImageProcessor", "size": 32, "crop_size": 32})").empty());
  CHECK(other(R"({"image_processor_type": "CLIPImageProcessor"})") == key);  // 224 x 224
  CHECK(other(R"({"image_processor_type": "CLIPImageProcessor", "size": 32, "do_center_crop": false})") == key);
  CHECK(other(R"({"image_processor_type": "PixtralImageProcessor"})") == key);
  CHECK(problems_of(recipe("processor: {pretrained_model_name_or_path: nowhere}\n")).first ==
        "missing-file processor.pretrained_model_name_or_path");
}

TEST_CASE("the tower is frozen as NeMo AutoModel freezes it, and the decoder if asked", "[plan][vision]") {
  const auto frozen = [](const std::string& section) -> std::set<std::string> {
    const auto plan = test::planned(recipe("freeze_config: " + section + "\n"));
    return plan.frozen ? plan.frozen->names : std::set<std::string>();
  };
  const auto tower = frozen("{freeze_vision_tower: true}");
  CHECK(tower.size() == 55);
  CHECK(tower.contains("model.vision_tower.encoder.layers.0.mlp.fc1.weight"));
  CHECK(!tower.contains("model.multi_modal_projector.linear_1.weight"));
  CHECK(frozen("{}") == tower);
  CHECK(frozen("{freeze_vision_tower: false}").empty());
  const auto both = frozen("{freeze_vision_tower: true, freeze_language_model: true}");
  CHECK(both.size() == 84);
  CHECK(!both.contains("lm_head.weight"));
  CHECK(frozen("{freeze_modules: [{glob: '*layers.0*'}]}").size() == 25);
  CHECK(frozen("{freeze_vision_tower: true, unfreeze_modules: [{glob: '*.embeddings*'}]}").size() == 52);
}

TEST_CASE("memory and time count the tower as trained or as frozen", "[plan][vision]") {
  const auto whole = test::planned(recipe("device: cpu\n")),
             frozen = test::planned(recipe("device: cpu\nfreeze_config: {freeze_vision_tower: true}\n"));
  std::int64_t tower = 0, stored = 0;
  for (const auto& parameter : arch::parameters(whole.model->layout)) {
    stored += parameter.shape.elements();
    if (parameter.fqn.starts_with("model.vision_tower.")) tower += parameter.shape.elements();
  }
  const auto steady = [](const estimate::EstimatedPlan& plan) {
    return plan.estimate->memory.ranks.front().phases[static_cast<std::size_t>(estimate::Phase::kSteady)];
  };
  CHECK(whole.estimate->memory.ranks.front().parameters == stored);
  CHECK(frozen.estimate->memory.ranks.front().parameters == stored);
  // Two moments and a gradient in float32; and no backward pass through the tower, which keeps nothing for one.
  CHECK(steady(whole).optimizer - steady(frozen).optimizer == Approx(8.0 * static_cast<double>(tower)));
  CHECK(steady(whole).gradients - steady(frozen).gradients == Approx(4.0 * static_cast<double>(tower)));
  CHECK(steady(whole).activations > steady(frozen).activations);
  CHECK(whole.estimate->time.flops > frozen.estimate->time.flops);
  for (const auto& warning : whole.warnings) CHECK(warning.id != "multimodal");
  CHECK(whole.unsupported.empty());
}

TEST_CASE("keys for pictures do nothing for a language model, and its class must fit", "[plan][vision]") {
  const std::string text =
      "model: {config: {model_type: llama, vocab_size: 64, hidden_size: 16, intermediate_size: 32, num_hidden_layers: "
      "2, num_attention_heads: 2}}\ndataset: {_target_: mock, vocab_size: 64, seq_length: 8}\n";
  CHECK(problems_of(text + "processor: {}\nfreeze_config: {freeze_vision_tower: true, freeze_language_model: false}\n")
            .second ==
        "no-effect processor, no-effect freeze_config.freeze_vision_tower, no-effect "
        "freeze_config.freeze_language_model");
  auto pictures = text;
  pictures.replace(0, 8, "model: {_target_: nemo_automodel.NeMoAutoModelForImageTextToText.from_config, ");
  CHECK(problems_of(pictures).first == "unsupported-model model._target_");
}

}  // namespace
}  // namespace automodel::plan
