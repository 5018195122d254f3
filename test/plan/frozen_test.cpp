// freeze_config: what it marks, what it saves, and what it refuses.
#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "planned.h"
#include "report/plan_text.h"

namespace automodel::plan {
namespace {

using estimate::MemoryShares;
using estimate::Phase;

// Matrices of a layer: q 64x64, k and v 32x64, o 64x64, gate, up and down 160x64; two norms of 64.
constexpr double kLayer = 64 * 64 * 2 + 32 * 64 * 2 + 3 * 160 * 64 + 2 * 64;
constexpr double kTable = 1000 * 64;

std::string text(const std::string& freeze, const std::string& distributed = "strategy: ddp",
                 const std::string& more = "", const std::string& model = "") {
  return fmt::format(
      "device: cpu\nmodel: {{torch_dtype: float32, config: {{model_type: llama, hidden_size: 64, intermediate_size: "
      "160, num_hidden_layers: 4, num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 1000, "
      "max_position_embeddings: 128{}}}}}\ndistributed: {{{}}}\ndataset: {{_target_: mock, seq_length: 32}}\n"
      "step_scheduler: {{global_batch_size: 16, local_batch_size: 8}}\n{}{}",
      model, distributed, freeze.empty() ? "" : "freeze_config: {" + freeze + "}\n", more);
}

/// "id key: message" of the problems.
std::string refusal(const std::string& freeze, const std::string& more = "") {
  const auto loaded = config::read_recipe(text(freeze, "strategy: ddp", more), "recipe.yaml", {}, {});
  std::string out;
  for (const auto& problem : loaded.problems)
    out += std::string(problem.id) + " " + problem.key + ": " + problem.message + "\n";
  if (!loaded.problems.empty()) return out;
  for (const auto& problem : estimate::make_plan(loaded, {}).problems)
    out += std::string(problem.id) + " " + problem.key + ": " + problem.message + "\n";
  return out;
}

const MemoryShares& steady(const estimate::EstimatedPlan& plan) {
  return plan.estimate->memory.ranks.front().phases[static_cast<std::size_t>(Phase::kSteady)];
}

TEST_CASE("freeze_config freezes the modules selected by path or glob and their submodules", "[plan][freeze]") {
  const auto plan = test::planned(
      text("freeze_modules: [{path: model.layers.1}, {glob: '*.layers.[02].*_proj'}], unfreeze_modules: [{glob: "
           "'*.q_proj'}, {path: model.layers.1.mlp}]"));
  REQUIRE(plan.frozen);
  const auto frozen = [&](const std::string& name) { return plan.frozen->names.contains("model.layers." + name); };
  CHECK(frozen("1.self_attn.k_proj.weight"));
  CHECK(frozen("1.input_layernorm.weight"));
  CHECK(frozen("0.mlp.up_proj.weight"));
  CHECK(frozen("2.self_attn.o_proj.weight"));
  CHECK_FALSE(frozen("1.self_attn.q_proj.weight"));
  CHECK_FALSE(frozen("1.mlp.up_proj.weight"));
  CHECK_FALSE(frozen("0.input_layernorm.weight"));
  CHECK_FALSE(frozen("3.mlp.up_proj.weight"));
  CHECK_FALSE(test::planned(text("")).frozen);
}

TEST_CASE("a tied embedding is frozen under either of its names", "[plan][freeze]") {
  for (const char* name : {"model.embed_tokens", "lm_head"}) {
    const auto plan = test::planned(
        text(fmt::format("freeze_modules: [{{path: {}}}]", name), "strategy: ddp", "", ", tie_word_embeddings: true"));
    CHECK(plan.frozen->names == std::set<std::string>{"lm_head.weight", "model.embed_tokens.weight"});
    CHECK(plan.frozen->elements == static_cast<std::int64_t>(kTable));
  }
}

TEST_CASE("frozen parameters have no moments and no gradients in the memory plan", "[plan][freeze]") {
  const auto all = test::planned(text(""));
  const auto some = test::planned(text("freeze_modules: [{path: model.embed_tokens}, {path: model.layers.1}]"));
  CHECK(static_cast<double>(some.frozen->elements) == kTable + kLayer);
  CHECK(steady(all).optimizer - steady(some).optimizer == 2 * 4 * (kTable + kLayer));
  CHECK(steady(all).gradients - steady(some).gradients == 4 * (kTable + kLayer));
  CHECK(steady(all).weights == steady(some).weights);
  CHECK(some.estimate->time.flops < all.estimate->time.flops);
  // The head's weight gradient: 2 per element and token, of 512 tokens.
  const auto flops = [](const std::string& frozen) { return test::planned(text(frozen)).estimate->time.flops; };
  CHECK(flops("") - flops("freeze_modules: [{path: lm_head}]") == Approx(2 * 16 * 32 * kTable));
  CHECK(flops("") - flops("freeze_modules: [{path: model.embed_tokens}]") == Approx(0));
  // Of two tensor-parallel ranks, each has half of a layer's matrices and its whole norms.
  const auto pair = test::planned(text("", "tp_size: 2, dp_size: 1"));
  const auto half = test::planned(text("freeze_modules: [{path: model.layers.1}]", "tp_size: 2, dp_size: 1"));
  CHECK(steady(pair).optimizer - steady(half).optimizer == 2 * 4 * ((kLayer - 128) / 2 + 128));
}

// PyTorch's optimizers leave a weight without a gradient as it is; decay would change one whose gradient is zero.
TEST_CASE("the weights of a token index are frozen, because no gradient reaches them", "[plan][freeze]") {
  const auto recipe = [](const std::string& more) {
    return "device: cpu\nmodel: {torch_dtype: float32, config: {model_type: glm_moe_dsa, hidden_size: 64, "
           "intermediate_size: 96, moe_intermediate_size: 32, num_hidden_layers: 2, num_attention_heads: 8, "
           "num_key_value_heads: 8, vocab_size: 99, max_position_embeddings: 128, n_routed_experts: 4, "
           "num_experts_per_tok: 2, q_lora_rank: 16, kv_lora_rank: 16, qk_nope_head_dim: 8, qk_rope_head_dim: 8, "
           "v_head_dim: 8, index_head_dim: 16, index_n_heads: 2, indexer_types: [full, shared], index_topk: 8}}\n"
           "distributed: {strategy: ddp}\ndataset: {_target_: mock, seq_length: 32}\n"
           "step_scheduler: {global_batch_size: 4, local_batch_size: 2}\n" +
           more;
  };
  const auto plan = test::planned(recipe(""));
  REQUIRE(plan.frozen);
  std::set<std::string> wanted;
  for (const auto* name : {"wq_b.weight", "wk.weight", "k_norm.weight", "k_norm.bias", "weights_proj.weight"})
    wanted.insert(std::string("model.layers.0.self_attn.indexer.") + name);
  CHECK(plan.frozen->names == wanted);
  CHECK(report::to_text(plan).find("the token index among them: no gradient reaches it\n") != std::string::npos);
  CHECK(report::to_text(test::planned(text("freeze_modules: [{path: lm_head}]"))).find("index") == std::string::npos);
  wanted.insert("lm_head.weight");
  CHECK(test::planned(recipe("freeze_config: {freeze_modules: [{path: lm_head}], unfreeze_modules: [{glob: "
                             "'*.indexer'}]}\n"))
            .frozen->names == wanted);
  CHECK_FALSE(test::planned(recipe("peft: {dim: 4}\n")).frozen);
}

TEST_CASE("freeze selectors without a match and sections that freeze everything are refused", "[plan][freeze]") {
  CHECK(refusal("freeze_modules: [{path: embed_tokens}]") ==
        "freeze-target freeze_config.freeze_modules: no module of this model matches 'embed_tokens'\n");
  CHECK(refusal("unfreeze_modules: [{glob: '*vision*'}]") ==
        "freeze-target freeze_config.unfreeze_modules: no module of this model matches '*vision*'\n");
  CHECK(refusal("freeze_modules: [{glob: '*'}]") ==
        "freeze-target freeze_config.freeze_modules: no module of the model would be trained\n");
  CHECK(refusal("freeze_modules: [{}]") ==
        "bad-value freeze_config.freeze_modules[0]: an entry has either a path or a glob\n");
  CHECK(refusal("freeze_modules: [{path: a, glob: b}]").starts_with("bad-value freeze_config.freeze_modules[0]"));
  CHECK(
      refusal("freeze_modules: [{path: lm_head}]", "peft: {dim: 4}\n").starts_with("unsupported-option freeze_config"));
  CHECK(refusal("freeze_vision_tower: true, freeze_embeddings: true").empty());
}

}  // namespace
}  // namespace automodel::plan
