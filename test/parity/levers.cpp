// What trades memory for time, and what trades precision for speed, must not change what is computed.
#include <cmath>

#include <fmt/format.h>

#include "parity/parity.h"
#include "rank_suite.h"
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

const std::vector<test::RankCase> kCases = {
    {"recomputed activations give the same gradients",
     [](comm::World& w) {
       for (const auto& mesh : kMeshes)
         for (const std::string kind : {"full", "selective"})
           if (kind == "full" || mesh.distributed.find("megatron") == std::string::npos)  // no option of that one
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
       check_precision(w, "float32", "enable_autocast: true, autocast_dtype: bfloat16", 0.02);
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
