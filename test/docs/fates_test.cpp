// Tries each field of ModelParallelConfig: it acts, is refused, or is listed as having no effect, with the reason.
#include <algorithm>
#include <map>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "config/recipe.h"
#include "docs/pages.h"
#include "estimate/estimated_plan.h"
#include "plan/facts.h"
#include "report/plan_json.h"
#include "report/plan_text.h"

namespace automodel {
namespace {

using config::FieldInfo;

/// A value other than the default, a recipe in which it can act, and what shows that it does.
struct Example {
  std::string value;
  std::string distributed = {};  ///< further keys, given with and without the field
  std::string model_parallel = {};
  std::string id = {};        ///< of the problem, if it is refused
  std::string shown_by = {};  ///< a test that runs it, if the plan stays the same
};

const std::string kTensor = "tp_size: 2, dp_size: 1";
const std::string kOverlap = "sequence_parallel: true, tp_comm_overlap: true";
const std::string kPipeline = "strategy: ddp, pp_size: 2, pipeline: {pp_schedule: 1F1B}";
const std::string kDefer = "gradient_accumulation_fusion: true, defer_embedding_wgrad_compute: true";
const std::string kExperts = "test/parity/experts.cpp";

const std::map<std::string, Example> kExamples = {
    {"tensor_model_parallel_size", {.value = "2"}},
    {"tensor_parallel_num_weight_shards", {.value = "2", .id = "unsupported-option"}},
    {"gtp_weight_remat_size", {.value = "2"}},
    {"pipeline_model_parallel_comm_backend", {.value = "ucc"}},
    {"pipeline_model_parallel_size", {.value = "2", .distributed = "pipeline: {}"}},
    {"virtual_pipeline_model_parallel_size",
     {.value = "4", .distributed = "pp_size: 2, pipeline: {pp_schedule: Interleaved1F1B}"}},
    {"sequence_parallel", {.value = "true", .distributed = kTensor}},
    {"context_parallel_size", {.value = "2"}},
    {"hierarchical_context_parallel_sizes",
     {.value = "[2, 2]", .distributed = "cp_size: 4", .model_parallel = "cp_comm_type: a2a+p2p"}},
    {"max_seqlen_per_dp_cp_rank", {.value = "64"}},
    {"hybrid_context_parallel", {.value = "true", .id = "unsupported-option"}},
    {"expert_model_parallel_size", {.value = "2"}},
    {"expert_tensor_parallel_size", {.value = "2", .distributed = "strategy: ddp, dp_size: 4, ep_size: 2"}},
    {"expert_tensor_parallel_num_weight_shards", {.value = "2", .id = "unsupported-option"}},
    {"expert_gtp_weight_remat_size", {.value = "2"}},
    {"moe_extended_tp", {.value = "true"}},
    {"perform_initialization", {.value = "false", .shown_by = "test/parity/levers.cpp"}},
    {"use_cpu_initialization", {.value = "true"}},
    {"fp16", {.value = "true"}},
    {"bf16", {.value = "true"}},
    {"params_dtype", {.value = "bfloat16"}},
    {"timers", {.value = "null"}},
    {"finalize_model_grads_func", {.value = "null"}},
    {"grad_scale_func", {.value = "null"}},
    {"moe_grad_scale_func", {.value = "null"}},
    {"mtp_grad_scale_func", {.value = "null"}},
    {"no_sync_func", {.value = "null"}},
    {"grad_sync_func", {.value = "null"}},
    {"param_sync_func", {.value = "null"}},
    {"deterministic_mode", {.value = "true"}},
    {"enable_autocast", {.value = "true", .model_parallel = "autocast_dtype: bfloat16"}},
    {"autocast_dtype", {.value = "bfloat16", .model_parallel = "enable_autocast: true"}},
    {"num_microbatches_with_partial_activation_checkpoints",
     {.value = "1", .distributed = kPipeline + ", activation_checkpointing: full"}},
    {"gradient_accumulation_fusion", {.value = "true"}},
    {"async_tensor_model_parallel_allreduce", {.value = "true"}},
    {"use_te_rng_tracker", {.value = "true"}},
    {"tp_comm_overlap", {.value = "true", .distributed = kTensor, .model_parallel = "sequence_parallel: true"}},
    {"tp_comm_bulk_wgrad", {.value = "false", .distributed = kTensor, .model_parallel = kOverlap}},
    {"tp_comm_bulk_dgrad", {.value = "false", .distributed = kTensor, .model_parallel = kOverlap}},
    {"tp_comm_overlap_ag", {.value = "false", .distributed = kTensor, .model_parallel = kOverlap}},
    {"tp_comm_overlap_rs", {.value = "false", .distributed = kTensor, .model_parallel = kOverlap}},
    {"tp_comm_overlap_rs_dgrad", {.value = "true", .distributed = kTensor, .model_parallel = kOverlap}},
    {"tp_comm_split_ag", {.value = "false"}},
    {"tp_comm_atomic_ag", {.value = "true"}},
    {"tp_comm_split_rs", {.value = "false"}},
    {"tp_comm_atomic_rs", {.value = "true"}},
    {"cross_entropy_loss_fusion", {.value = "true"}},
    {"cross_entropy_fusion_impl", {.value = "te"}},
    {"tp_comm_overlap_disable_qkv", {.value = "true", .distributed = kTensor, .model_parallel = kOverlap}},
    {"tp_comm_overlap_disable_fc1", {.value = "true", .distributed = kTensor, .model_parallel = kOverlap}},
    {"tp_comm_bootstrap_backend", {.value = "mpi"}},
    {"overlap_moe_expert_parallel_comm", {.value = "true", .shown_by = kExperts}},
    {"delay_wgrad_compute", {.value = "true", .distributed = kPipeline}},
    {"overlap_dispatch_backward_with_experts_wgrad", {.value = "true", .shown_by = kExperts}},
    {"ep_overlap_early_attn_memory_release", {.value = "true"}},
    {"pipeline_dtype", {.value = "bfloat16", .distributed = kPipeline}},
    {"variable_seq_lengths", {.value = "true"}},
    {"overlap_p2p_comm", {.value = "true"}},
    {"batch_p2p_comm", {.value = "false"}},
    {"batch_p2p_sync", {.value = "false"}},
    {"use_ring_exchange_p2p", {.value = "true"}},
    {"deallocate_pipeline_outputs", {.value = "true"}},
    {"defer_embedding_wgrad_compute",
     {.value = "true", .distributed = kPipeline, .model_parallel = "gradient_accumulation_fusion: true"}},
    {"wgrad_deferral_limit", {.value = "1", .distributed = kPipeline, .model_parallel = kDefer}},
    {"overlap_p2p_comm_warmup_flush",
     {.value = "true", .model_parallel = "overlap_p2p_comm: true, batch_p2p_comm: false"}},
    {"microbatch_group_size_per_vp_stage",
     {.value = "4",
      .distributed = "pp_size: 2, pipeline: {pp_schedule: MegatronInterleaved}",
      .model_parallel = "virtual_pipeline_model_parallel_size: 2"}},
    {"mtp_standalone", {.value = "true"}},
    {"cpu_offloading", {.value = "true", .model_parallel = "cpu_offloading_num_layers: 2"}},
    {"cpu_offloading_num_layers", {.value = "2", .model_parallel = "cpu_offloading: true"}},
    {"_cpu_offloading_context", {.value = "null"}},
    {"cpu_offloading_activations",
     {.value = "false", .model_parallel = "cpu_offloading: true, cpu_offloading_num_layers: 2"}},
    {"cpu_offloading_weights", {.value = "true"}},
    {"cpu_offloading_double_buffering",
     {.value = "true", .model_parallel = "cpu_offloading: true, cpu_offloading_num_layers: 2"}},
    {"cpu_offloading_retain_pinned_cpu_buffers",
     {.value = "true", .model_parallel = "cpu_offloading: true, cpu_offloading_num_layers: 2"}},
    {"enable_cuda_graph", {.value = "true"}},
    {"barrier_with_L1_time", {.value = "false"}},
    {"recompute_modules", {.value = "[mlp, core_attn]"}},
    {"cp_comm_type", {.value = "a2a", .distributed = "cp_size: 2"}},
};

config::LoadedRecipe read(const Example& example, const std::string& field, bool experts) {
  const auto joined = [](const std::string& a, const std::string& b) {
    return a + (a.empty() || b.empty() ? "" : ", ") + b;
  };
  const std::string text =
      "device: cuda\nmodel: {config: {torch_dtype: float32, model_type: " + std::string(experts ? "mixtral" : "llama") +
      ", hidden_size: 64, intermediate_size: 128, num_hidden_layers: 8, num_attention_heads: 8, "
      "num_key_value_heads: 8, vocab_size: 256, max_position_embeddings: 128" +
      (experts ? ", num_local_experts: 4, num_experts_per_tok: 2" : "") +
      "}}\ndataset: {_target_: mock, vocab_size: 256, seq_length: 64}\n"
      "step_scheduler: {global_batch_size: 32, local_batch_size: 8}\nhardware: {profile: h100}\n"
      "distributed: {" +
      (example.distributed.empty() ? std::string("strategy: ddp") : example.distributed) + "}\nmodel_parallel: {" +
      joined(example.model_parallel, field) + "}\n";
  return config::read_recipe(text, "fates.yaml", {}, [](const std::string&) { return std::nullopt; });
}

/// Everything in a plan that affects a run, or the problems if there is no plan.
std::string digest(const config::LoadedRecipe& loaded) {
  if (!loaded.problems.empty()) return to_text(loaded.problems);
  auto result = estimate::make_plan(loaded, {.cuda_available = true});
  if (!result.plan) return to_text(result.problems);
  auto& plan = *result.plan;
  plan.warnings.clear();
  plan.ignored.clear();
  return report::to_json(plan, report::ActionFormat::kLowered) + config::to_json(plan::facts_of(plan));
}

void try_out(const FieldInfo& field, const Example& example, const std::string& state) {
  const std::string key(field.key);
  const bool experts = key.find("expert") != std::string::npos;
  const auto loaded = read(example, key + ": " + example.value, experts);
  INFO(to_text(loaded.problems));
  if (state == "refused") {
    auto result = estimate::make_plan(loaded, {.cuda_available = true});
    INFO(to_text(result.problems));
    CHECK(std::any_of(result.problems.begin(), result.problems.end(), [&](const Diagnostic& problem) {
      return problem.id == example.id && problem.key == "model_parallel." + key;
    }));
    return;
  }
  REQUIRE(loaded.problems.empty());
  if (state == "no effect") {
    const auto result = estimate::make_plan(loaded, {.cuda_available = true});
    INFO(to_text(result.problems));
    REQUIRE(result.plan);
    const auto text = report::to_text(*result.plan, report::ActionFormat::kNone);
    CHECK(text.find(fmt::format("model_parallel.{}: {}", key, field.ignored)) != std::string::npos);
    CHECK(digest(loaded) == digest(read(example, "", experts)));
    return;
  }
  if (!example.shown_by.empty()) {
    CHECK(test::read_file(test::repository() / example.shown_by).find(key + ": " + example.value) != std::string::npos);
    return;
  }
  const auto result = estimate::make_plan(loaded, {.cuda_available = true});
  if (!result.plan) FAIL_CHECK(to_text(result.problems));
  CHECK(digest(loaded) != digest(read(example, "", experts)));
}

}  // namespace

TEST_CASE("every field of ModelParallelConfig does what docs/megatron.md says", "[docs]") {
  std::map<std::string, std::vector<std::string>> rows;
  for (const auto& cells : test::table_rows(test::read_file(test::repository() / "docs/megatron.md")))
    if (cells.size() == 3) rows[cells[0]] = cells;
  const auto& fields = config::fields_of<config::ModelParallelConfig>();
  CHECK(fields.size() == rows.size());
  CHECK(fields.size() == kExamples.size());
  for (const auto& field : fields) {
    INFO("field " << field.key << " in docs/megatron.md");
    const auto row = rows.find("`" + std::string(field.key) + "`");
    const auto example = kExamples.find(std::string(field.key));
    if (row == rows.end() || example == kExamples.end()) {
      FAIL_CHECK("it has no fate: add its row, and its example to this test");
      continue;
    }
    const auto& state = row->second[1];
    CHECK((state == "acts" || state == "refused" || state == "no effect"));
    CHECK((state == "no effect") == !field.ignored.empty());
    CHECK((state == "refused") == !example->second.id.empty());
    if (!field.ignored.empty())
      CHECK(row->second[2] == std::regex_replace(std::string(field.ignored), std::regex("\\|"), "\\|"));
    try_out(field, example->second, state);
  }
}

}  // namespace automodel
