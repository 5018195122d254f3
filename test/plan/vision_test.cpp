// Models with a vision tower: which are trained, with which parameters, what is frozen, and what is refused.
#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "arch/families.h"
#include "arch/hf_config.h"
#include "arch/modules.h"
#include "estimate/estimated_plan.h"
#include "estimate/search.h"
#include "golden_folder.h"
#include "plan/catalogue.h"
#include "plan/model_names.h"
#include "plan/saved_config.h"
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

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
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

const std::string kSections = R"("rope_scaling": {"mrope_section": [2, 1, 1]})";
/// A tiny Qwen, with more keys of its text part and of its tower.
std::string qwen(const std::string& kind, const std::string& text, const std::string& tower = "") {
  return R"({"model_type": ")" + kind + R"(", "image_token_id": 9, "text_config": {"model_type": ")" + kind +
         R"(_text", )" + kSizes + R"(, "head_dim": 8, )" + text +
         R"(}, "vision_config": {"hidden_size": 8, "intermediate_size": 8,
         "depth": 2, "num_heads": 2, "patch_size": 4, "out_hidden_size": 8, "deepstack_visual_indexes": [0],
         "fullatt_block_indexes": [1], "num_position_embeddings": 16)" +
         tower + "}}";
}

/// A tiny Mistral 3, with more keys of its tower and of the model.
std::string mistral(const std::string& decoder, const std::string& tower = "", const std::string& rest = "") {
  return R"({"model_type": "mistral3", "text_config": {"model_type": ")" + decoder + R"(", )" + kSizes +
         R"(}, "vision_config": {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
         "num_attention_heads": 2, "patch_size": 4)" +
         tower + "}" + rest + "}";
}

/// A tiny Muse-Glimmer, with more keys of its tower and of the model.
std::string muse(const std::string& decoder, const std::string& tower = "", const std::string& rest = "") {
  return R"({"model_type": "muse_glimmer", "image_token_id": 9, "out_hidden_size": 32, "text_config": {"model_type": ")" +
         decoder + R"(", )" + kSizes + R"(}, "vision_config": {"hidden_size": 8, "intermediate_size": 8,
         "num_hidden_layers": 6, "num_attention_heads": 2, "patch_size": 4)" +
         tower + "}" + rest + "}";
}

TEST_CASE("Muse-Glimmer is trained, with the parameters of transformers' modules", "[plan][vision]") {
  const auto parsed = arch::parse_hf_config(muse("muse_glimmer_text"), "config.json", {});
  REQUIRE(parsed.spec);
  const auto& vision = *parsed.spec->vision;
  CHECK(vision.whole_layers == std::vector{3, 5});
  CHECK(std::tuple(vision.table, vision.window, vision.merge, vision.frames) == std::tuple(32, 32, 2, 2));
  CHECK(std::tuple(vision.theta, vision.projector_width) == std::tuple(1e4, 4096));
  // Of Muse-Glimmer-30B: 1,852,639,744 parameters of the tower and 69,206,016 behind it, by transformers' modules.
  const auto text = *find_in_catalogue("meta-models/Muse-Glimmer-30B");
  const auto published = arch::parse_hf_config(text, "catalogue", {});
  REQUIRE(published.spec);
  const ModelChoice model{
      .spec = *published.spec, .layout = arch::layout_of(*published.spec), .config_text = std::string(text)};
  std::vector<std::int64_t> found;
  for (const auto& tower : towers_of(model)) found.push_back(tower.parameters.value_or(0));
  CHECK(found == std::vector<std::int64_t>{1852639744, 6144 * 4096 + 4096 * 4096, 4096 * 6656});
}

TEST_CASE("Mistral 3 is trained, with the parameters of transformers' modules", "[plan][vision]") {
  CHECK(why_not(mistral("mistral")).empty());
  CHECK(why_not(mistral("ministral3")).empty());
  // Sizes of Mistral-Small-3.1-24B: 24,011,361,280 parameters by transformers' modules, of them 23,572,403,200 of
  // the decoder.
  const auto parsed = arch::parse_hf_config(
      R"({"model_type": "mistral3", "image_token_index": 10, "multimodal_projector_bias": false, "spatial_merge_size": 2,
          "vision_feature_layer": -1, "text_config": {"model_type": "mistral", "hidden_size": 5120, "head_dim": 128,
          "intermediate_size": 32768, "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8,
          "vocab_size": 131072, "tie_word_embeddings": false}, "vision_config": {"model_type": "pixtral", "hidden_size": 1024,
          "image_size": 1540, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24,
          "patch_size": 14, "hidden_act": "silu", "rope_theta": 10000.0}, "tie_word_embeddings": false})",
      "config.json", {});
  INFO(to_text(parsed.errors));
  REQUIRE(parsed.spec);
  CHECK(parsed.spec->plan_only.empty());
  std::int64_t all = 0, tower = 0, counted = 0;
  for (const auto& parameter : arch::parameters(*parsed.spec)) {
    all += parameter.shape.elements();
    if (parameter.role == arch::Role::kTower) tower += parameter.shape.elements();
  }
  for (const auto& each : parsed.towers) counted += each.parameters.value_or(0);
  CHECK(all == 24'011'361'280);
  CHECK(tower == 24'011'361'280 - 23'572'403'200);
  CHECK(counted == tower);
}

/// A tiny Gemma 4, with more keys of its tower.
std::string gemma4(const std::string& decoder, const std::string& tower = "", const std::string& rest = "") {
  return R"({"model_type": "gemma4", "image_token_id": 9, "text_config": {"model_type": ")" + decoder + R"(", )" +
         kSizes + R"(, "head_dim": 8, "global_head_dim": 8, "hidden_size_per_layer_input": 0},
         "vision_config": {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
         "num_key_value_heads": 2, "head_dim": 4, "patch_size": 4)" +
         tower + "}" + rest + "}";
}

TEST_CASE("Gemma 4 is trained, with the parameters of transformers' modules", "[plan][vision]") {
  CHECK(why_not(gemma4("gemma4_text")).empty());
  for (const auto& [family, parameters] :
       {std::pair<std::string, std::int64_t>{"gemma4", 206'928}, {"gemma4_moe", 105'544}}) {
    INFO(family);
    const auto name = golden_folder() + "/vlm/" + family + "/config.json";
    const auto parsed = arch::parse_hf_config(text_of(name), name, {});
    REQUIRE(parsed.spec);
    std::int64_t trained = 0;
    for (const auto& parameter : arch::parameters(*parsed.spec))
      if (parameter.trainable && parameter.tied_to.empty()) trained += parameter.shape.elements();
    CHECK(trained == parameters);
    CHECK(parsed.spec->vision->both_ways == (family == "gemma4_moe"));
  }
}

