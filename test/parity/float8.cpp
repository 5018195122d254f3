// With float8 matmuls, a mesh computes the gradients of one rank with the same microbatches: scales of weights are
// those of whole weights, however these are sharded.
#include <cmath>

#include <fmt/format.h>

#include "parity/parity.h"
#include "rank_suite.h"
#include "train/trainer.h"

namespace automodel {
namespace {

const std::vector<std::string> kRecipes = {"tensorwise", "rowwise", "rowwise_with_gw_hp"};

std::string section(const std::string& recipe) {
  return fmt::format("fp8: {{enabled: true, recipe_name: {}, filter_fqns: [lm_head, layers.1.mlp.up_proj]}}\n", recipe);
}

const std::vector<test::RankCase> kCases = {
    {"whatever is sharded",
     [](comm::World& w) {
       for (const auto& recipe : kRecipes)
         for (const std::string strategy :
              {"strategy: ddp", "strategy: fsdp2", "strategy: fsdp2, reshard_after_forward: true",
               "strategy: megatron_fsdp, zero_dp_strategy: 2", "strategy: megatron_fsdp, zero_dp_strategy: 3"}) {
           test::TinyRun run{.global_batch = 4 * w.size(), .local_batch = 4, .single_batch = 4};
           run.distributed = strategy;
           run.sections = section(recipe);
           test::check_parity(w, run, recipe + ", " + strategy);
         }
     }},
    {"in a pipeline",
     [](comm::World& w) {
       if (w.size() % 2 != 0) return;
       for (const auto& recipe : kRecipes)
         for (const std::string schedule : {"1F1B", "InterleavedZeroBubble"}) {
           test::TinyRun run{.global_batch = 4 * w.size(), .local_batch = 8, .single_batch = 2};
           run.distributed = fmt::format(
               "strategy: fsdp2, pp_size: 2, pipeline: {{pp_schedule: {}, pp_microbatch_size: 2}}", schedule);
           run.model_parallel = fmt::format("virtual_pipeline_model_parallel_size: {}", schedule == "1F1B" ? 1 : 2);
           run.sections = section(recipe);
           test::check_parity(w, run, recipe + ", " + run.distributed);
         }
     },
     2},
    {"losses stay near those of float32, and are others",
     [](comm::World& w) {
       const auto losses = [&](const std::string& sections) {
         test::TinyRun run{.global_batch = 4 * w.size(), .local_batch = 4, .dtype = "float32"};
         run.distributed = "strategy: fsdp2";
         run.sections = sections;
         return train::results_of_steps(test::load_recipe(test::recipe_text(run, false)), w, 8);
       };
       const auto exact = losses("");
       for (const auto& recipe : kRecipes) {
         const auto low = losses(section(recipe));
         for (std::size_t i = 0; i < exact.size(); ++i)
           RANK_CHECK(std::abs(low[i].loss - exact[i].loss) < 0.05 * exact[i].loss);
         RANK_CHECK(low[0].loss != exact[0].loss);
       }
     },
     1, 2},
};

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  return automodel::test::run_rank_suite(argc, argv, automodel::kCases);
}
