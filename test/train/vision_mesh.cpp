// Models with vision towers on meshes that divide the model: ten steps against transformers' recorded runs.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <ATen/TensorOperators.h>

#include "rank_suite.h"
#include "train/gather.h"
#include "train/vision_runs.h"

namespace automodel {
namespace {

using test::Run, test::adapted, test::check_run, test::frozen;

/// With the tower's outputs computed once, by all ranks: ten steps with the tower frozen, and every gradient of
/// adapters as without a cache.
void check_once(comm::World& world, const Run& run) {
  check_run(world, test::cached(frozen(run)));
  const auto recorded = test::read_json(run.family + "/reference.json");
  test::Session plain(world, adapted(run)), once(world, test::cached(adapted(run)));
  for (std::size_t batch = 0; batch < 2; ++batch) {
    const auto rows = plain.batches_of(recorded["batches"][batch], recorded.value("pad_id", 397), run.rows);
    const auto a = plain.trainer().gradients(0, rows, false), b = once.trainer().gradients(0, rows, false);
    const auto what = run.family + ", adapters, " + run.mesh;
    test::check_near(what + ", loss", b.loss, a.loss, 1e-6 * a.loss);
    const auto wanted = train::gather_gradients(plain.runtime()), found = train::gather_gradients(once.runtime());
    RANK_EQUAL(found.size(), wanted.size());
    for (const auto& [name, gradient] : wanted)
      test::check_near(what + ", gradient of " + name, (found.at(name) - gradient).norm().item<double>(), 0,
                       1e-4 * gradient.norm().item<double>() + 1e-6 * a.grad_norm);
  }
  world.control().barrier()->wait();
}

/// Ten steps, everything trained and the tower frozen.
void check_both(comm::World& world, const Run& run) {
  check_run(world, run);
  check_run(world, frozen(run));
}

/// Those whose decoder is divided by pipelines, which needs layers without inputs of their own, and with `tensor` by
/// two tensor-parallel ranks: a layer of one Gemma 4 has a single key-value head.
std::vector<std::string> all_families(bool tensor = false) {
  std::vector<std::string> out = {"llava"};
  for (const std::string family : test::kFamilies)
    if (family != "gemma4" && (family != "gemma4_moe" || !tensor)) out.push_back(family);
  return out;
}

/// Layers of two stages, the first of which has one, so that DeepStack's rows go on.
std::string split_of(const std::string& family) {
  if (family == "gemma4_moe") return "[1, 1]";
  return family == "gemma3" || family == "qwen3_vl" || family == "qwen3_5" || family == "step3p7" ? "[1, 3]" : "[1, 2]";
}

std::string pipeline(const std::string& schedule, const std::string& rest = "") {
  return fmt::format("pp_size: 2, pipeline: {{pp_schedule: {}, pp_microbatch_size: 1{}}}", schedule, rest);
}

void check_schedules(comm::World& world) {
  for (const auto& family : all_families()) {
    check_both(world, {.mesh = "strategy: ddp, " + pipeline("1F1B"), .family = family, .data_ranks = 1});
    // Towers and rows for later layers with stages of one layer each.
    const bool four = family == "gemma3" || family == "qwen3_vl" || family == "qwen3_5";
    if (!four) continue;
    for (const std::string schedule : {"Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble"})
      check_both(
          world,
          {.mesh = "strategy: ddp, " + pipeline(schedule, ", layers_per_stage: 1"), .family = family, .data_ranks = 1});
  }
}

/// Rows that are accumulation steps of different lengths, run one by one and in one pass.
void check_lengths(comm::World& world) {
  for (const std::string merged : {"false", "true"})
    for (const std::string family : {"gemma3", "qwen2_5_vl", "qwen3_vl", "qwen3_5_moe"})
      check_run(world, {.mesh = "strategy: fsdp2, " + pipeline("1F1B", ", merge_accumulation: " + merged),
                        .family = family,
                        .data_ranks = 1,
                        .rows = test::RunRows::kApart});
}

/// All rows of a batch in one sequence, which is cut into stages.
void check_packs(comm::World& world) {
  for (const auto& family : all_families())
    check_both(world, {.mesh = "strategy: fsdp2, " + pipeline("1F1B"),
                       .family = family,
                       .data_ranks = 1,
                       .rows = test::RunRows::kPacked});
}

/// Sequences that two ranks divide, pictures with them: plain rows, and packs.
void check_context(comm::World& world) {
  for (const std::string family : {"llava", "mistral3", "muse_glimmer", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe",
                                   "qwen3_5", "qwen3_5_moe", "minimax_m3_vl", "gemma4", "step3p7"})
    for (const auto rows : {test::RunRows::kTogether, test::RunRows::kPacked})
      check_both(world, {.mesh = "strategy: fsdp2, cp_size: 2", .family = family, .data_ranks = 1, .rows = rows});
}

void check_teachers(comm::World& world) {
  for (const auto& family : all_families())
    test::check_teacher(world, {.mesh = "strategy: fsdp2, " + pipeline("1F1B"), .family = family, .data_ranks = 1});
}

void check_data_parallel(comm::World& world) {
  for (const auto& family : all_families())
    for (const std::string strategy : {"ddp", "fsdp2"})
      check_both(
          world,
          {.mesh = fmt::format("strategy: {}, {}", strategy, pipeline("1F1B")), .family = family, .data_ranks = 2});
}

void check_adapters(comm::World& world) {
  for (const auto& family : all_families())
    check_run(world, adapted({.mesh = "strategy: fsdp2, " + pipeline("1F1B", ", layers_per_stage: " + split_of(family)),
                              .family = family,
                              .data_ranks = 1}));
}

/// Also where only the first stage has something to train.
void check_tower_adapters(comm::World& world) {
  for (const auto& family : all_families(true)) {
    if (std::ranges::find(test::kTowerAdapted, family) == test::kTowerAdapted.end()) continue;
    std::vector<std::string> meshes = {"strategy: fsdp2, tp_size: 2, sequence_parallel: true",
                                       "strategy: ddp, tp_size: 2",
                                       "strategy: ddp, " + pipeline("1F1B", ", layers_per_stage: " + split_of(family))};
    if (family != "gemma3") meshes.push_back("strategy: fsdp2, cp_size: 2");
    for (const auto& mesh : meshes)
      for (const bool dora : {false, true})
        check_run(world, test::tower_adapted({.mesh = mesh, .family = family, .data_ranks = 1}, dora));
  }
}

void check_experts(comm::World& world) {
  for (const std::string family : {"gemma4_moe", "qwen3_vl_moe", "qwen3_5_moe", "step3p7", "minimax_m3_vl"})
    check_both(world, {.mesh = "strategy: fsdp2, ep_size: 2, " + pipeline("1F1B"), .family = family, .data_ranks = 2});
}

void check_tensor_parallel(comm::World& world) {
  auto families = all_families(true);
  families.emplace_back("gemma4");
  for (const auto& family : families)
    for (const std::string sequence : {"false", "true"})
      check_both(
          world,
          {.mesh = "strategy: fsdp2, tp_size: 2, sequence_parallel: " + sequence, .family = family, .data_ranks = 1});
}

/// Also tensor-parallel ranks on one data-parallel rank each, with shards of the tower's weights.
void check_tensor_and_pipeline(comm::World& world) {
  for (const auto& family : all_families(true)) {
    for (const std::string sequence : {"false", "true"})
      check_run(world, {.mesh = fmt::format("strategy: fsdp2, tp_size: 2, sequence_parallel: {}, {}", sequence,
                                            pipeline("1F1B", ", layers_per_stage: " + split_of(family))),
                        .family = family,
                        .data_ranks = 1});
    check_both(world,
               {.mesh = "strategy: fsdp2, tp_size: 2, sequence_parallel: true", .family = family, .data_ranks = 2});
  }
}

void check_answers(comm::World& world) {
  for (const auto& family : all_families(true)) {
    test::check_generation(
        world, {.mesh = "strategy: fsdp2, tp_size: 2, sequence_parallel: true", .family = family, .data_ranks = 1});
    test::check_generation(world,
                           {.mesh = "strategy: ddp, " + pipeline("1F1B", ", layers_per_stage: " + split_of(family)),
                            .family = family,
                            .data_ranks = 1});
  }
}

void check_cached(comm::World& world) {
  for (const auto& family : all_families()) {
    check_once(world, {.mesh = "strategy: ddp", .family = family});
    check_once(world, {.mesh = "strategy: fsdp2", .family = family});
    check_once(world, {.mesh = "strategy: ddp, " + pipeline("1F1B", ", layers_per_stage: " + split_of(family)),
                       .family = family,
                       .data_ranks = 1});
    if (family != "gemma4_moe")
      check_once(world,
                 {.mesh = "strategy: fsdp2, tp_size: 2, sequence_parallel: true", .family = family, .data_ranks = 1});
  }
  for (const std::string family : {"gemma3", "qwen3_vl", "qwen3_5"})
    for (const std::string schedule : {"Interleaved1F1B", "ZBVZeroBubble"})
      check_once(
          world,
          {.mesh = "strategy: ddp, " + pipeline(schedule, ", layers_per_stage: 1"), .family = family, .data_ranks = 1});
  for (const std::string family : {"llava", "qwen3_vl"})
    check_once(world, {.mesh = "strategy: fsdp2, cp_size: 2", .family = family, .data_ranks = 1});
}

void check_cached_on_four(comm::World& world) {
  for (const std::string family : {"llava", "qwen3_vl", "mistral3", "gemma4_moe"}) {
    for (const std::string strategy : {"ddp", "fsdp2"})
      check_once(
          world,
          {.mesh = fmt::format("strategy: {}, {}", strategy, pipeline("1F1B")), .family = family, .data_ranks = 2});
    if (family != "gemma4_moe")
      check_once(world, {.mesh = "strategy: fsdp2, tp_size: 2, sequence_parallel: true, " +
                                 pipeline("1F1B", ", layers_per_stage: " + split_of(family)),
                         .family = family,
                         .data_ranks = 1});
  }
}

const std::vector<test::RankCase> kCases = {
    {"outputs of frozen towers, computed once by two ranks", check_cached, 2, 2},
    {"outputs of frozen towers, computed once by four ranks", check_cached_on_four, 4, 4},
    {"adapters on two stages", check_adapters, 2, 2},
    {"adapters of towers beside a divided decoder", check_tower_adapters, 2, 2},
    {"text behind pictures on two tensor-parallel ranks, and on two stages", check_answers, 2, 2},
    {"experts over the ranks of two stages", check_experts, 4, 4},
    {"two tensor-parallel ranks", check_tensor_parallel, 2, 2},
    {"two tensor-parallel ranks on two stages, and on two data-parallel ranks", check_tensor_and_pipeline, 4, 4},
    {"packs with pictures on two stages", check_packs, 2, 2},
    {"two ranks that divide a sequence with pictures", check_context, 2, 2},
    {"teachers with pictures on two stages", check_teachers, 2, 2},
    {"two stages on data-parallel ranks, of which some have no picture", check_data_parallel, 4, 4},
    {"rows that differ in length run one by one and in one pass", check_lengths, 2, 2},
    {"two stages, and two on each rank", check_schedules, 2, 2},
};

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  return automodel::test::run_rank_suite(argc, argv, automodel::kCases);
}