TEST_CASE("Gemma 4's towers have the parameters of transformers' modules", "[plan][vision]") {
  // Sizes like E2B's and 31B's, counted in transformers 5.24: the tower, its embedder, and stored limits and factors.
  const std::string small = R"("hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 16,
      "num_attention_heads": 12, "num_key_value_heads": 12, "head_dim": 64, "use_clipped_linears": true)";
  const std::string large = R"("hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
      "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 72, "standardize": true)";
  for (const auto& [tower, width, trained, stored] : {std::tuple(small, 1536, 167'364'608 + 1'179'648, 448),
                                                      std::tuple(large, 2816, 569'548'080 + 3'244'032, 2304)}) {
    const auto parsed = arch::parse_hf_config(
        fmt::format(R"({{"model_type": "gemma4", "text_config": {{"model_type": "gemma4_text", "hidden_size": {},
            "intermediate_size": 64, "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 1,
            "head_dim": 256, "hidden_size_per_layer_input": 0}}, "vision_config": {{"patch_size": 16, {}}}}})",
                    width, tower),
        "config.json", {});
    INFO(to_text(parsed.errors));
    REQUIRE(parsed.spec);
    std::int64_t own = 0, buffers = 0;
    for (const auto& parameter : arch::parameters(*parsed.spec))
      if (parameter.role == arch::Role::kTower) (parameter.trainable ? own : buffers) += parameter.shape.elements();
    CHECK(own == trained);
    CHECK(buffers == stored);
  }
}

TEST_CASE("Qwen's, Gemma's and Mistral's towers are read as published folders and transformers spell them",
          "[plan][vision]") {
  for (const std::string family : {"qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "gemma3",
                                   "gemma4", "gemma4_moe", "mistral3", "muse_glimmer", "step3p7", "minimax_m3_vl"}) {
    INFO(family);
    const auto file = golden_folder() + "/vlm/" + family + "/config";
    const auto read = [&](const std::string& name) {
      const auto parsed = arch::parse_hf_config(text_of(name), name, {});
      INFO(to_text(parsed.errors));
      REQUIRE(parsed.spec);
      CHECK(parsed.spec->plan_only.empty());
      // Towers by their sizes (towers.h) and by their parameters have the same number of weights.
      std::int64_t elements = 0, counted = 0;
      for (const auto& parameter : arch::parameters(*parsed.spec))
        if (parameter.role == arch::Role::kTower) elements += parameter.shape.elements();
      const ModelChoice model{
          .spec = *parsed.spec, .layout = arch::layout_of(*parsed.spec), .config_text = text_of(name)};
      for (const auto& tower : towers_of(model)) counted += tower.parameters.value_or(0);
      CHECK(elements == counted);
      return *parsed.spec;
    };
    const auto spec = read(file + ".json");
    if (std::ifstream(file + ".published.json")) CHECK(read(file + ".published.json") == spec);
  }
  CHECK(why_not(qwen("qwen3_vl", kSections)).empty());
  CHECK(why_not(qwen("qwen2_5_vl", kSections)).empty());
}

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
                "vision_config": {"model_type": "dinov2", "hidden_size": 8}})",
           "vision tower is a dinov2"},
          {R"({"model_type": "llava", "text_config": {"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 1, "vocab_size": 40000, "n_positions": 64}, "vision_config": {
                "model_type": "clip_vision_model", "hidden_size": 8, "image_size": 8, "intermediate_size": 8,
                "num_attention_heads": 1, "num_hidden_layers": 2, "patch_size": 4}})",
           "decoder is a gpt2"},
          {R"({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", )" + kSizes + R"(},
                "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 8, "image_size": 12, "intermediate_size": 8,
                "num_attention_heads": 1, "num_hidden_layers": 2, "patch_size": 4}})",
           "3 x 3 patches cannot be averaged to 256 tokens"},
          {R"({"model_type": "paligemma", "text_config": {"model_type": "gemma", )" + kSizes + R"(},
                "vision_config": {"model_type": "siglip_vision_model"}})",
           "no paligemma is trained with pictures"},
          {mistral("mistral", R"(, "hidden_act": "relu")"), "activation is relu"},
          {mistral("mistral", R"(, "num_channels": 1)"), "3 channels"},
          {mistral("mistral", R"(, "attention_dropout": 0.1)"), "dropout"},
          {mistral("mistral", R"(, "num_attention_heads": 4)"), "rotated by two axes"},
          {mistral("mistral", R"(, "rope_theta": 0.5)"), "rope_theta"},
          {mistral("mistral", R"(, "model_type": "siglip_vision_model")"), "vision tower is a siglip_vision_model"},
          {mistral("mistral", "", R"(, "vision_feature_layer": 2)"), "vision_feature_layer"},
          {mistral("mistral", "", R"(, "vision_feature_layer": [-1])"), "several layers"},
          {mistral("mistral", "", R"(, "projector_hidden_act": "relu")"), "projector's activation"},
          {mistral("mistral", "", R"(, "spatial_merge_size": 16384)"), "larger than pictures"},
          {mistral("llama"), "its decoder is a llama"},
          {muse("llama"), "its decoder is a llama"},
          {muse("muse_glimmer_text", R"(, "model_type": "pixtral")"), "vision tower is a pixtral"},
          {muse("muse_glimmer_text", R"(, "pos_emb_width": 31)"), "32 x 31, not square"},
          {muse("muse_glimmer_text", R"(, "merge_size": 3)"), "rows of 72 numbers, the projector takes 32"},
          {muse("muse_glimmer_text", R"(, "num_attention_heads": 4)"), "rotated by two axes"},
          {muse("muse_glimmer_text", R"(, "hidden_act": "silu")"), "tower's activation is silu"},
          {muse("muse_glimmer_text", "", R"(, "projector_hidden_act": "silu")"), "projector's activation is silu"},
          {muse("muse_glimmer_text", R"(, "rope_parameters": {"rope_type": "default"})"), "rope_type is default"},
          {muse("muse_glimmer_text", R"(, "rope_parameters": {"rope_theta": 1})"), "rope_theta"},
          {muse("muse_glimmer_text", R"(, "layer_types": ["full_attention"])"), "not one a layer"},
          {muse("muse_glimmer_text", R"(, "num_hidden_layers": 1, "layer_types": ["sliding_attention"])"),
           "a layer of its tower is a sliding"},
          {gemma4("llama"), "its decoder is a llama"},
          {gemma4("gemma4_text", R"(, "model_type": "siglip_vision_model")"), "vision tower is a siglip_vision_model"},
          {gemma4("gemma4_text", R"(, "head_dim": 8)"), "not as wide as its rows"},
          {gemma4("gemma4_text", R"(, "num_key_value_heads": 1)"), "share keys"},
          {gemma4("gemma4_text", R"(, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 2)"),
           "rotated by two axes"},
          {gemma4("gemma4_text", R"(, "hidden_activation": "silu")"), "activation is silu"},
          {gemma4("gemma4_text", R"(, "attention_bias": true)"), "has biases"},
          {gemma4("gemma4_text", R"(, "attention_dropout": 0.1)"), "dropout"},
          {gemma4("gemma4_text", R"(, "rope_parameters": {"rope_type": "yarn"})"), "rope_type is yarn"},
          {gemma4("gemma4_text", R"(, "rope_parameters": {"rope_theta": 1})"), "rope_theta"},
          {qwen("qwen3_vl", R"("rope_scaling": {"mrope_section": [1, 1]})"), "no mrope_section"},
          {qwen("qwen3_vl", kSections, R"(, "out_hidden_size": 16)"), "rows of 16 numbers, the decoder takes 8"},
          {qwen("qwen3_vl", kSections, R"(, "deepstack_visual_indexes": [0, 9])"), "a layer that the tower lacks"},
          {qwen("qwen3_vl", kSections, R"(, "num_position_embeddings": 5)"), "not a square"},
          {qwen("qwen3_vl", kSections, R"(, "in_channels": 1)"), "3 channels"},
          {qwen("qwen2_5_vl", kSections, R"(, "window_size": 4)"), "smaller than a row"},
          {qwen("qwen2_5_vl", kSections, R"(, "hidden_act": "gelu")"), "activation is gelu"}}) {
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

/// With dataset.cache_features.
std::string with_features(const std::string& value, const std::string& sections = "") {
  auto out = recipe(sections);
  const std::string file = "/samples.jsonl";
  return out.replace(out.find(file), file.size(), file + ", cache_features: " + value);
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
           {"fp8: {enabled: true}\n", 1, "fp8"},
           {"optimizer: {_target_: torch.optim.Muon, lr: 0.01}\n", 1, "optimizer"},
           {"generation: {prompts: [a]}\n", 1, "generation"}}) {
    INFO(sections);
    CHECK_THAT(problems_of(recipe(sections), ranks).first, Catch::Contains("unsupported-option " + key));
  }
}

