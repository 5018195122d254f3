// Every schedule on several ranks computes the gradients of one rank: float64 within 1e-9, float32 within 1e-5.
#include <fmt/format.h>

#include "parity/parity.h"
#include "rank_suite.h"

namespace automodel {
namespace {

struct Case {
  std::string schedule;
  int per_rank;
  int microbatches;
  int layers;
  bool tied = false;
  int dp = 1;
  std::string dtype = "float64";
  int steps = 2;
};

void check(comm::World& world, const Case& c) {
  if (world.size() % c.dp != 0) return;
  const int pp = world.size() / c.dp;
  const int local = 2 * c.microbatches;
  test::check_parity(
      world,
      {.layers = c.layers,
       .tied = c.tied,
       .global_batch = local * c.dp,
       .local_batch = local,
       .dtype = c.dtype,
       .distributed =
           fmt::format("strategy: ddp, dp_size: {}, pp_size: {}, pipeline: {{pp_schedule: {}, pp_microbatch_size: 2}}",
                       c.dp, pp, c.schedule),
       // Refused without a pipeline: one rank runs one stage with any schedule.
       .model_parallel = pp > 1 ? fmt::format("virtual_pipeline_model_parallel_size: {}", c.per_rank) : "",
       .steps = c.steps},
      fmt::format("{} pp {} x {} stages, {} microbatches, {} layers{}{}", c.schedule, pp, c.per_rank, c.microbatches,
                  c.layers, c.tied ? ", tied" : "", c.dp > 1 ? ", dp 2" : ""));
}

const std::vector<test::RankCase> kCases = {
    {"1F1B",
     [](comm::World& w) {
       for (int m : {1, 2, 3, 8}) check(w, {"1F1B", 1, m, 5});
     }},
    {"GPipe",
     [](comm::World& w) {
       for (int m : {1, 4}) check(w, {"GPipe", 1, m, 4});
     }},
    {"Interleaved1F1B",
     [](comm::World& w) {
       for (int v : {2, 3}) check(w, {"Interleaved1F1B", v, 4 * w.size(), v * w.size() + 1});
     }},
    {"LoopedBFS",
     [](comm::World& w) {
       for (int v : {1, 2}) check(w, {"LoopedBFS", v, 3, v * w.size()});
     }},
    {"InterleavedZeroBubble",
     [](comm::World& w) {
       check(w, {"InterleavedZeroBubble", 2, 2 * w.size(), 2 * w.size() + 2});
     }},
    {"ZBVZeroBubble",
     [](comm::World& w) {
       for (int m : {2, 7}) check(w, {"ZBVZeroBubble", 2, m, 2 * w.size() + 1});
     }},
    {"ZB-H1 and ZB-H2",
     [](comm::World& w) {
       for (const char* s : {"ZB-H1", "ZB-H2"})
         for (int m : {2, 7}) check(w, {s, 1, m, 5});
     }},
    {"V-Half and V-Min",
     [](comm::World& w) {
       for (const char* s : {"V-Half", "V-Min"})
         for (int m : {2, 7}) check(w, {s, 2, m, 2 * w.size() + 1});
     }},
    {"DualPipeV",
     [](comm::World& w) {
       check(w, {"DualPipeV", 2, 2 * w.size() + 1, 2 * w.size()});
     }},
    {"MegatronInterleaved",
     [](comm::World& w) {
       check(w, {"MegatronInterleaved", 2, 2 * w.size(), 2 * w.size()});
     },
     2},
    {"searched",
     [](comm::World& w) {
       for (int v : {1, 2, 3}) check(w, {"searched", v, 5, 3 * w.size() + 1});
     }},
    {"tied embeddings under every placement",
     [](comm::World& w) {
       for (const char* s : {"1F1B", "ZBVZeroBubble", "Interleaved1F1B"})
         check(w, {s, std::string(s) == "1F1B" ? 1 : 2, 4, 2 * w.size(), true});
     }},
    {"pipeline and data parallel",
     [](comm::World& w) {
       for (const char* s : {"1F1B", "ZBVZeroBubble"}) check(w, {s, std::string(s) == "1F1B" ? 1 : 2, 4, 4, true, 2});
     },
     2},
    {"float32 over ten steps",
     [](comm::World& w) {
       check(w, {"1F1B", 1, 4, 4, false, 1, "float32", 10});
     }},
};

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  return automodel::test::run_rank_suite(argc, argv, automodel::kCases);
}
