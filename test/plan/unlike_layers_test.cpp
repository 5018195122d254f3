// Models whose layers differ in their heads, have inputs of their own or use keys of others: sizes, small copies, and
// meshes on which they are not trained.
#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "golden_file.h"
#include "plan/catalogue.h"
#include "plan/shrink.h"
#include "planned.h"

namespace automodel::plan {
namespace {

/// Gemma 4 with sizes like E2B's, and with experts like 26B-A4B's. `more`: further keys; `width`: of a full-attention
/// layer's heads.
std::string small(const std::string& more = "", int width = 512) {
  return "model_type: gemma4_text, hidden_size: 1536, num_hidden_layers: 35, intermediate_size: 6144, "
         "num_attention_heads: 8, num_key_value_heads: 1, head_dim: 256, num_kv_shared_layers: 20, global_head_dim: " +
         std::to_string(width) + ", use_double_wide_mlp: true, layer_types: [" +
         [] {
           std::string out;
           for (int layer = 0; layer < 35; ++layer)
             out += std::string(layer == 0 ? "" : ", ") + (layer % 5 == 4 ? "full_attention" : "sliding_attention");
           return out;
         }() +
         "]" + more;
}
const std::string kExperts =
    "model_type: gemma4_text, hidden_size: 2816, num_hidden_layers: 30, intermediate_size: 2112, num_attention_heads: "
    "16, num_key_value_heads: 8, head_dim: 256, global_head_dim: 512, num_global_key_value_heads: 2, attention_k_eq_v: "
    "true, hidden_size_per_layer_input: 0, enable_moe_block: true, num_experts: 128, top_k_experts: 8, "
    "moe_intermediate_size: 704";

std::string recipe(const std::string& config, const std::string& distributed) {
  return fmt::format(
      "device: cpu\nmodel: {{torch_dtype: bfloat16, config: {{{}}}}}\ndistributed: {{{}}}\ndataset: {{_target_: mock, "
      "seq_length: 512}}\nstep_scheduler: {{global_batch_size: 16, local_batch_size: 4}}\n",
      config, distributed);
}

std::string refusal(const std::string& config, const std::string& distributed, int ranks) {
  const auto loaded = config::read_recipe(recipe(config, distributed), "recipe.yaml", {}, {});
  INFO(to_text(loaded.problems));
  REQUIRE(loaded.problems.empty());
  std::string out;
  for (const auto& problem : estimate::make_plan(loaded, {.world_size = ranks, .training = true}).problems)
    out += std::string(problem.id) + " " + problem.key + ": " + problem.message + "\n";
  return out;
}

TEST_CASE("plans of Gemma 4 count the parameters of transformers' modules", "[plan]") {
  // 4,628,569,344 and 25,233,141,760 parameters, and a stored factor of each layer's output.
  for (const auto& [config, layers, parameters] : std::vector<std::tuple<std::string, int, std::int64_t>>{
           {small(), 35, 4'628'569'344}, {kExperts, 30, 25'233'141'760}}) {
    const auto plan = test::planned(recipe(config, "strategy: ddp"));
    CHECK(plan.estimate->memory.ranks.front().parameters == parameters + layers);
    CHECK(plan.unsupported.empty());
  }
}

TEST_CASE("memory and time know which layers are narrower, have keys, or have an input", "[plan]") {
  const auto of = [](const std::string& more, int width = 512) {
    return test::planned(recipe(small(more, width), "strategy: ddp"));
  };
  const auto activations = [](const estimate::EstimatedPlan& plan) {
    return plan.estimate->memory.ranks.front().phases[static_cast<std::size_t>(estimate::Phase::kSteady)].activations;
  };
  const auto usual = of(""), own = of(", hidden_size_per_layer_input: 0"), narrow = of("", 256);
  CHECK(activations(usual) > activations(own));
  CHECK(activations(usual) > activations(narrow));
  CHECK(usual.estimate->time.flops > own.estimate->time.flops);
  CHECK(usual.estimate->time.flops > narrow.estimate->time.flops);
}

TEST_CASE("meshes that divide unlike layers are refused where they are set", "[plan]") {
  const std::string pipeline = "strategy: ddp, pp_size: 2, pipeline: {pp_schedule: 1F1B, pp_microbatch_size: 1}";
  CHECK(refusal(small(), "strategy: fsdp2", 2).empty());
  CHECK(refusal(kExperts, "strategy: fsdp2, ep_size: 2", 2).empty());
  CHECK(refusal(kExperts, pipeline, 2).empty());
  for (const auto& config : {small(), kExperts}) {  // with one key-value head, which ranks share, and with 8 and 2
    CHECK(refusal(config, "strategy: fsdp2, tp_size: 2, sequence_parallel: true", 2).empty());
    CHECK(refusal(config, "strategy: fsdp2, cp_size: 2", 2).empty());
  }
  CHECK(refusal(small(), "strategy: fsdp2, tp_size: 4", 4).empty());
  CHECK(refusal(kExperts, "strategy: fsdp2, tp_size: 4", 4) ==
        "unsupported-option distributed.tp_size: gemma4_text: its layers differ in their heads, and tp_size does not "
        "divide those of all of them\n");
  CHECK_THAT(refusal(kExperts, "cp_size: 4}\nmodel_parallel: {cp_comm_type: a2a", 4),
             Catch::Contains("2 key-value heads per rank are not divisible by the 4 ranks that exchange heads"));
  CHECK_THAT(refusal(kExperts, "tp_size: 2, cp_size: 2}\nmodel_parallel: {cp_comm_type: a2a", 4),
             Catch::Contains("1 key-value heads per rank are not divisible by the 2 ranks that exchange heads"));
  const auto both = refusal(small(), pipeline, 2);
  CHECK_THAT(both, Catch::Contains("unsupported-option distributed.pp_size: gemma4_text: every layer has an input"));
  CHECK_THAT(both, Catch::Contains("unsupported-option distributed.pp_size: gemma4_text: its last layers use keys"));
}

TEST_CASE("meshes that would divide compressed attention are refused, pipelines carry all residual streams", "[plan]") {
  const std::string config =
      "model_type: deepseek_v4, hidden_size: 64, moe_intermediate_size: 32, num_hidden_layers: 4, "
      "num_attention_heads: 4, head_dim: 32, qk_rope_head_dim: 8, q_lora_rank: 16, o_lora_rank: 8, o_groups: 2, "
      "n_routed_experts: 4, num_experts_per_tok: 2, index_n_heads: 2, index_head_dim: 16, compress_ratios: [0, 4, 128, "
      "4], hc_mult: 3, vocab_size: 512";
  CHECK(refusal(config, "tp_size: 2", 2) ==
        "unsupported-option distributed.tp_size: deepseek_v4: all heads share one key, and its attention is whole on "
        "every rank\n");
  CHECK(refusal(config, "cp_size: 2", 2) ==
        "unsupported-option distributed.cp_size: deepseek_v4: windows of tokens become entries, which ranks would have "
        "to exchange\n");
  CHECK(refusal(config, "strategy: fsdp2, ep_size: 2", 2).empty());
  const auto plan = test::planned(recipe(config, "pp_size: 2, pipeline: {pp_schedule: 1F1B, pp_microbatch_size: 1}"),
                                  {.world_size = 2});
  const auto& stages = plan.pipeline->stages;
  CHECK(stages[0].io.output.shape == arch::Shape{1, 512, 3 * 64});
  CHECK(stages[1].io.input.shape == arch::Shape{1, 512, 3 * 64});
  CHECK(message_widths(plan) == std::vector<std::int64_t>{3 * 64});
}

TEST_CASE("gates of attention's output, and limits behind an activation, keep more for the backward pass", "[plan]") {
  const auto activations = [](const std::string& model, const std::string& more) {
    const auto plan = test::planned(
        recipe("model_type: " + model +
                   ", hidden_size: 256, intermediate_size: 512, num_hidden_layers: 4, num_attention_heads: 4, "
                   "num_key_value_heads: 2, head_dim: 64, vocab_size: 512, moe_intermediate_size: 128, "
                   "num_experts_per_tok: 2" +
                   more,
               "strategy: ddp"));
    return plan.estimate->memory.ranks.front().phases[static_cast<std::size_t>(estimate::Phase::kSteady)].activations;
  };
  const std::string experts = ", n_routed_experts: 8, share_expert_dim: 128, moe_layers_enum: [1, 2]";
  const double usual = activations("step3p5", experts),
               routed = activations("step3p5", experts + ", swiglu_limits: [0, 7, 0, 0]"),
               shared = activations("step3p5", experts + ", swiglu_limits_shared: [0, 7, 0, 0]"),
               dense = activations("step3p5", experts + ", swiglu_limits_shared: [7, 0, 0, 0]");
  constexpr double kTokens = 4 * 512, kBytes = 2, kLimited = 1.5 * 2;  // an activated gate; gate and up within limits
  CHECK(routed - usual == kTokens * kBytes * kLimited * 2 * 128);
  CHECK(shared - usual == kTokens * kBytes * kLimited * 128);
  CHECK(dense - usual == kTokens * kBytes * kLimited * 512);
  const std::string laguna = ", num_experts: 8, shared_expert_intermediate_size: 128, gating: ";
  // The outputs before their gates are kept either way, and of each gate its value before and behind its function.
  CHECK(activations("laguna", laguna + "false") - activations("laguna", laguna + "true") ==
        4 * kTokens * kBytes * 2 * (4 * 64 - 4));
}

TEST_CASE("small copies of models whose layers differ in their heads still do", "[plan]") {
  for (const std::string family : {"gemma4_text_moe", "mimo_v2_flash", "laguna", "step3p5"}) {
    CAPTURE(family);
    auto config = golden::load("hf_families/" + family + ".json")["config"].dump();
    config.back() = ' ';
    const auto loaded = config::read_recipe(recipe(config.substr(1), "strategy: fsdp2"), "recipe.yaml", {}, {});
    const auto whole = estimate::make_plan(loaded, {.world_size = 2, .training = true});
    INFO(to_text(whole.problems));
    REQUIRE(whole.plan);
    const auto copy = estimate::make_plan(shrink(loaded, *whole.plan).mesh, {.world_size = 2, .training = true});
    INFO(to_text(copy.problems));
    REQUIRE(copy.plan);
    const auto& spec = copy.plan->model->spec;
    REQUIRE(spec.full_heads);
    const auto first = std::ranges::find(spec.attention, arch::LayerAttention::kFull) - spec.attention.begin();
    const auto other = std::ranges::find(spec.attention, arch::LayerAttention::kSliding) - spec.attention.begin();
    const auto heads = [&](std::ptrdiff_t layer) {
      const int at = static_cast<int>(layer);
      return std::tuple(spec.heads_of(at), spec.kv_heads_of(at), spec.head_dim_of(at));
    };
    CHECK(heads(first) != heads(other));
    CHECK(spec.head_dim == 8);
  }
}

TEST_CASE("a model of every kind has a small copy on the meshes that take it", "[plan]") {
  std::vector<nlohmann::json> published;  // in sizes that people train, then small ones of other kinds
  for (const auto name : catalogue_names()) published.push_back(nlohmann::json::parse(*find_in_catalogue(name)));
  for (const auto& file : std::filesystem::directory_iterator(golden_folder() + "/hf_families"))
    if (file.path().extension() == ".json")
      published.push_back(golden::load("hf_families/" + file.path().filename().native())["config"]);
  std::set<std::string> kinds;
  int copies = 0;
  for (const auto& each : published) {
    const auto config = each.dump(), name = each["model_type"].get<std::string>();
    if (!kinds.insert(name).second) continue;
    for (const std::string mesh : {"tp_size: 2", "cp_size: 2", "ep_size: 2"}) {
      CAPTURE(name, mesh);
      const auto loaded =
          config::read_recipe(fmt::format("device: cpu\nmodel: {{config: {}}}\ndistributed: {{strategy: fsdp2, {}}}\n"
                                          "dataset: {{_target_: mock, seq_length: 64}}\nhardware: {{memory: 100TiB}}\n",
                                          config, mesh),
                              "recipe.yaml", {}, {});
      const auto whole = estimate::make_plan(loaded, {.world_size = 2, .training = true});
      if (!whole.plan || whole.plan->model->spec.vision) continue;
      const auto copy = estimate::make_plan(shrink(loaded, *whole.plan).mesh, {.world_size = 2, .training = true});
      INFO(to_text(copy.problems));
      CHECK(copy.plan);
      ++copies;
    }
  }
  CHECK(copies > 130);
}

TEST_CASE("small copies of models whose index chooses blocks still choose among more tokens", "[plan]") {
  const auto copied = [](const nlohmann::json& config, const std::string& mesh) {
    auto text = config.dump();
    text.back() = ' ';
    const auto loaded = config::read_recipe(recipe(text.substr(1), mesh), "recipe.yaml", {}, {});
    const auto whole = estimate::make_plan(loaded, {.world_size = 2, .training = true});
    INFO(to_text(whole.problems));
    REQUIRE(whole.plan);
    auto copy = estimate::make_plan(shrink(loaded, *whole.plan).mesh, {.world_size = 2, .training = true});
    INFO(to_text(copy.problems));
    REQUIRE(copy.plan);
    return std::pair(copy.plan->model->spec, copy.plan->batch.length);
  };
  auto config = golden::load("hf_families/minimax_m3.json")["config"];
  const auto [spec, length] = copied(config, "strategy: fsdp2");
  CHECK(spec.index->layers == std::vector{false, true, true});
  CHECK(std::pair(spec.index->block, spec.index->top_k) == std::pair(2, 4));
  CHECK(length > spec.index->top_k);
  CHECK(spec.moe->shared_ffn < 24);
  // Context-parallel ranks divide heads, or what is seen whole.
  config["sparse_attention_config"]["sparse_topk_blocks"] = 1024;
  auto tokens = golden::load("hf_families/deepseek_v32.json")["config"], odd = tokens;
  odd["num_attention_heads"] = odd["num_key_value_heads"] = 3;
  for (auto* each : {&tokens, &odd}) (*each)["index_topk"] = 1024;
  for (const auto& [each, chooses] : {std::pair(config, true), {tokens, true}, {odd, false}}) {
    const auto [divided, seen] = copied(each, "strategy: fsdp2, cp_size: 2");
    CHECK((divided.index->top_k < seen) == chooses);
  }
}

TEST_CASE("adapters leave out the index of compressed attention and what groups of heads share", "[plan]") {
  const auto plan = test::planned(
      "model: {pretrained_model_name_or_path: deepseek-ai/DeepSeek-V4-Flash}\ndataset: {_target_: mock, seq_length: "
      "512}\npeft: {target_modules: ['*wq_b', '*wkv', '*wo_a', '*weights_proj']}\n");
  const auto& names = plan.adapters->spec.weights;
  const auto any = [&](std::string_view part) {
    return std::ranges::any_of(names, [&](const auto& name) { return name.find(part) != std::string::npos; });
  };
  CHECK((any("layers.2.attn.wq_b") && any("layers.2.attn.compressor.wkv") && any("layers.0.attn.wkv")));
  CHECK_FALSE((any("indexer") || any("wo_a")));
}

}  // namespace
}  // namespace automodel::plan