TEST_CASE("ranks divide sequences with pictures, unless a picture's tokens see later ones", "[plan][vision]") {
  const auto divided = [](const std::string& family) {
    auto text = recipe("distributed: {strategy: fsdp2, cp_size: 2}\n");
    return problems_of(text.replace(text.find(kModel), kModel.size(), golden_folder() + "/vlm/" + family), 2).first;
  };
  CHECK(divided("llava").empty());
  CHECK(divided("qwen3_vl").empty());
  CHECK(divided("gemma3") == "unsupported-option distributed.cp_size");
}

TEST_CASE("a teacher sees the pictures that its student sees", "[plan][vision]") {
  auto distilled = [](const std::string& teacher) {
    auto text = recipe("teacher_model: " + teacher + "\n");
    return "recipe: KnowledgeDistillationRecipeForVLM" + text.substr(text.find('\n'));
  };
  const std::string kOther = golden_folder() + "/vlm/mistral3";
  const auto vocab = test::planned(recipe()).model->spec.vocab;
  CHECK(problems_of(distilled("{pretrained_model_name_or_path: " + kModel + "}")).first.empty());
  CHECK(problems_of(distilled(fmt::format("{{config: {{model_type: llama, hidden_size: 8, intermediate_size: 8, "
                                          "num_hidden_layers: 1, num_attention_heads: 1, vocab_size: {}}}}}",
                                          vocab)))
            .first == "size-conflict teacher_model");
  CHECK_THAT(problems_of(distilled("{pretrained_model_name_or_path: " + kOther + "}")).first,
             Catch::Contains("size-conflict teacher_model"));
}

TEST_CASE("packs with pictures are planned with the length of a pack", "[plan][vision]") {
  const auto plan =
      test::planned(recipe("packed_sequence: {pretokenize: true, pack_size: 96, max_length: 48, packing_ratio: 0.9, "
                           "drop_long_samples: true, balance_media_tokens: true, collate_max_length: 96, "
                           "post_tokenize_hook_fn: a.b}\n"));
  CHECK(plan.batch.length == 96);
  std::vector<std::string> ignored;
  for (const auto& each : plan.ignored) ignored.push_back(each.key);
  REQUIRE(plan.unsupported.size() == 1);
  CHECK(plan.unsupported.front().key == "packed_sequence.post_tokenize_hook_fn");
  for (const std::string key : {"collate_max_length", "balance_media_tokens"})
    CHECK(std::ranges::find(ignored, "packed_sequence." + key) != ignored.end());
}

TEST_CASE("a plan without sizes lists what is not done with pictures, by the class of the model", "[plan][vision]") {
  const auto keys = [](const std::string& target) {
    const auto loaded = config::read_recipe("recipe: KnowledgeDistillationRecipeForVLM\nmodel: {_target_: " + target +
                                                ", pretrained_model_name_or_path: some/model}\n"
                                                "teacher_model: {pretrained_model_name_or_path: other/model}\n"
                                                "fp8: {enabled: true}\n"
                                                "dataset: {_target_: mock, vocab_size: 64, seq_length: 16}\n",
                                            "recipe.yaml", {}, {});
    INFO(to_text(loaded.problems));
    REQUIRE(loaded.problems.empty());
    const auto result = estimate::make_plan(loaded, {});
    REQUIRE(result.plan);
    std::vector<std::string> out;
    for (const auto& each : result.plan->unsupported) out.push_back(each.key);
    return out;
  };
  CHECK(keys("nemo_automodel.NeMoAutoModelForImageTextToText.from_pretrained") == std::vector<std::string>{"fp8"});
  CHECK(keys("nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained").empty());
}

