// Options that trade memory for time must not change results; options that trade precision for speed must stay close.
#include <cmath>
#include <set>

#include <fmt/format.h>

#include <ATen/Context.h>

#include "parity/parity.h"
#include "rank_suite.h"
#include "train/initial_values.h"
#include "train/setup.h"
#include "train/trainer.h"

namespace automodel {
namespace {

struct Mesh {
  std::string distributed;
  std::string model_parallel = {};
  int least_ranks = 1;
  bool tied = false;
};

const std::vector<Mesh> kMeshes = {
    {"strategy: ddp"},
    {"strategy: fsdp2"},
    {"strategy: fsdp2, reshard_after_forward: false, defer_fsdp_grad_sync: false"},
    {"strategy: ddp, pp_size: 2, pipeline: {pp_schedule: 1F1B, pp_microbatch_size: 2}", "", 2, true},
    {"strategy: fsdp2, pp_size: 2, pipeline: {pp_schedule: Interleaved1F1B, pp_microbatch_size: 2}",
     "virtual_pipeline_model_parallel_size: 2", 2, true},
    {"strategy: fsdp2, defer_fsdp_grad_sync: false, pp_size: 2, pipeline: {pp_schedule: InterleavedZeroBubble, "
     "pp_microbatch_size: 2}",
     "virtual_pipeline_model_parallel_size: 2", 2, true},
    {"strategy: megatron_fsdp, zero_dp_strategy: 2, pp_size: 2, pipeline: {pp_schedule: ZBVZeroBubble, "
     "pp_microbatch_size: 2}",
     "virtual_pipeline_model_parallel_size: 2", 2, true},
};

/// One mesh with further keys of distributed and of model_parallel.
void check(comm::World& w, const Mesh& mesh, const std::string& more, const std::string& megatron = {}) {
  const bool pipelined = mesh.least_ranks > 1;
  if (w.size() % mesh.least_ranks != 0) return;
  const int dp = w.size() / (pipelined ? 2 : 1);
  test::TinyRun run{.layers = 5, .tied = mesh.tied, .global_batch = 16 * dp, .local_batch = 8};
  run.distributed = mesh.distributed + more;
  run.model_parallel = mesh.model_parallel;
  if (!megatron.empty()) run.model_parallel += (run.model_parallel.empty() ? "" : ", ") + megatron;
  test::check_parity(w, run, run.distributed + " / " + run.model_parallel);
}

/// Losses of a short run of the recipe in `world`, with hooks.
std::vector<train::StepResult> results_of(const std::string& text, comm::World& world, int steps,
                                          train::StepHooks hooks = {}) {
  const auto loaded = test::load_recipe(text);
  return train::results_of_steps(loaded, world, steps, std::move(hooks));
}

/// Losses in a low precision stay near those of float32.
void check_precision(comm::World& w, const std::string& dtype, const std::string& megatron, double tolerance) {
  constexpr int kSteps = 10;
  test::TinyRun run{.global_batch = 8 * w.size(), .local_batch = 4, .dtype = "float32"};
  run.distributed = "strategy: fsdp2";
  const auto exact = results_of(test::recipe_text(run, false), w, kSteps);
  run.dtype = dtype;
  run.model_parallel = megatron;
  // A fixed scale instead of the dynamic one: no step is skipped, so that both runs see the same data.
  const auto coarse =
      results_of(test::recipe_text(run, false), w, kSteps, {.grad_scale = [](std::int64_t) { return 64.0; }});
  for (std::size_t step = 0; step < exact.size(); ++step)
    if (std::abs(coarse[step].loss - exact[step].loss) > tolerance * exact[step].loss)
      test::rank_check_failed(__FILE__, __LINE__,
                              fmt::format("{} {}: loss {} against {} in step {}", dtype, megatron, coarse[step].loss,
                                          exact[step].loss, step));
}

/// Every strategy, with tensor, context and expert parallelism if there are enough ranks; also checks that data was
/// moved.
void offload_everywhere(comm::World& w) {
  const std::string experts =
      "num_local_experts: 4, num_experts_per_tok: 2, router_aux_loss_coef: 0.01, output_router_logits: true";
  struct Case {
    std::string distributed, family, model, megatron;
    int shared = 1;  ///< ranks with the same samples
  };
  std::vector<Case> cases = {
      {"strategy: ddp", "llama", "", ""},
      {"strategy: fsdp2, reshard_after_forward: true", "llama", "", ""},
      {"strategy: fsdp2, reshard_after_forward: false, defer_fsdp_grad_sync: false", "qwen3", "", ""},
      {"strategy: megatron_fsdp, zero_dp_strategy: 2", "gemma2",
       "head_dim: 8, query_pre_attn_scalar: 8, sliding_window: 5", ""},
      {"strategy: fsdp2", "mixtral", experts, ""}};
  if (w.size() % 2 == 0) {
    cases.push_back({"strategy: ddp, tp_size: 2", "llama", "", "sequence_parallel: true", 2});
    cases.push_back({"strategy: fsdp2, cp_size: 2", "llama", "", "", 2});
    cases.push_back({"strategy: fsdp2, ep_size: 2", "mixtral", experts, "overlap_moe_expert_parallel_comm: true"});
  }
  for (const auto& each : cases)
    for (const char* buffers :
         {"", ", cpu_offloading_double_buffering: true",
          ", cpu_offloading_double_buffering: true, cpu_offloading_retain_pinned_cpu_buffers: true"}) {
      const int dp = w.size() / each.shared;
      test::TinyRun run{
          .layers = 5, .global_batch = 8 * dp, .local_batch = 4, .family = each.family, .model = each.model};
      run.distributed = each.distributed;
      run.model_parallel = fmt::format("cpu_offloading: true, cpu_offloading_num_layers: 3{}{}{}", buffers,
                                       each.megatron.empty() ? "" : ", ", each.megatron);
      if (each.family == "mixtral") run.single_batch = run.local_batch;  // auxiliary losses are per microbatch
      run.runtime.offload_on_cpu = true;
      test::check_parity(w, run, run.distributed + " / " + run.model_parallel);
    }
  const auto moved = [&](int layers) {
    test::TinyRun run{.layers = 5, .global_batch = 4 * w.size(), .local_batch = 4};
    run.distributed = "strategy: ddp";
    run.model_parallel = fmt::format("cpu_offloading: true, cpu_offloading_num_layers: {}", layers);
    const auto loaded = test::load_recipe(test::recipe_text(run, false));
    const train::Setup setup(loaded, w);
    train::Runtime runtime(setup.plan, w, train::initial_values(setup.plan, {.seed = setup.plan.weights.seed}),
                           {.offload_on_cpu = true});
    train::Trainer trainer(runtime, *setup.rates);
    const auto plan = setup.steps->plan(0);
    trainer.step(0, setup.loader->load(plan.epoch, plan.step_in_epoch), false);
    RANK_EQUAL(runtime.offload()->counts().on_host, 0);
    RANK_EQUAL(runtime.offload()->counts().out, runtime.offload()->counts().back);
    return runtime.offload()->counts().out;
  };
  RANK_CHECK(moved(1) > 0);
  RANK_EQUAL(moved(4), 4 * moved(1));
}

const std::vector<test::RankCase> kCases = {
    {"recomputed activations give the same gradients",
     [](comm::World& w) {
       for (const auto& mesh : kMeshes)
         for (const std::string kind : {"full", "selective"})
           if (kind == "full" || mesh.distributed.find("megatron") == std::string::npos)  // not of megatron_fsdp
             check(w, mesh, fmt::format(", activation_checkpointing: {}", kind));
     }},
    {"a window of microbatches that keep their activations",
     [](comm::World& w) {
       for (const auto& mesh : kMeshes)
         for (const int kept : {0, 1, 2})
           check(w, mesh, ", activation_checkpointing: full",
                 fmt::format("num_microbatches_with_partial_activation_checkpoints: {}", kept));
     },
     2},
    {"the head's weight gradient may wait",
     [](comm::World& w) {
       for (const auto& mesh : kMeshes)
         for (const int limit : {0, 1, 3})
           if (mesh.least_ranks > 1)
             check(w, mesh, "",
                   fmt::format("gradient_accumulation_fusion: true, defer_embedding_wgrad_compute: true, "
                               "wgrad_deferral_limit: {}",
                               limit));
     },
     2},
    {"weight gradients may follow the message",
     [](comm::World& w) {
       for (const auto& mesh : kMeshes) check(w, mesh, "", "delay_wgrad_compute: true");
     },
     2},
    {"a gradient scale cancels out",
     [](comm::World& w) {
       test::TinyRun run{.global_batch = 8 * w.size(), .local_batch = 4};
       run.distributed = "strategy: fsdp2";
       const auto text = test::recipe_text(run, false);
       const auto plain = results_of(text, w, 3);
       const auto scaled =
           results_of(text, w, 3, {.grad_scale = [](std::int64_t step) { return 512.0 * (1 << step); }});
       for (std::size_t i = 0; i < plain.size(); ++i) {
         RANK_EQUAL(plain[i].loss, scaled[i].loss);  // powers of two: not a bit changes
         RANK_EQUAL(plain[i].grad_norm, scaled[i].grad_norm);
       }
       RANK_EQUAL(scaled[2].grad_scale, 2048.0);
     }},
    {"low precision stays near float32",
     [](comm::World& w) {
       check_precision(w, "bfloat16", "", 0.02);
       check_precision(w, "float32", "bf16: true", 0.02);
       check_precision(w, "float32", "fp16: true", 0.01);
       check_precision(w, "float32", "bf16: true, gradient_accumulation_fusion: true", 0.02);
       check_precision(w, "float32", "enable_autocast: true, autocast_dtype: bfloat16", 0.02);
     },
     1, 2},
    {"activations that wait elsewhere give the same gradients", offload_everywhere},
    {"weights that are not initialised are zero",
     [](comm::World& w) {
       test::TinyRun run{.global_batch = 4 * w.size(), .local_batch = 4};
       run.distributed = "strategy: fsdp2";
       run.model_parallel = "perform_initialization: false";
       const auto steps = results_of(test::recipe_text(run, false), w, 1);
       RANK_CHECK(std::abs(steps[0].loss - std::log(68.0)) < 1e-12);  // all tokens are equally likely
     },
     1, 2},
    {"what a stage receives keeps its type or is cast",
     [](comm::World& w) {
       const auto loss = [&](const std::string& policy, const std::string& pipeline) {
         test::TinyRun run{.global_batch = 8, .local_batch = 8, .dtype = "float32"};
         run.distributed = "strategy: fsdp2, pp_size: 2, pipeline: {pp_schedule: 1F1B, pp_microbatch_size: 2" +
                           pipeline + "}, mp_policy: {" + policy + "}";
         return results_of(test::recipe_text(run, false), w, 1)[0].loss;
       };
       const double exact = loss("param_dtype: float32", "");
       const std::string low = "param_dtype: bfloat16, reduce_dtype: float32";
       std::set<double> seen;
       for (const std::string cast : {", cast_forward_inputs: true", ", cast_forward_inputs: false"}) {
         for (const std::string message : {"", ", dtype: float32"}) {
           const double coarse = loss(low + cast, message);
           RANK_CHECK(std::abs(coarse - exact) < 0.02 * exact);
           seen.insert(coarse);
         }
         // A message in the compute type needs no cast.
         RANK_EQUAL(loss(low + cast, ""), loss(low, ""));
       }
       RANK_EQUAL(seen.size(), 2U);  // results differ only if a wider message is not cast
     },
     2, 2},
    {"the policy's output type is that of logits",
     [](comm::World& w) {
       const auto loss = [&](const std::string& policy) {
         test::TinyRun run{.global_batch = 4 * w.size(), .local_batch = 4, .dtype = "float32"};
         run.distributed = "strategy: fsdp2, mp_policy: {" + policy + "}";
         return results_of(test::recipe_text(run, false), w, 1)[0].loss;
       };
       const double exact = loss("param_dtype: float32"), coarse = loss("param_dtype: float32, output_dtype: bfloat16");
       RANK_CHECK(std::abs(coarse - exact) < 0.02 * exact);
       RANK_CHECK(coarse != exact);
       RANK_EQUAL(loss("param_dtype: float32, output_dtype: float32"), exact);
     },
     1, 2},
    {"deterministic kernels are asked for",
     [](comm::World& w) {
       test::TinyRun run{.global_batch = 4 * w.size(), .local_batch = 4};
       run.distributed = "strategy: ddp";
       const auto plain = results_of(test::recipe_text(run, false), w, 1);
       const auto together = [&] { w.control().barrier()->wait(); };  // ranks that are threads share the option
       together();
       RANK_CHECK(!at::globalContext().deterministicAlgorithms());
       together();
       run.model_parallel = "deterministic_mode: true";
       const auto chosen = results_of(test::recipe_text(run, false), w, 1);
       RANK_CHECK(at::globalContext().deterministicAlgorithms());
       RANK_CHECK(!at::globalContext().deterministicAlgorithmsWarnOnly());
       RANK_EQUAL(plain[0].loss, chosen[0].loss);
       together();
       results_of(
           test::recipe_text(
               test::TinyRun{.global_batch = 4 * w.size(), .local_batch = 4, .distributed = "strategy: ddp"}, false),
           w, 1);
     },
     1, 2},
    {"float16 skips what overflows and lowers its scale",
     [](comm::World& w) {
       test::TinyRun run{.global_batch = 4 * w.size(), .local_batch = 4, .dtype = "float32"};
       run.distributed = "strategy: ddp";
       run.model_parallel = "fp16: true";
       const auto steps = results_of(test::recipe_text(run, false), w, 30);
       RANK_EQUAL(steps.front().grad_scale, 4294967296.0);
       RANK_CHECK(steps.front().skipped);
       RANK_CHECK(!steps.back().skipped);
       RANK_CHECK(steps.back().grad_scale < 4294967296.0);
       RANK_CHECK(std::isfinite(steps.back().grad_norm));
     },
     1, 2},
};

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  return automodel::test::run_rank_suite(argc, argv, automodel::kCases);
}
