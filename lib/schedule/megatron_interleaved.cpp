// Interleaved 1F1B as Megatron Core runs it (arXiv 2104.04473 and its microbatch_group_size_per_vp_stage).
#include <algorithm>

#include <fmt/format.h>

#include "schedule/megatron.h"
#include "schedule/orders.h"

namespace automodel::schedule {
namespace megatron {

std::vector<Step> schedule_table(int microbatches, int chunks, int group_size) {
  std::vector<Step> table;
  table.reserve(static_cast<std::size_t>(microbatches) * static_cast<std::size_t>(chunks));
  for (int begin = 0; begin < microbatches; begin += group_size)
    for (int chunk = 0; chunk < chunks; ++chunk)
      for (int mb = begin; mb < std::min(begin + group_size, microbatches); ++mb) table.push_back({mb, chunk});
  return table;
}

Warmup warmup(const Run& run, int rank) {
  Warmup out;
  out.total = run.microbatches * run.chunks;
  if (run.forward_only) {
    out.warmup = out.total;
  } else if (!run.interleaved) {
    out.warmup = run.ranks - rank - 1;
  } else {
    out.warmup = 2 * (run.ranks - rank - 1) + (run.chunks - 1) * run.group_size;
    if (run.overlap_moe_expert_parallel_comm) ++out.warmup;
  }
  out.all_in_warmup = out.warmup >= out.total;
  out.warmup = std::min(out.warmup, out.total);
  out.remaining = out.total - out.warmup;
  return out;
}

std::vector<int> order(const Run& run, int rank) {
  const auto table = schedule_table(run.microbatches, run.chunks, run.group_size);
  const auto steps = static_cast<std::size_t>(warmup(run, rank).warmup);
  const auto forward = [&](std::size_t k) { return table[k].chunk + 1; };
  const auto backward = [&](std::size_t k) { return table[k].chunk - run.chunks; };
  std::vector<int> codes;
  codes.reserve(2 * table.size());
  for (std::size_t k = 0; k < steps; ++k) codes.push_back(forward(k));
  if (run.forward_only) return codes;
  for (std::size_t k = 0; k < table.size(); ++k) {
    if (steps + k < table.size()) codes.push_back(forward(steps + k));
    codes.push_back(backward(k));
  }
  return codes;
}

}  // namespace megatron

namespace orders {
namespace {

int group_size_of(const Request& request) {
  return request.microbatch_group_size > 0 ? request.microbatch_group_size : request.ranks;
}

/// Whether the last group is full or has at least one microbatch per rank; a smaller one would stall every rank.
bool leaves_no_gap(int microbatches, int group_size, int ranks) {
  const int rest = microbatches % group_size;
  return rest == 0 || rest >= ranks;
}

}  // namespace

Diagnostics check_megatron_interleaved(const Request& request) {
  const int group = group_size_of(request);
  Diagnostics problems;
  if (request.microbatches < request.ranks) {
    problems.add("schedule-microbatches")
        .says("MegatronInterleaved cannot run {} microbatches on {} ranks", request.microbatches, request.ranks)
        .hint("it needs at least as many microbatches as ranks: {}", request.ranks);
  } else if (group < request.ranks || group > request.microbatches) {
    problems.add("schedule-group-size")
        .says("microbatch_group_size_per_vp_stage {} is out of range", group)
        .hint(
            "it is at least the number of ranks and at most the number of microbatches: {} to "
            "{}, nearest {}",
            request.ranks, request.microbatches, std::clamp(group, request.ranks, request.microbatches));
  } else if (!leaves_no_gap(request.microbatches, group, request.ranks)) {
    const auto legal_count = [&](int count) { return count >= group && leaves_no_gap(count, group, request.ranks); };
    const auto legal_group = [&](int size) {
      return size >= request.ranks && leaves_no_gap(request.microbatches, size, request.ranks);
    };
    problems.add("schedule-microbatches")
        .says("{} microbatches in groups of {} leave a last group of {}, smaller than the {} ranks",
              request.microbatches, group, request.microbatches % group, request.ranks)
        .hint("use {} microbatches, or a microbatch_group_size_per_vp_stage of {}",
              nearest_legal(request.microbatches, kMaxMicrobatches, legal_count),
              nearest_legal(group, request.microbatches, legal_group));
  }
  return problems;
}

Schedule megatron_interleaved(const Request& request) {
  const megatron::Run run{request.ranks, request.stages_per_rank, request.microbatches, group_size_of(request)};
  const auto table = megatron::schedule_table(run.microbatches, run.chunks, run.group_size);
  Schedule schedule(static_cast<std::size_t>(request.ranks));
  for (int rank = 0; rank < request.ranks; ++rank) {
    Row& row = schedule[static_cast<std::size_t>(rank)];
    row.reserve(2 * table.size());
    std::size_t forwards = 0;
    std::size_t backwards = 0;
    for (const int code : megatron::order(run, rank)) {
      const auto& step = table[code > 0 ? forwards++ : backwards++];
      const int chunk = code > 0 ? code - 1 : -code - 1;
      row.emplace_back(
          make_action(code > 0 ? Op::kForward : Op::kFullBackward, chunk * run.ranks + rank, step.microbatch));
    }
  }
  return schedule;
}

}  // namespace orders
}  // namespace automodel::schedule