TEST_CASE("a class for pictures is planned for a configuration without them, and refused for a run", "[plan][vision]") {
  const std::string text =
      "model: {_target_: nemo_automodel.NeMoAutoModelForImageTextToText.from_config, config: {model_type: llama, "
      "hidden_size: 8, intermediate_size: 8, num_hidden_layers: 1, num_attention_heads: 1, vocab_size: 64}}\n"
      "dataset: {_target_: mock, vocab_size: 64, seq_length: 16}\n";
  const auto plan = test::planned(text);
  REQUIRE(plan.unsupported.size() == 1);
  CHECK(plan.unsupported[0].key == "model._target_");
  CHECK(problems_of(text).first == "unsupported-model model._target_");
}

TEST_CASE("adapters are put on a tower's linear modules, by NeMo AutoModel's patterns", "[plan][vision]") {
  const auto weights = [](const std::string& peft, const std::string& sections = "") {
    const auto plan = test::planned(recipe("device: cpu\npeft: {dim: 4, " + peft + "}\n" + sections));
    std::map<std::string, int> out;  // by tower
    for (const auto& name : plan.adapters->spec.weights) {
      ++out[name.substr(0, name.find('.', name.find('.') + 1))];
      CHECK(!name.ends_with("_embedding.weight"));
      CHECK(name.find("vision_tower.encoder.layers.2.") == name.npos);  // which never runs
    }
    return out;
  };
  using Counts = std::map<std::string, int>;
  const std::string tower = "model.vision_tower", projector = "model.multi_modal_projector",
                    decoder = "model.language_model";
  CHECK(weights("target_modules: ['*_proj']") == Counts{{tower, 8}, {decoder, 21}});
  CHECK(weights("match_all_linear: true") == Counts{{tower, 12}, {projector, 2}, {decoder, 21}, {"lm_head.weight", 1}});
  CHECK(weights("target_modules: ['*language_model*_proj']") == Counts{{decoder, 21}});
  CHECK(weights("exclude_modules: ['*vision*', '*visual*', '*lm_head*']") == Counts{{projector, 2}, {decoder, 21}});
  const auto warnings = [](const std::string& sections) { return problems_of(recipe(sections)).second; };
  const std::string all = "peft: {dim: 4, match_all_linear: true}\n";
  CHECK(warnings(all).empty());
  CHECK(warnings("peft: {dim: 4, exclude_modules: ['*vision_tower*', '*lm_head*', '*visual*']}\n") ==
        "no-effect peft.exclude_modules");  // of a pattern for other towers
  // NeMo AutoModel freezes what it has just put there, too.
  CHECK(weights("match_all_linear: true", "freeze_config: {}\n") ==
        Counts{{projector, 2}, {decoder, 21}, {"lm_head.weight", 1}});
  CHECK(warnings(all + "freeze_config: {}\n") == "no-effect freeze_config.freeze_vision_tower");
  const std::string language = "freeze_config: {freeze_vision_tower: false, freeze_language_model: true}\n";
  CHECK(weights("match_all_linear: true", language) == Counts{{tower, 12}, {projector, 2}, {"lm_head.weight", 1}});
  CHECK(warnings(all + language) == "no-effect freeze_config.freeze_language_model");
  CHECK(problems_of(recipe("peft: {dim: 4, target_modules: ['*vision*']}\nfreeze_config: {}\n")).first ==
        "adapter-target peft.target_modules");
  CHECK(problems_of(recipe("peft: {dim: 4, dropout: 0.1, target_modules: ['*vision*']}\n")).first ==
        "adapter-target peft.target_modules");
  CHECK(problems_of(recipe("peft: {dim: 4, dropout: 0.1, target_modules: ['*language*_proj']}\n")).first.empty());
}

TEST_CASE("the PEFT library is given names that no other module of a tower has", "[plan][vision]") {
  const auto modules = [](const std::string& pattern, const std::string& family) {
    auto text = recipe("device: cpu\npeft: {dim: 4, target_modules: ['" + pattern + "']}\n");
    return test::planned(text.replace(text.find(kModel), kModel.size(), golden_folder() + "/vlm/" + family))
        .adapters->modules;
  };
  using Names = std::vector<std::string>;
  CHECK(modules("*language_model*.q_proj", "llava").front() == "model.language_model.layers.0.self_attn.q_proj");
  CHECK(modules("*.down_proj", "llava") == Names{"down_proj"});
  const auto found = modules("*.blocks.*.proj', '*.o_proj", "qwen3_vl");
  CHECK(found.front() == "model.visual.blocks.0.attn.proj");  // not patch_embed.proj
  CHECK(found.back() == "o_proj");
}

TEST_CASE("memory and time count a tower's adapters", "[plan][vision]") {
  const auto with = [](const std::string& patterns) {
    return test::planned(with_features("false", "device: cpu\npeft: {dim: 4, target_modules: [" + patterns + "]}\n"));
  };
  const std::string decoder = "'*language_model*.q_proj'";
  const auto less = with(decoder), more = with(decoder + ", '*vision_tower*.fc1'");
  const std::int64_t added = std::int64_t{2} * 4 * (32 + 48);  // two layers of 32 x 48
  CHECK(more.adapters->elements == less.adapters->elements + added);
  const auto ranks = [](const estimate::EstimatedPlan& plan) { return plan.estimate->memory.ranks.front(); };
  const auto steady = [&](const estimate::EstimatedPlan& plan) {
    return ranks(plan).phases[static_cast<std::size_t>(estimate::Phase::kSteady)];
  };
  CHECK(ranks(more).parameters == ranks(less).parameters + added);
  CHECK(steady(more).optimizer - steady(less).optimizer == Approx(8.0 * static_cast<double>(added)));
  CHECK(steady(more).gradients - steady(less).gradients == Approx(4.0 * static_cast<double>(added)));
  CHECK(steady(more).activations > steady(less).activations);
  const auto tower = towers_of(*more.model).front();
  const double rows = static_cast<double>(tower.tokens * more.batch.microbatch);
  const auto flops = [](const estimate::EstimatedPlan& plan) { return plan.pipeline->stages.front().flops; };
  CHECK(flops(more) - flops(less) == Approx(2 * rows * static_cast<double>(added)));
  const auto seconds = [](const estimate::EstimatedPlan& plan) { return plan.estimate->time.stages.front(); };
  const double beside = adapter_flops(more, tower);
  CHECK((seconds(more).backward_weight - seconds(less).backward_weight) /
            (seconds(more).backward_input - seconds(less).backward_input) ==
        Approx(beside / (tower.flops + beside)));
  // The gradients of its rows are now computed, and those of the adapters, but of no weight.
  const auto frozen = [](const estimate::EstimatedPlan& plan) {
    return frozen_flops(plan, plan.pipeline->stages.front().part);
  };
  CHECK(frozen(less) - frozen(more) ==
        Approx(static_cast<double>(more.batch.microbatch) * (2 * tower.flops) - rows * tower.token_flops));
}

