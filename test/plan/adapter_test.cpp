// Which weights get adapters, what is refused, and what adapters cost.
#include <algorithm>
#include <set>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "estimate/activation_memory.h"
#include "estimate/estimated_plan.h"
#include "estimate/memory_plan.h"
#include "plan/adapter_choice.h"
#include "plan/module_pattern.h"

namespace automodel::plan {
namespace {

const std::string kLlama =
    "model_type: llama, hidden_size: 64, intermediate_size: 160, num_hidden_layers: 4, num_attention_heads: 4, "
    "num_key_value_heads: 2, vocab_size: 1000, max_position_embeddings: 128";

config::LoadedRecipe recipe(const std::string& peft, const std::string& model = kLlama,
                            const std::string& distributed = "strategy: ddp", const std::string& dtype = "float32",
                            const std::string& sections = "") {
  return config::read_recipe(
      fmt::format("device: cpu\nmodel: {{config: {{{}}}, torch_dtype: {}}}\ndistributed: {{{}}}\n"
                  "dataset: {{_target_: mock, seq_length: 32}}\n"
                  "step_scheduler: {{global_batch_size: 16, local_batch_size: 8}}\n{}{}",
                  model, dtype, distributed, peft.empty() ? "" : fmt::format("peft: {{{}}}\n", peft), sections),
      "recipe.yaml", {}, {});
}

config::LoadedRecipe recipe_and(const std::string& peft, const std::string& sections) {
  return recipe(peft, kLlama, "strategy: ddp", "float32", sections);
}

estimate::PlanResult result_of(const config::LoadedRecipe& loaded, bool training = false) {
  INFO(to_text(loaded.problems));
  REQUIRE(loaded.problems.empty());
  return estimate::make_plan(loaded, {.training = training});
}

estimate::EstimatedPlan planned(const config::LoadedRecipe& loaded) {
  auto result = result_of(loaded);
  INFO(to_text(result.problems));
  REQUIRE(result.plan);
  REQUIRE(result.plan->estimate);
  return std::move(*result.plan);
}

std::vector<std::string> modules_of(const std::string& peft, const std::string& model = kLlama) {
  return planned(recipe(peft, model)).adapters->modules;
}

/// "id key: message" of the first problem.
std::string refusal(const std::string& peft, const std::string& model = kLlama, bool training = false) {
  const auto result = result_of(recipe(peft, model), training);
  if (result.problems.empty()) return "none";
  const auto& problem = result.problems.front();
  return std::string(problem.id) + " " + problem.key + ": " + problem.message;
}

bool warns(const std::string& peft, const std::string& id, const std::string& text, const std::string& model = kLlama) {
  const auto result = result_of(recipe(peft, model));
  return std::any_of(result.warnings.begin(), result.warnings.end(),
                     [&](const Diagnostic& d) { return d.id == id && d.message.find(text) != std::string::npos; }) ||
         (result.plan &&
          std::any_of(result.plan->warnings.begin(), result.plan->warnings.end(),
                      [&](const Diagnostic& d) { return d.id == id && d.message.find(text) != std::string::npos; }));
}

const std::string kExperts =
    "model_type: qwen3_moe, hidden_size: 64, intermediate_size: 160, num_hidden_layers: 2, num_attention_heads: 4, "
    "num_key_value_heads: 2, head_dim: 16, vocab_size: 1000, max_position_embeddings: 128, num_experts: 8, "
    "num_experts_per_tok: 2, moe_intermediate_size: 32";
const std::string kGpt2 = "model_type: gpt2, n_embd: 64, n_layer: 2, n_head: 4, vocab_size: 1000, n_positions: 128";

}  // namespace

TEST_CASE("adapter module patterns match as in NeMo AutoModel", "[plan][peft]") {
  const std::string module = "model.layers.0.self_attn.q_proj";
  for (const char* pattern : {"*_proj", "*q_proj", "*.q_proj", "*.layers.0.*.q_proj", "model.layers.*.q_proj",
                              ".*q_p.*", "model.*", "model.layers.0.self_attn.q_proj", "*[qk]_proj", "q_proj",
                              "self_attn.q_proj", "model.layers.0.self_attn.q_proj.*"})
    CHECK(ModulePattern::read(pattern)->matches(module));
  for (const char* pattern : {"*.layers.1.*.q_proj", "*k_proj", "proj", "attn.q_proj", "*_pro", "layers"})
    CHECK_FALSE(ModulePattern::read(pattern)->matches(module));
  CHECK_FALSE(ModulePattern::read("*[q"));
}

TEST_CASE("a peft section selects the expected modules", "[plan][peft]") {
  using Names = std::vector<std::string>;
  const Names usual = {"down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"};
  CHECK(modules_of("dim: 4") == usual);
  CHECK(modules_of("exclude_modules: lm_head") == usual);
  CHECK(modules_of("target_modules: [q_proj, '*.v_proj']") == Names{"q_proj", "v_proj"});
  auto all = usual;
  all.insert(all.begin() + 3, "lm_head");
  CHECK(modules_of("match_all_linear: true") == all);
  // Names of some layers' modules cannot be shortened.
  CHECK(modules_of("target_modules: '*.layers.1.*.q_proj'") == Names{"model.layers.1.self_attn.q_proj"});
  CHECK(modules_of("target_modules: [c_attn, c_fc]", kGpt2) == Names{"c_attn", "c_fc"});
  CHECK(modules_of("target_modules: '*self_attn*_proj'", kExperts) == Names{"k_proj", "o_proj", "q_proj", "v_proj"});
}

TEST_CASE("Muse-Glimmer's modules are selected by NeMo AutoModel's names, too", "[plan][peft]") {
  using Names = std::vector<std::string>;
  const std::string muse =
      "model_type: muse_glimmer_text, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1, "
      "num_attention_heads: 4, head_dim: 8, vocab_size: 128, max_position_embeddings: 128";
  const Names gate = {"model.layers.0.self_attn.gate_proj"};
  CHECK(modules_of("target_modules: 'model.layers.*.self_attn.output_gate_proj'", muse) == gate);
  CHECK(modules_of("target_modules: '*.self_attn.gate_proj'", muse) == gate);
  CHECK(modules_of("target_modules: [gate_proj]", muse) == Names{"gate_proj"});
}

TEST_CASE("a peft section that cannot be applied is refused with the reason", "[plan][peft]") {
  CHECK(refusal("target_modules: q_porj") ==
        "adapter-target peft.target_modules: no linear module of this model matches q_porj");
  CHECK(result_of(recipe("target_modules: q_porj")).problems.front().help == "did you mean 'q_proj'?");
  CHECK(refusal("exclude_modules: '*'") ==
        "adapter-target peft.exclude_modules: exclude_modules excludes every linear module");
  const std::string fused =
      "model_type: gpt_oss, hidden_size: 64, intermediate_size: 32, num_hidden_layers: 2, num_attention_heads: 4, "
      "num_key_value_heads: 2, vocab_size: 1000, num_local_experts: 4, num_experts_per_tok: 2, "
      "tie_word_embeddings: false";
  const std::string why =
      "the experts of 'model.layers.0.mlp.experts' cannot have adapters: they are stored as one tensor";
  CHECK(refusal("target_modules: '*experts'", fused, true) == "adapter-target peft.target_modules: " + why);
  // A plan goes without them.
  for (const auto& [targets, left] : {std::pair("'*experts'", false), std::pair("'*'", true)}) {
    const auto plan = planned(recipe(fmt::format("target_modules: {}", targets), fused));
    REQUIRE(plan.unsupported.size() == 1);
    CHECK(plan.unsupported[0].reason == why);
    REQUIRE(plan.adapters);
    CHECK((plan.adapters->elements > 0) == left);
  }
  CHECK(refusal("target_modules: lm_head", kLlama + ", tie_word_embeddings: true") ==
        "adapter-target peft.target_modules: 'lm_head' shares its weight with the embedding");
  CHECK(refusal("target_modules: '*[q'").starts_with("bad-value peft.target_modules: '*[q' cannot be read"));
  CHECK(warns("target_modules: [q_proj, fc1]", "no-effect", "'fc1'"));
  CHECK(warns("dim: 4", "adapter-base", "initialised from the seed"));
}

TEST_CASE("adapting all linear modules leaves out a head that shares the embedding's weight", "[plan][peft]") {
  const std::string tied = kLlama + ", tie_word_embeddings: true";
  for (const std::string keys : {"match_all_linear: true", "exclude_modules: '*.out_proj'"}) {
    INFO(keys);
    const auto modules = modules_of(keys, tied);
    CHECK(modules == modules_of("dim: 4"));
    CHECK(warns(keys, "adapter-target", "'lm_head' shares its weight", tied));
    CHECK(!warns(keys, "adapter-target", "lm_head"));
  }
}

TEST_CASE("Gemma 4's projection to the inputs of all layers gets no adapter, and that is said", "[plan][peft]") {
  const std::string gemma =
      "model_type: gemma4_text, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2, num_attention_heads: 4, "
      "num_key_value_heads: 2, head_dim: 8, global_head_dim: 16, vocab_size: 128, vocab_size_per_layer_input: 128, "
      "hidden_size_per_layer_input: 8, max_position_embeddings: 128, sliding_window: 16";
  CHECK(warns("match_all_linear: true", "adapter-target", "per_layer_model_projection' makes the inputs", gemma));
  CHECK(warns("exclude_modules: lm_head", "adapter-target", "per_layer_model_projection' makes the inputs", gemma));
  CHECK(!warns("target_modules: '*_proj'", "adapter-target", "per_layer_model_projection", gemma));
  CHECK(warns("target_modules: '*pro*'", "adapter-target", "per_layer_model_projection' makes the inputs", gemma));
}

TEST_CASE("the experts of a layer are a single adapter target", "[plan][peft]") {
  const auto adapted = [](const std::string& keys) {
    const auto plan = planned(recipe(keys, kExperts));
    std::set<std::string> out;
    for (const auto& weight : plan.adapters->spec.weights)
      if (weight.find(".0.") < 20) out.insert(weight.substr(std::string("model.layers.0.").size()));
    return out;
  };
  CHECK(adapted("dim: 4") == std::set<std::string>{"self_attn.q_proj.weight", "self_attn.k_proj.weight",
                                                   "self_attn.v_proj.weight", "self_attn.o_proj.weight"});
  CHECK_FALSE(adapted("match_all_linear: true").contains("mlp.experts.0.up_proj.weight"));
  const auto experts = adapted("target_modules: '*mlp.experts'");
  CHECK(experts.size() == 24);  // 8 experts
  CHECK(experts.contains("mlp.experts.7.down_proj.weight"));
  const auto plan = planned(recipe("target_modules: '*mlp.experts', dim: 6, moe_rank_scaling: true", kExperts));
  CHECK(plan.adapters->spec.expert_rank == 3);
  for (const auto& parameter : plan.adapters->all)
    if (arch::is_last_matrix(parameter)) CHECK(parameter.shape[1] == 3);
}

TEST_CASE("adapters of weights with one input have adjacent first matrices", "[plan][peft]") {
  const auto plan = planned(recipe("target_modules: '*_proj'"));
  std::vector<std::string> groups;  // of the first layer
  const arch::Parameter* before = nullptr;
  for (const auto& info : plan.adapters->all) {
    if (!info.trained() || info.layer != 0 || arch::is_last_matrix(info)) {
      before = nullptr;
      continue;
    }
    const auto module = info.adapts.substr(0, info.adapts.rfind(".weight"));
    const auto name = module.substr(module.rfind('.') + 1, 1);
    if (before != nullptr && share_input(*before, info))
      groups.back() += name;
    else
      groups.push_back(name);
    before = &info;
  }
  CHECK(groups == std::vector<std::string>{"qkv", "o", "gu", "d"});
}

TEST_CASE("DoRA trains one magnitude per output feature of an adapted module", "[plan][peft]") {
  const auto plain = planned(recipe("target_modules: [q_proj]")),
             with = planned(recipe("target_modules: [q_proj], use_dora: true"));
  std::int64_t magnitudes = 0;
  for (const auto& parameter : with.adapters->all)
    if (arch::is_magnitudes(parameter)) {
      CHECK(parameter.trained());
      CHECK(parameter.fqn == parameter.adapts.substr(0, parameter.adapts.rfind('.')) + ".lora_magnitude_vector");
      CHECK(parameter.shape.rank() == 1);
      magnitudes += parameter.shape[0];
    }
  CHECK(magnitudes > 0);
  CHECK(with.adapters->elements == plain.adapters->elements + magnitudes);
  const auto experts = result_of(recipe("target_modules: '*mlp.experts', use_dora: true", kExperts), true);
  REQUIRE(experts.problems.size() == 1);
  CHECK(experts.problems.front().id == "adapter-target");
}

TEST_CASE("frozen base weights under adapters can be quantized to 4 or 8 bits", "[plan][peft]") {
  const auto with = [](const std::string& sections) { return result_of(recipe_and("dim: 4", sections), false); };
  const auto plan = with("quantization: {load_in_4bit: true}\n").plan;
  REQUIRE(plan);
  double packed = 0;
  for (const auto& parameter : plan->adapters->all) {
    const bool linear = arch::is_linear_weight(parameter) && parameter.role != arch::Role::kHead;
    CHECK(parameter.bits == (linear ? 4 : 0));
    packed += parameter.bits > 0 ? static_cast<double>(parameter.shape.elements()) : 0;
  }
  CHECK(packed > 0);
  const auto weights_of = [](const plan::TrainingPlan& each) {
    return estimate::plan_memory(each, {}).ranks.front().in(estimate::Phase::kInitialization).weights;
  };
  const auto plain = with("").plan;
  const double type = size_of(plan->types.compute);
  CHECK(weights_of(*plain) - weights_of(*plan) == Approx(packed * (type - 4.127 / 8)).epsilon(1e-4));
  const auto eight = with("quantization: {load_in_8bit: true}\n").plan;
  CHECK(weights_of(*plain) - weights_of(*eight) == Approx(packed * (type - 1)).epsilon(0.02));
  const auto id = [&](const std::string& sections) {
    const auto result = with(sections);
    return result.problems.empty() ? std::string() : std::string(result.problems.front().id);
  };
  CHECK(id("fp8: {enabled: true}\nquantization: {load_in_4bit: true}\n") == "quantized-weights");
  const auto alone = result_of(recipe_and("", "quantization: {load_in_8bit: true}\n"), false);
  REQUIRE(alone.problems.size() == 1);
  CHECK(alone.problems.front().id == "quantized-weights");
  const auto dora = result_of(recipe_and("use_dora: true", "quantization: {load_in_4bit: true}\n"), false);
  REQUIRE(dora.problems.size() == 1);
  CHECK(dora.problems.front().key == "peft.use_dora");
}

TEST_CASE("options for kernels that do not exist here are listed as ignored", "[plan][peft]") {
  const auto plan = planned(recipe("use_triton: true, use_memory_efficient_lora: false"));
  std::vector<std::string> keys;
  for (const auto& key : plan.ignored) keys.push_back(key.key);
  CHECK(keys == std::vector<std::string>{"peft.use_triton", "peft.use_memory_efficient_lora"});
}

TEST_CASE("in a plan with adapters only these have gradients, masters and optimizer states", "[plan][peft]") {
  // A and B of all seven linear modules of four layers.
  const std::int64_t in_out = (64 + 64) + 2 * (64 + 32) + (64 + 64) + 2 * (64 + 160) + (160 + 64);
  const auto bytes = [](const std::string& peft, const std::string& strategy, const std::string& dtype) {
    return planned(recipe(peft, kLlama, strategy, dtype)).estimate->memory.ranks[0];
  };
  const auto plan = planned(recipe("dim: 3"));
  CHECK(plan.adapters->elements == 3 * 4 * in_out);
  const auto elements = static_cast<double>(plan.adapters->elements);
  const auto base = static_cast<double>(bytes("", "strategy: ddp", "float32").parameters);
  const auto initial = [](const estimate::RankMemory& rank) { return rank.in(estimate::Phase::kInitialization); };
  const auto ddp = initial(bytes("dim: 3", "strategy: ddp", "bfloat16"));
  CHECK(ddp.weights == Approx(2 * (base + elements) + 4 * elements));  // master weights of the adapters only
  CHECK(ddp.gradients == Approx(4 * elements));
  CHECK(ddp.optimizer == Approx(8 * elements));
  const auto one = initial(bytes(
      "dim: 3", "strategy: megatron_fsdp, zero_dp_strategy: 1, preserve_fp32_weights: true, dp_size: 2", "bfloat16"));
  CHECK(one.weights == Approx(2 * (base + elements) + 2 * elements));
  CHECK(one.optimizer == Approx(4 * elements));
  const auto fsdp = initial(bytes("dim: 3", "strategy: fsdp2, dp_size: 2", "bfloat16"));
  CHECK(fsdp.weights == Approx(base + 2 * elements));  // shards: two bytes of the base, four of the adapters
  CHECK(fsdp.optimizer == Approx(4 * elements));
  // Pipeline stages count them too.
  const auto pipelined = planned(recipe("dim: 3", kLlama, "strategy: ddp, pp_size: 2, pipeline: {pp_schedule: 1f1b}"));
  for (const auto& stage : pipelined.pipeline->stages) CHECK(stage.adapters == plan.adapters->elements / 2);
  // A of a column-parallel module is whole on every rank, and so is B of a row-parallel module.
  const auto tensor = planned(recipe("dim: 3", kLlama, "strategy: ddp, tp_size: 2"));
  const std::int64_t columns_in = 3 * 64 + 2 * 64, columns_out = 64 + 2 * 32 + 2 * 160, rows_in = 64 + 160,
                     rows_out = 128;
  CHECK(tensor.estimate->memory.ranks[0].in(estimate::Phase::kInitialization).optimizer ==
        Approx(8.0 * 3 * 4 * (columns_in + columns_out / 2 + rows_in / 2 + rows_out)));
}

TEST_CASE("an adapter keeps the inputs of its own modules only", "[plan][peft]") {
  const auto kept = [](const std::string& target) {
    const auto plan = planned(recipe("target_modules: " + target));
    return estimate::layer_activations(plan.model->spec, 1,
                                       {.tokens = 10, .sequence = 10, .bytes = 2, .trained = plan.adapters->layers[1]});
  };
  const auto both = [&](const std::string& target) {
    const auto of_target = kept(target), of_output = kept("o_proj");  // attention's output is kept for its own gradient
    return std::pair(of_target.kept - of_output.kept, of_target.kept_for_weights);
  };
  // Bytes for ten tokens. Kept: the input; between the two parts of a backward pass: input and gradient of the output.
  const double token = 10 * 2, projections = 64 + 2 * 32;
  CHECK(both("q_proj") == std::pair(token * 64, token * (64 + projections)));
  CHECK(both("o_proj") == std::pair(0.0, token * (64 + 64)));
  CHECK(both("up_proj") == std::pair(token * 64, token * (64 + 2 * 160)));
  CHECK(both("down_proj") == std::pair(token * 160, token * (160 + 64)));
}

TEST_CASE("logits wait for a deferred weight gradient only where the head is adapted", "[plan][peft]") {
  const auto kept = [](const std::string& targets) {
    const auto plan = planned(
        recipe("target_modules: " + targets, kLlama, "strategy: ddp, pp_size: 2, pipeline: {pp_schedule: ZB-H1}"));
    return estimate::stage_activations(plan).back();
  };
  const auto without = kept("[q_proj]"), with = kept("[q_proj, lm_head]");
  CHECK(without.all == with.all);
  CHECK(with.kept - without.kept >= with.all * 0.1);
  CHECK(without.kept > 0);
}

TEST_CASE("frozen weights take no time for weight gradients", "[plan][peft]") {
  const auto whole = planned(recipe("")), adapted = planned(recipe("dim: 1"));
  CHECK(adapted.estimate->time.flops < 0.75 * whole.estimate->time.flops);
  CHECK(adapted.estimate->time.flops > 0.6 * whole.estimate->time.flops);
  CHECK(adapted.estimate->time.step < whole.estimate->time.step);
  const auto few = planned(recipe("target_modules: q_proj")), all = planned(recipe("dim: 8"));
  const auto activations = [](const estimate::EstimatedPlan& plan) {
    return plan.estimate->memory.ranks[0].in(estimate::Phase::kSteady).activations;
  };
  CHECK(activations(few) < activations(all));
  CHECK(fingerprint(few) != fingerprint(all));
}

}  // namespace automodel::plan
