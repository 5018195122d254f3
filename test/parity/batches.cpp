// Batches as in real data, on every kind of mesh: lengths that change from step to step, an incomplete last batch,
// ignored labels; and validation, which must give the loss of one rank and not affect training.
#include <cmath>
#include <map>
#include <mutex>
#include <string_view>

#include <fmt/format.h>

#include "comm/loopback/loopback.h"
#include "golden_folder.h"
#include "parity/parity.h"
#include "rank_suite.h"
#include "train/evaluate.h"
#include "train/initial_values.h"
#include "train/setup.h"
#include "train/trainer.h"

namespace automodel {
namespace {

const std::string kRows =
    std::string("{_target_: tokens, path: ") + automodel::golden_folder() + "/rows/lengths.jsonl, ";

struct Mesh {
  std::string distributed;
  std::string model_parallel = {};
  int pad = 1;  ///< rows are padded to a multiple of this on both compared meshes
};

/// The meshes of `ranks` ranks.
std::vector<Mesh> meshes(int ranks) {
  std::vector<Mesh> out;
  for (const auto& [schedule, chunks] : std::map<std::string, int>{
           {"1F1B", 1}, {"GPipe", 1}, {"Interleaved1F1B", 2}, {"ZBVZeroBubble", 2}, {"DualPipeV", 2}})
    out.push_back({fmt::format("strategy: ddp, pp_size: {}, pipeline: {{pp_schedule: {}, pp_microbatch_size: 1}}",
                               ranks, schedule),
                   fmt::format("virtual_pipeline_model_parallel_size: {}", chunks)});
  out.push_back({"strategy: fsdp2"});
  out.push_back({"strategy: fsdp2, tp_size: 2, sequence_parallel: true", "", 4});
  out.push_back({fmt::format("strategy: ddp, cp_size: {}", ranks), "", 2 * ranks});
  if (ranks == 4)
    out.push_back(
        {"strategy: megatron_fsdp, pp_size: 2, dp_size: 2, pipeline: {pp_schedule: 1F1B, pp_microbatch_size: 2}"});
  return out;
}

test::TinyRun run_of(const Mesh& mesh, int ranks, const std::string& more) {
  const bool shares = mesh.distributed == "strategy: fsdp2";
  const bool halves = mesh.distributed.find("dp_size: 2") != std::string::npos ||
                      (ranks == 4 && mesh.distributed.find("tp_size: 2") != std::string::npos);
  return {.layers = 8,
          .local_batch = shares   ? 8 / ranks
                         : halves ? 4
                                  : 8,
          .distributed = mesh.distributed,
          .model_parallel = mesh.model_parallel,
          .dataset = kRows + fmt::format("pad_to_multiple_of: {}}}", mesh.pad),
          .sections = more,
          .steps = 7};  // an epoch has five full batches and one of three rows
}

void check_lengths(comm::World& world) {
  for (const auto& mesh : meshes(world.size()))
    test::check_parity(world, run_of(mesh, world.size(), ""), "rows of many lengths, " + mesh.distributed);
}

/// The accumulation steps of a step in one run of the pipeline: batches of other lengths meet in it, and the last step
/// of an epoch has fewer of them.
void check_merged(comm::World& world) {
  for (auto mesh : meshes(world.size())) {
    const auto section = mesh.distributed.find("pipeline: {");
    if (section == std::string::npos) continue;
    mesh.distributed.insert(section + std::string_view("pipeline: {").size(), "merge_accumulation: true, ");
    auto run = run_of(mesh, world.size(), "");
    run.local_batch = 2;
    test::check_parity(world, run, "merged accumulation steps, " + mesh.distributed);
  }
}

struct Validated {
  double first = 0, again = 0;  ///< validation loss at the start, and after a step
  std::int64_t tokens = 0;
  std::vector<double> losses = {};  ///< of training steps between validations
};

Validated validate(comm::World& world, const std::string& text) {
  const auto loaded = test::load_recipe(text);
  const train::Setup setup(loaded, world);
  train::Runtime runtime(setup.plan, world, train::initial_values(setup.plan, {.seed = setup.plan.weights.seed}));
  train::Trainer trainer(runtime, *setup.rates);
  Validated out;
  const auto& loader = *setup.validation.at(0).second;
  const auto first = train::evaluate(runtime, loader).value();
  out.first = first.loss;
  out.tokens = first.label_tokens;
  for (std::int64_t step = 0; step < 2; ++step) {
    out.losses.push_back(trainer.step(step, setup.loader->load(0, step), false).loss);
    out.again = train::evaluate(runtime, loader)->loss;
  }
  return out;
}

const Validated& validated_alone(const std::string& text) {
  static std::mutex mutex;
  static std::map<std::string, Validated> known;
  const std::scoped_lock lock(mutex);
  if (const auto found = known.find(text); found != known.end()) return found->second;
  Validated out;
  const auto outcome = comm::run_ranks(1, [&](comm::World& world) { out = validate(world, text); });
  if (!outcome.ok()) throw Error(outcome.code, {"internal", outcome.text, "", {}, ""});
  return known[text] = out;
}

bool near(double a, double b) {
  return std::abs(a - b) <= 1e-9 * std::abs(b);
}

void check_validation(comm::World& world) {
  for (const auto& mesh : meshes(world.size())) {
    const std::string section = "validation_dataset: " + kRows + fmt::format("pad_to_multiple_of: {}}}\n", mesh.pad);
    const auto run = run_of(mesh, world.size(), section);
    const auto here = validate(world, test::recipe_text(run, false));
    if (world.rank() != 0) continue;
    const auto& alone = validated_alone(test::recipe_text(run, true));
    // Row by row: a batch of one sequence weights each token like a batch of many.
    auto rows = run;
    rows.single_batch = 1;
    const auto& one_by_one = validated_alone(test::recipe_text(rows, true));
    const auto steps = test::on_one_rank(test::recipe_text(run_of(mesh, world.size(), ""), true), 2).losses;
    const bool same = here.tokens == alone.tokens && near(here.first, alone.first) && near(here.again, alone.again) &&
                      near(here.first, one_by_one.first) && near(here.losses.at(0), steps.at(0)) &&
                      near(here.losses.at(1), steps.at(1)) && !near(here.again, here.first);
    if (!same)
      test::rank_check_failed(
          __FILE__, __LINE__,
          fmt::format("{}: validation {} then {} over {} tokens, alone {} then {} over {}, row by row {}; steps {} {}, "
                      "without validation {} {}",
                      mesh.distributed, here.first, here.again, here.tokens, alone.first, alone.again, alone.tokens,
                      one_by_one.first, here.losses.at(0), here.losses.at(1), steps.at(0), steps.at(1)));
  }
}

const std::vector<test::RankCase> kCases = {
    {"lengths that change from step to step", check_lengths, 2},
    {"merged accumulation steps", check_merged, 2},
    {"validation", check_validation, 2},
};

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  return automodel::test::run_rank_suite(argc, argv, automodel::kCases);
}