TEST_CASE("beside adapters in a tower, weights of the decoder alone are quantized", "[plan][vision]") {
  const auto plan = test::planned(
      recipe("device: cpu\npeft: {dim: 4, match_all_linear: true}\nquantization: {load_in_4bit: true}\n"));
  int packed = 0;
  for (const auto& parameter : plan.adapters->all) {
    packed += parameter.bits > 0;
    CHECK((parameter.bits == 0 || parameter.layer >= 0));
  }
  CHECK(packed == 21);
}

TEST_CASE("what is frozen in front of a tower's adapters is cached", "[plan][vision]") {
  const auto cached = [](const std::string& patterns) {
    const auto plan = test::planned(recipe("device: cpu\npeft: {dim: 4, target_modules: [" + patterns + "]}\n"));
    return !plan.features ? "none" : !plan.features->cached ? "computed" : plan.features->whole ? "whole" : "tower";
  };
  CHECK(cached("'*language_model*.q_proj'") == std::string("whole"));
  CHECK(cached("'*projector*'") == std::string("tower"));
  CHECK(cached("'*vision_tower*.layers.1.*fc1'") == std::string("none"));
  CHECK(problems_of(with_features("true", "peft: {dim: 4, target_modules: ['*vision_tower*']}\n")).first ==
        "unsupported-option dataset.cache_features");
}

TEST_CASE("limits of a resized picture are those of the recipe, for towers that take any size", "[plan][vision]") {
  CHECK(problems_of(recipe("processor: {min_pixels: 64}\n")).second == "no-effect processor.min_pixels");
  const auto any = [&](const std::string& section) {
    auto text = recipe(section);
    const auto at = text.find("vlm/llava");
    return text.replace(at, 9, "vlm/qwen3_vl");
  };
  const auto patches = [&](const std::string& section) {
    return *test::planned(any(section)).model->processor->patches;
  };
  CHECK(patches("").least == 256);
  CHECK(patches("").most == 1280);
  CHECK(patches("processor: {min_pixels: 512, max_pixels: 4096}\n").least == 512);
  CHECK(patches("processor: {max_pixels: 4096}\n").most == 4096);
  auto edge = recipe("processor: {max_pixels: 512}\n");
  edge.replace(edge.find("vlm/llava"), 9, "vlm/mistral3");
  CHECK(problems_of(edge).second == "no-effect processor.max_pixels");
  CHECK(problems_of(any("processor: {min_pixels: 2000}\n")).first == "bad-value processor.min_pixels");
  auto budget = recipe("processor: {max_pixels: 512}\n");
  budget.replace(budget.find("vlm/llava"), 9, "vlm/gemma4");
  CHECK(problems_of(budget).second == "no-effect processor.max_pixels");
  CHECK(problems_of(any(fmt::format("processor: {{pretrained_model_name_or_path: {}}}\n", kModel))).first ==
        "unsupported-model processor.pretrained_model_name_or_path");
  CHECK(
      problems_of(any(fmt::format("processor: {{pretrained_model_name_or_path: {}/vlm/mistral3}}\n", golden_folder())))
          .first == "unsupported-model processor.pretrained_model_name_or_path");
}

TEST_CASE("a search proposes no mesh that pictures do not allow", "[plan][vision]") {
  const auto loaded = config::read_recipe(
      recipe("device: cpu\nstep_scheduler: {global_batch_size: 8, local_batch_size: 2}\n"), "recipe.yaml", {}, {});
  const auto result = estimate::search_plans(loaded, {.world_size = 4});
  CHECK(!result.best.empty());
  for (const auto& candidate : result.best) CHECK(candidate.sizes.cp == 1);
}

/// A recipe for one of the recorded models on two pipeline ranks.
std::string piped(const std::string& family, const std::string& pipeline, const std::string& rest = "") {
  auto text = recipe(
      "device: cpu\nstep_scheduler: {global_batch_size: 4, local_batch_size: 4}\ndistributed: {strategy: "
      "ddp, pp_size: 2, pipeline: {pp_microbatch_size: 1, " +
      pipeline + "}}\n" + rest);
  const std::string from = kModel + "}";
  return text.replace(text.find(from), from.size(), golden_folder() + "/vlm/" + family + "}");
}

TEST_CASE("a pipeline's first stage has the tower, with its memory and time", "[plan][vision]") {
  const auto plan = test::planned(piped("gemma3", "layers_per_stage: [2, 2]"));
  CHECK(plan.unsupported.empty());
  const auto& stages = plan.pipeline->stages;
  std::int64_t tower = 0;
  for (const auto& parameter : arch::parameters(plan.model->layout)) {
    if (parameter.role != arch::Role::kTower) continue;
    tower += parameter.shape.elements();
    CHECK(stages[0].part.has(parameter));
    CHECK(!stages[1].part.has(parameter));
  }
  CHECK(tower > 0);
  // Gemma's head is the embedding, of which the last stage has a copy.
  CHECK(stages[0].part.parameters - stages[1].part.parameters == tower - plan.model->spec.hidden);
  const auto frozen =
      test::planned(piped("gemma3", "layers_per_stage: [2, 2]", "freeze_config: {freeze_vision_tower: true}\n"));
  const auto kept = [](const auto& of, std::size_t rank) {
    return of.estimate->memory.ranks[rank].phases[static_cast<std::size_t>(estimate::Phase::kSteady)].activations;
  };
  CHECK(kept(plan, 0) > kept(frozen, 0));
  CHECK(kept(plan, 1) == kept(frozen, 1));
  CHECK(plan.estimate->time.step > frozen.estimate->time.step);
}

