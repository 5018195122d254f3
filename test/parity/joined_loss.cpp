// On every mesh, the output head fused with the loss, in chunks of tokens, computes the gradients of one rank with
// whole logits.
#include <cmath>

#include <fmt/format.h>

#include "parity/parity.h"
#include "rank_suite.h"
#include "train/trainer.h"

namespace automodel {
namespace {

const std::string kChunks = "loss_fn: {_target_: chunked_ce, chunk_len: 5}\n";
const std::string kGemma = "head_dim: 8, query_pre_attn_scalar: 8, sliding_window: 5, final_logit_softcapping: 2.0";

struct Mesh {
  std::string distributed;
  std::string megatron = {};
  int least_ranks = 1;
  int shared = 1;  ///< ranks with the same samples: tp, cp or pp
};

const std::vector<Mesh> kMeshes = {
    {"strategy: ddp"},
    {"strategy: fsdp2"},
    {"strategy: fsdp2, reshard_after_forward: true, defer_fsdp_grad_sync: false"},
    {"strategy: megatron_fsdp, zero_dp_strategy: 2"},
    {"strategy: megatron_fsdp, zero_dp_strategy: 3"},
    {"strategy: ddp, tp_size: 2", "", 2, 2},
    {"strategy: fsdp2, tp_size: 2, sequence_parallel: true", "", 2, 2},
    {"strategy: fsdp2, cp_size: 2", "", 2, 2},
    {"strategy: ddp, pp_size: 2, pipeline: {pp_schedule: GPipe, pp_microbatch_size: 2}", "", 2, 2},
    {"strategy: fsdp2, defer_fsdp_grad_sync: false, pp_size: 2, pipeline: {pp_schedule: GPipe, pp_microbatch_size: 2}",
     "", 2, 2},
    {"strategy: fsdp2, pp_size: 2, pipeline: {pp_schedule: 1F1B, pp_microbatch_size: 2}", "delay_wgrad_compute: true",
     2, 2},
    {"strategy: fsdp2, pp_size: 2, pipeline: {pp_schedule: Interleaved1F1B, pp_microbatch_size: 2}",
     "virtual_pipeline_model_parallel_size: 2", 2, 2},
    {"strategy: fsdp2, defer_fsdp_grad_sync: false, pp_size: 2, pipeline: {pp_schedule: InterleavedZeroBubble, "
     "pp_microbatch_size: 2}",
     "virtual_pipeline_model_parallel_size: 2", 2, 2},
    {"strategy: megatron_fsdp, zero_dp_strategy: 2, pp_size: 2, pipeline: {pp_schedule: ZBVZeroBubble, "
     "pp_microbatch_size: 2}",
     "virtual_pipeline_model_parallel_size: 2", 2, 2},
    {"strategy: ddp, pp_size: 2, pipeline: {pp_schedule: DualPipeV, pp_microbatch_size: 2}",
     "virtual_pipeline_model_parallel_size: 2", 2, 2},
    {"strategy: fsdp2, tp_size: 2, sequence_parallel: true, pp_size: 2, pipeline: {pp_schedule: ZBVZeroBubble, "
     "pp_microbatch_size: 2}",
     "virtual_pipeline_model_parallel_size: 2", 4, 4},
};

void check(comm::World& w, const Mesh& mesh, test::TinyRun run) {
  if (w.size() % mesh.least_ranks != 0) return;
  const int dp = w.size() / mesh.shared;
  run.layers = 4;
  run.global_batch = 16 * dp;
  run.local_batch = 8;
  run.distributed = mesh.distributed;
  run.model_parallel = mesh.megatron;
  run.mesh_sections = kChunks;
  test::check_parity(
      w, run, fmt::format("{} / {}, {}{}", mesh.distributed, mesh.megatron, run.family, run.tied ? ", tied" : ""));
}

const std::vector<test::RankCase> kCases = {
    {"every mesh",
     [](comm::World& w) {
       for (const auto& mesh : kMeshes) check(w, mesh, {});
     }},
    {"with tied embeddings and a soft cap",
     [](comm::World& w) {
       for (const auto& mesh : kMeshes) check(w, mesh, {.tied = true, .family = "gemma2", .model = kGemma});
     }},
    {"with scaled logits",
     [](comm::World& w) {
       for (const auto& mesh : kMeshes) check(w, mesh, {.family = "granite", .model = "logits_scaling: 4.0"});
     }},
    {"with adapters, on the head too",
     [](comm::World& w) {
       for (const auto& mesh : kMeshes)
         check(w, mesh, {.sections = "peft: {dim: 4, target_modules: ['*q_proj', lm_head], dropout: 0.2}\n"});
     }},
    {"one chunk length is chosen from sizes, and validation goes the same way",
     [](comm::World& w) {
       test::TinyRun run{.global_batch = 4 * w.size(), .local_batch = 4, .distributed = "strategy: fsdp2"};
       run.mesh_sections = "loss_fn: {_target_: fused_linear_ce}\n";
       test::check_parity(w, run, "fused_linear_ce");
     }},
    {"bfloat16 stays near float32",
     [](comm::World& w) {
       test::TinyRun run{
           .global_batch = 4 * w.size(), .local_batch = 4, .dtype = "float32", .distributed = "strategy: fsdp2"};
       const auto losses = [&](const std::string& dtype, const std::string& sections) {
         run.dtype = dtype;
         run.mesh_sections = sections;
         return train::results_of_steps(test::load_recipe(test::recipe_text(run, false)), w, 6);
       };
       const auto exact = losses("float32", ""), coarse = losses("bfloat16", kChunks);
       for (std::size_t i = 0; i < exact.size(); ++i)
         RANK_CHECK(std::abs(coarse[i].loss - exact[i].loss) < 0.02 * exact[i].loss);
     },
     1, 2},
};

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  return automodel::test::run_rank_suite(argc, argv, automodel::kCases);
}
