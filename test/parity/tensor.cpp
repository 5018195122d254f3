// Tensor and sequence parallelism compute the gradients of one rank, alone and with pipelines and every strategy.
#include <fmt/format.h>

#include "parity/parity.h"
#include "rank_suite.h"

namespace automodel {
namespace {

/// tp 2; the other ranks are data-parallel, or stages where `pp` says so.
struct Mesh {
  std::string strategy = "strategy: ddp";
  bool sequence = false;
  int pp = 1;
  std::string schedule = "1F1B";
  std::string more = {};
};

void check(comm::World& w, const Mesh& mesh, test::TinyRun run = {}) {
  const int dp = w.size() / 2 / mesh.pp;
  run.global_batch = 8 * dp;
  run.local_batch = 4;
  run.distributed = fmt::format("{}, tp_size: 2", mesh.strategy);
  const bool fsdp = mesh.strategy.find("fsdp2") != std::string::npos;
  std::string megatron;
  if (mesh.sequence) (fsdp ? run.distributed : megatron) += std::string(fsdp ? ", " : "") + "sequence_parallel: true";
  if (mesh.pp > 1) {
    const bool two = mesh.schedule != "1F1B" && mesh.schedule != "GPipe";
    run.distributed +=
        fmt::format(", pp_size: {}, pipeline: {{pp_schedule: {}, pp_microbatch_size: 1}}", mesh.pp, mesh.schedule);
    megatron += fmt::format("{}virtual_pipeline_model_parallel_size: {}", megatron.empty() ? "" : ", ", two ? 2 : 1);
  }
  run.distributed += mesh.more;
  run.model_parallel = megatron;
  test::check_parity(w, run,
                     fmt::format("{}{}{}{}", run.distributed, mesh.sequence ? ", sequence parallel" : "",
                                 run.tied ? ", tied" : "", run.model.empty() ? "" : ", " + run.model));
}

const std::vector<const char*> kStrategies = {"strategy: ddp",
                                              "strategy: fsdp2",
                                              "strategy: fsdp2, reshard_after_forward: true",
                                              "strategy: megatron_fsdp, zero_dp_strategy: 1",
                                              "strategy: megatron_fsdp, zero_dp_strategy: 2",
                                              "strategy: megatron_fsdp, zero_dp_strategy: 3"};

const std::vector<test::RankCase> kCases = {
    {"tensor parallelism",
     [](comm::World& w) {
       for (const bool tied : {false, true}) check(w, {}, {.tied = tied});
       check(w, {}, {.model = "attention_bias: true, mlp_bias: true"});
     },
     2},
    {"sequence parallelism",
     [](comm::World& w) {
       for (const bool tied : {false, true}) check(w, {.sequence = true}, {.tied = tied});
       check(w, {.sequence = true}, {.model = "attention_bias: true, mlp_bias: true"});
     },
     2},
    {"float32 over ten steps",
     [](comm::World& w) {
       for (const bool sequence : {false, true}) check(w, {.sequence = sequence}, {.dtype = "float32", .steps = 10});
     },
     2},
    {"with stages",
     [](comm::World& w) {
       for (const bool sequence : {false, true})
         for (const char* schedule : {"1F1B", "ZBVZeroBubble"})
           check(w, {.sequence = sequence, .pp = 2, .schedule = schedule}, {.tied = sequence});
     },
     4},
    {"with every strategy",
     [](comm::World& w) {
       for (const bool sequence : {false, true})
         for (const char* strategy : kStrategies)
           check(w, {.strategy = strategy, .sequence = sequence}, {.tied = sequence});
     },
     4},
    {"with stages and every strategy",
     [](comm::World& w) {
       for (const char* strategy : kStrategies)
         check(w, {.strategy = strategy, .sequence = true, .pp = 2, .schedule = "InterleavedZeroBubble"},
               {.tied = true});
     },
     8},
};

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  return automodel::test::run_rank_suite(argc, argv, automodel::kCases);
}