TEST_CASE("Qwen's towers are in a plan's parameters, memory and time", "[plan][vision]") {
  for (const std::string family : {"qwen2_5_vl", "qwen3_vl", "qwen3_5"}) {
    INFO(family);
    const auto plan =
        test::planned(piped(family, family == "qwen2_5_vl" ? "layers_per_stage: [1, 2]" : "layers_per_stage: [1, 3]"));
    std::int64_t stored[2] = {};
    for (const auto& parameter : arch::parameters(plan.model->layout))
      for (int stage : {0, 1})
        if (plan.pipeline->stages[static_cast<std::size_t>(stage)].part.has(parameter))
          stored[stage] += parameter.shape.elements();
    for (std::size_t stage : {0, 1}) {
      CHECK(plan.pipeline->stages[stage].part.parameters == stored[stage]);
      CHECK(plan.estimate->memory.ranks[stage].parameters == stored[stage]);
    }
    const auto towers = towers_of(*plan.model);
    REQUIRE(towers.size() == 1);
    CHECK(towers[0].flops > 0);
    CHECK(plan.pipeline->stages[0].flops > towers[0].flops);
  }
}

TEST_CASE("Qwen3-VL's tower has the published parameters", "[plan][vision]") {
  // Qwen/Qwen3-VL-8B-Instruct: 8,767,123,696, of them 8,190,735,360 of Qwen3-8B.
  const std::string text = R"({"model_type": "qwen3_vl", "text_config": {"model_type": "qwen3_vl_text", "hidden_size":
      4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
      "head_dim": 128, "vocab_size": 151936, "rope_scaling": {"mrope_section": [24, 20, 20]}}, "vision_config": {
      "depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16, "patch_size": 16,
      "out_hidden_size": 4096, "deepstack_visual_indexes": [8, 16, 24]}})";
  const auto parsed = arch::parse_hf_config(text, "config.json", {});
  REQUIRE(parsed.spec);
  const auto towers =
      towers_of(ModelChoice{.spec = *parsed.spec, .layout = arch::layout_of(*parsed.spec), .config_text = text});
  REQUIRE(towers.size() == 1);
  CHECK(*towers[0].parameters == 8'767'123'696 - 8'190'735'360);
  // Two per weight of the patches and of the layers, which the mergers follow.
  CHECK(towers[0].token_flops == 2.0 * (3 * 2 * 16 * 16 * 1152 + 27 * (4 * 1152 * 1152 + 2 * 1152 * 4304)));
}

TEST_CASE("MiniMax-M3's tower and projector have the sizes of transformers' classes", "[plan][vision]") {
  const auto text = *find_in_catalogue("MiniMaxAI/MiniMax-M3");
  const auto parsed = arch::parse_hf_config(text, "config.json", {});
  REQUIRE(parsed.spec);
  const auto towers = towers_of(
      ModelChoice{.spec = *parsed.spec, .layout = arch::layout_of(*parsed.spec), .config_text = std::string(text)});
  REQUIRE(towers.size() == 2);
  CHECK(std::pair(*towers[0].parameters, *towers[1].parameters) == std::pair(631185920L, 234381312L));
  // The first MLP meets four patches for each row of the decoder.
  const double wide = 6144;
  CHECK(towers[1].token_flops == 2 * (4 * (1280 * wide + wide * wide) + 4 * wide * wide + wide * wide));
}

TEST_CASE("Gemma 4 with pictures is refused on meshes that its decoder does not allow", "[plan][vision]") {
  const auto problem = [](const std::string& family, const std::string& mesh) {
    auto text = recipe("device: cpu\ndistributed: {strategy: fsdp2, " + mesh + "}\n");
    const std::string from = kModel + "}";
    return problems_of(text.replace(text.find(from), from.size(), golden_folder() + "/vlm/" + family + "}"), 2).first;
  };
  CHECK(problem("gemma4", "dp_size: 2").empty());
  CHECK(problem("gemma4", "tp_size: 2").empty());
  CHECK(problem("gemma4", "cp_size: 2").empty());
  // A layer has one key-value head and others two; pictures are seen both ways.
  CHECK_THAT(problem("gemma4_moe", "cp_size: 2"), Catch::StartsWith("unsupported-option distributed.cp_size"));
  CHECK_THAT(problem("gemma4_moe", "tp_size: 2"), Catch::StartsWith("unsupported-option distributed.tp_size"));
  CHECK_THAT(problem("gemma4", "pp_size: 2, pipeline: {}"),
             Catch::StartsWith("unsupported-option distributed.pp_size"));
}

TEST_CASE("a model without its audio tower is saved without the tower's configuration", "[plan][vision]") {
  const std::string text = gemma4("gemma4_text", "", R"(, "audio_config": {"hidden_size": 8})");
  const auto parsed = arch::parse_hf_config(text, "config.json", {});
  REQUIRE(parsed.spec);
  const ModelChoice model{.spec = *parsed.spec, .layout = arch::layout_of(*parsed.spec), .config_text = text};
  CHECK(towers_of(model).size() == 2);
  CHECK_THAT(saved_config(model, DType::kFloat32, {}), Catch::Contains("\"audio_config\": null"));
}

TEST_CASE("Gemma 4's tower is in a plan's parameters, memory and time", "[plan][vision]") {
  const auto planned = [](const std::string& sections) {
    auto text = recipe("device: cpu\n" + sections);
    const std::string from = kModel + "}";
    return test::planned(text.replace(text.find(from), from.size(), golden_folder() + "/vlm/gemma4}"));
  };
  const auto whole = planned(""), frozen = planned("freeze_config: {freeze_vision_tower: true}\n");
  CHECK(whole.unsupported.empty());
  std::int64_t stored = 0, tower = 0;
  for (const auto& parameter : arch::parameters(whole.model->layout)) {
    if (!parameter.tied_to.empty()) continue;
    stored += parameter.shape.elements();
    if (parameter.role == arch::Role::kTower) tower += parameter.shape.elements();
  }
  const auto steady = [](const estimate::EstimatedPlan& plan) {
    return plan.estimate->memory.ranks.front().phases[static_cast<std::size_t>(estimate::Phase::kSteady)];
  };
  CHECK(whole.estimate->memory.ranks.front().parameters == stored);
  CHECK(steady(whole).activations > steady(frozen).activations);
  CHECK(steady(whole).optimizer - steady(frozen).optimizer == Approx(8.0 * static_cast<double>(tower)));
  CHECK(whole.estimate->time.step > frozen.estimate->time.step);
  const auto towers = towers_of(*whole.model);
  REQUIRE(towers.size() == 2);
  CHECK(towers[0].tokens == 70 * 9);
  CHECK(towers[1].fqn == "model.embed_vision");
  CHECK(towers[1].tokens == 70);
  CHECK(*towers[1].parameters == 48 * 32);
  const auto& patches = *whole.model->processor->patches;
  CHECK(patches.soft_tokens == 70);
  CHECK(patches.positions == 128);
  CHECK(towers[1].token_flops == 2.0 * 48 * 32);
}

TEST_CASE("each tensor-parallel rank has the whole tower", "[plan][vision]") {
  const std::string mesh = "device: cpu\ndistributed: {strategy: fsdp2, tp_size: 2}\n";
  const auto whole = test::planned(recipe(mesh)),
             frozen = test::planned(recipe(mesh + "freeze_config: {freeze_vision_tower: true}\n"));
  std::int64_t tower = 0;
  for (const auto& parameter : arch::parameters(whole.model->layout))
    if (parameter.fqn.starts_with("model.vision_tower.")) tower += parameter.shape.elements();
  const auto optimizer = [](const auto& of) {
    return of.estimate->memory.ranks.front().phases[static_cast<std::size_t>(estimate::Phase::kSteady)].optimizer;
  };
  CHECK(optimizer(whole) - optimizer(frozen) == Approx(8.0 * static_cast<double>(tower)));
  CHECK(whole.unsupported.empty());
}

TEST_CASE("messages carry a tower's rows to the layers that add them", "[plan][vision]") {
  const auto widths = [](const std::string& pipeline) {
    return message_widths(test::planned(piped("qwen3_vl", pipeline)));
  };
  using Widths = std::vector<std::int64_t>;
  CHECK(widths("layers_per_stage: [2, 2]") == Widths{48});  // behind layers 0 and 1 something is added
  CHECK(widths("layers_per_stage: [1, 3]") == Widths{96});
  CHECK(widths("pp_schedule: Interleaved1F1B, layers_per_stage: 1") == Widths{96, 48, 48});
  CHECK(message_widths(test::planned(recipe())) == Widths{48});
  const auto sent = [](const std::string& pipeline) {
    const auto plan = test::planned(piped("qwen3_vl", pipeline));
    for (const auto& row : plan.estimate->time.traffic)
      if (row.what.starts_with("hidden states")) return row.bytes;
    return 0.0;
  };
  CHECK(sent("layers_per_stage: [1, 3]") == 2 * sent("layers_per_stage: [2, 2]"));
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
  // Of a model that is known by its name, the processor is too.
  const auto known = [](const std::string& pixels) {
    const auto by_name = test::planned(
        "model: {_target_: nemo_automodel.NeMoAutoModelForImageTextToText.from_pretrained, "
        "pretrained_model_name_or_path: Qwen/Qwen3-VL-4B-Instruct}\n"
        "processor: {pretrained_model_name_or_path: Qwen/Qwen3-VL-4B-Instruct" +
        pixels + "}\ndataset: {_target_: mock, vocab_size: 64, seq_length: 16}\n");
    REQUIRE(by_name.model->processor);
    return by_name.model->processor->patches->most_tokens();
  };
  CHECK(known("") == 16384);
  CHECK(known(", max_pixels: 131072") == 131072 / (32 * 32));
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
             frozen =
                 test::planned(with_features("false", "device: cpu\nfreeze_config: {freeze_vision_tower: true}\n"));
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

const std::string kFrozen = "device: cpu\nfreeze_config: {freeze_vision_tower: true}\n";
const std::string kWhole =
    "device: cpu\nfreeze_config: {freeze_modules: [{glob: '*vision*'}, {glob: '*projector*'}]}\n";

TEST_CASE("outputs of a frozen tower are cached where pictures are read more than once", "[plan][vision]") {
  const auto features = [](const std::string& text, const estimate::PlanRequest& request = {}) {
    const auto plan = test::planned(text, request);
    if (!plan.features) return std::string("none");
    const auto& made = *plan.features;
    return fmt::format("{}{}: {}", made.cached ? "cached" : "computed", made.whole ? " whole" : "", made.why);
  };
  CHECK(features(recipe()) == "none");
  CHECK(features(recipe(kFrozen)) == "cached: pictures are read in 10 epochs");
  CHECK(features(recipe(kWhole)) == "cached whole: pictures are read in 10 epochs");
  CHECK(features(recipe(kFrozen + "step_scheduler: {num_epochs: 1}\n")) == "computed: each picture is read once");
  CHECK(features(recipe(kFrozen + "step_scheduler: {max_steps: 9}\n")) ==
        "computed: how often pictures are read is known when the data are open");
  CHECK(features(with_features("true", kFrozen)) == "cached: dataset.cache_features is true");
  CHECK(features(with_features("false", kFrozen)) == "computed: dataset.cache_features is false");
  CHECK(features(recipe("freeze_config: {freeze_modules: [{glob: '*projector*'}]}\n")) == "none");
  // Known once the data are open: how often, and whether the disk has room for 10 pictures of 16 rows of 32 floats.
  const auto known = [](double reads, double room) {
    return estimate::PlanRequest{.features = {PictureFacts{10, 160, reads, room}, {}}};
  };
  CHECK(features(recipe(kFrozen), known(30, 1e9)) == "cached: 10 pictures are read 3 times");
  CHECK(features(recipe(kFrozen), known(10, 1e9)) == "computed: 10 pictures are read 1 times");
  CHECK(features(recipe(kFrozen), known(30, 20480)) == "cached: 10 pictures are read 3 times");
  CHECK(features(recipe(kFrozen), known(30, 20479)) == "computed: the disk has room for 20.0 KiB");
  CHECK(features(recipe(kFrozen), known(30, 0)) ==
        "computed: the folder of the cache cannot be written to, or its disk is full");
  CHECK(features(with_features("true", kFrozen), known(10, 1)) == "cached: dataset.cache_features is true");
  auto mock = recipe(kFrozen + "step_scheduler: {global_batch_size: 2, max_steps: 9}\n");
  const std::string section = "chat, path_or_dataset_id: " + kModel + "/samples.jsonl";
  mock.replace(mock.find(section), section.size(), "mock_pictures, num_samples: 4, num_images_per_sample: 2");
  CHECK(features(mock) == "cached: 8 pictures are read 4.5 times");
}

TEST_CASE("with cached outputs no stage has the tower, and the other way is planned too", "[plan][vision]") {
  const auto pipeline = kWhole +
                        "distributed: {strategy: ddp, pp_size: 2, pipeline: {pp_schedule: 1f1b, "
                        "pp_microbatch_size: 1}}\nstep_scheduler: {local_batch_size: 2}\n";
  const auto cached = test::planned(with_features("true", pipeline)),
             computed = test::planned(with_features("false", pipeline));
  std::int64_t elements = 0;
  for (const auto& parameter : arch::parameters(computed.model->layout))
    if (parameter.role == arch::Role::kTower) elements += parameter.shape.elements();
  const auto& with = cached.pipeline->stages.front();
  const auto& without = computed.pipeline->stages.front();
  CHECK(towers_of(*cached.model, with.part).empty());
  CHECK(towers_of(*computed.model, without.part).size() == 2);
  CHECK(without.part.parameters - with.part.parameters == elements);
  CHECK(cached.estimate->memory.ranks.front().parameters + elements ==
        computed.estimate->memory.ranks.front().parameters);
  CHECK(cached.estimate->time.stages.front().forward < computed.estimate->time.stages.front().forward);
  CHECK(cached.estimate->time.flops < computed.estimate->time.flops);
  for (const auto& [one, other] : {std::pair(&cached, &computed), std::pair(&computed, &cached)}) {
    REQUIRE(one->feature_costs);
    CHECK(one->feature_costs->step == other->estimate->time.step);
    CHECK(one->feature_costs->peak == other->estimate->memory.peak());
    CHECK(one->feature_costs->once > 0);
    CHECK(one->feature_costs->file == 16 * 48 * 4);
  }
  // The projector stays where it is trained.
  const auto half = test::planned(with_features("true", kFrozen));
  const auto towers = towers_of(*half.model, half.pipeline->stages.front().part);
  REQUIRE(towers.size() == 1);
  CHECK(towers.front().projects());
}

TEST_CASE("outputs of a tower are cached only where it is frozen", "[plan][vision]") {
  CHECK(problems_of(with_features("true")).first == "unsupported-option dataset.cache_features");
  CHECK(problems_of(with_features("true", "freeze_config: {freeze_modules: [{glob: '*layers.0*'}]}\n")).first ==
        "unsupported-option dataset.cache_features");
  CHECK(problems_of(with_features("true", kFrozen)).first.empty());
  CHECK(problems_of(with_features("true", kFrozen + "validation_dataset: {_target_: chat, path_or_dataset_id: " +
                                              kModel + "/samples.jsonl, cache_features: false}\n"))
            .first == "bad-value validation_dataset.cache_features");
  auto taught = with_features("true", kFrozen + "teacher_model: {pretrained_model_name_or_path: " + kModel + "}\n");
  taught = "recipe: KnowledgeDistillationRecipeForVLM" + taught.substr(taught.find('\n'));
  CHECK(problems_of(taught).first == "unsupported-option dataset.cache_features");
  // Nor does the plan tell what a cache would cost there.
  taught.replace(taught.find(": true"), 6, ": auto");
  const auto plan = test::planned(taught);
  REQUIRE(plan.features);
  CHECK(plan.features->why == "the tower of teacher_model needs the pixels");
  CHECK(!plan.feature_costs);
  const std::string text =
      "model: {config: {model_type: llama, vocab_size: 64, hidden_size: 16, intermediate_size: 32, num_hidden_layers: "
      "2, num_attention_heads: 2}}\ndataset: {_target_: chat, path_or_dataset_id: x, cache_features: true}\n";
  CHECK_THAT(problems_of(text).second, Catch::Contains("no-effect dataset.cache_features"));
}

TEST_CASE("one folder keeps the outputs of a tower for all data sets", "[plan][vision]") {
  const auto warned = [](const std::string& features, const std::string& sections, const std::string& rest = kFrozen) {
    const auto [problems, warnings] = problems_of(with_features(features, rest + sections));
    CHECK(problems.empty());
    return warnings;
  };
  const auto validation = [](const std::string& name, const std::string& kind, const std::string& folder) {
    return fmt::format("validation_dataset{}: {{_target_: {}, cache_dir: {}}}\n", name, kind, folder);
  };
  const std::string chat = "chat, path_or_dataset_id: " + kModel + "/samples.jsonl", mock = "mock_pictures";
  CHECK(warned("true, cache_dir: a", "").empty());
  CHECK(warned("auto, cache_dir: a", "step_scheduler: {max_steps: 9}\n").empty());
  CHECK(warned("true", validation("", mock, "a")).empty());
  CHECK(warned("true, cache_dir: a", validation("", mock, "a")).empty());
  for (const auto& kind : {chat, mock})
    CHECK(warned("true, cache_dir: a", validation("", kind, "b")) == "no-effect validation_dataset.cache_dir");
  CHECK(warned("true", validation("_x", mock, "a") + validation("_y", mock, "b")) ==
        "no-effect checkpoint.best_metric_key, no-effect validation_dataset_y.cache_dir");
  CHECK(warned("false, cache_dir: a", validation("", mock, "a")) ==
        "no-effect dataset.cache_dir, no-effect validation_dataset.cache_dir");
  CHECK(warned("auto, cache_dir: a", "", "device: cpu\n") == "no-effect dataset.cache_dir");
  auto mixture = recipe(kFrozen);
  const std::string section = "{_target_: " + chat + "}";
  mixture.replace(mixture.find(section), section.size(),
                  "{_target_: mixture, datasets: [{weight: 1, dataset: {_target_: mock_pictures, cache_dir: a}}, "
                  "{weight: 1, dataset: {_target_: mock_pictures, cache_dir: b}}]}");
  CHECK(problems_of(mixture).second == "no-effect dataset.datasets.1.dataset.cache_dir");
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
