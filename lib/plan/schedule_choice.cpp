#include "plan/schedule_choice.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

namespace automodel::plan {
namespace {

constexpr std::string_view kMicrobatchKey = "distributed.pipeline.pp_microbatch_size";

bool fits(const ScheduleRequest& request, std::int64_t microbatch, std::int64_t batch) {
  if (microbatch < 1 || batch < 1 || batch % microbatch != 0) return false;
  return !request.needs_full_pipeline || batch / microbatch >= request.stages;
}

/// "RULE; use pp_microbatch_size: 2, pp_microbatch_size: 4 or pp_batch_size: 9".
std::string advice(const ScheduleRequest& r, std::string_view rule) {
  std::vector<std::string> words;
  // A divisor of the batch lies within it; a batch that fits lies within one pipeline of what there is.
  const auto microbatch = [&](std::int64_t value) { words.push_back(fmt::format("pp_microbatch_size: {}", value)); };
  for (std::int64_t value = std::min(r.microbatch_size - 1, r.batch_size); value >= 1; --value)
    if (fits(r, value, r.batch_size)) {
      microbatch(value);
      break;
    }
  for (std::int64_t value = r.microbatch_size + 1; value <= r.batch_size; ++value)
    if (fits(r, value, r.batch_size)) {
      microbatch(value);
      break;
    }
  const std::int64_t step = r.microbatch_size;
  const std::int64_t least = step * (r.needs_full_pipeline ? r.stages : 1);
  const std::int64_t below = r.batch_size / step * step;
  if (below >= least && below != r.batch_size) words.push_back(fmt::format("pp_batch_size: {}", below));
  words.push_back(fmt::format("pp_batch_size: {}", std::max(least, below + step)));
  std::string out(rule);
  for (std::size_t i = 0; i < words.size(); ++i) {
    out += i == 0 ? "; use " : i + 1 == words.size() ? " or " : ", ";
    out += words[i];
  }
  return out;
}

/// Sizes above this are no batch; below it the search for advice is instant.
constexpr std::int64_t kMostSequences = 1 << 20;

void check_numbers(const ScheduleRequest& r, Diagnostics& problems) {
  const auto check = [&](std::int64_t value, std::string_view name) {
    if (value >= 1 && value <= kMostSequences) return;
    problems.push_back({"bad-value",
                        fmt::format("{} is {}", name, value),
                        fmt::format("it must be from 1 to {}", kMostSequences),
                        {},
                        fmt::format("distributed.pipeline.{}", name)});
  };
  check(r.microbatch_size, "pp_microbatch_size");
  check(r.batch_size, "pp_batch_size");
  if (r.local_stages < 1 || r.stages < r.local_stages)
    problems.push_back({"bad-value", fmt::format("{} of {} stages on a rank", r.local_stages, r.stages),
                        "every rank runs at least one stage"});
}

}  // namespace

std::optional<ScheduleChoice> choose_schedule(const ScheduleRequest& r, Diagnostics& problems) {
  const std::size_t before = problems.size();
  std::error_code ignored;
  if (r.csv && !std::filesystem::is_regular_file(*r.csv, ignored))
    problems.push_back({"missing-file",
                        fmt::format("'{}' is not a file", *r.csv),
                        "it must be a schedule in CSV form",
                        {},
                        "distributed.pipeline.pp_schedule_csv"});
  check_numbers(r, problems);
  if (problems.size() > before) return std::nullopt;
  const auto refuse = [&](std::string_view id, std::string message, std::string help, std::string_view key) {
    problems.push_back({std::string(id), std::move(message), std::move(help), {}, std::string(key)});
  };
  if (!r.csv && r.single_stage && r.local_stages != 1)
    refuse("schedule-single-stage", fmt::format("{} stages a rank with schedule {}", r.local_stages, r.name),
           "this schedule runs exactly one stage a rank", "distributed.pipeline.pp_schedule");
  const std::int64_t microbatches = r.batch_size / r.microbatch_size;
  if (r.batch_size % r.microbatch_size != 0)
    refuse(
        "indivisible",
        fmt::format("a batch of {} sequences cannot be cut into microbatches of {}", r.batch_size, r.microbatch_size),
        advice(r, "pp_batch_size must be a multiple of pp_microbatch_size"), kMicrobatchKey);
  else if (r.needs_full_pipeline && microbatches < r.stages)
    refuse("schedule-microbatches",
           fmt::format("{} microbatch{} for {} stages with schedule {}", microbatches, microbatches == 1 ? "" : "es",
                       r.stages, r.name),
           advice(r, "this schedule needs at least as many microbatches as stages"), kMicrobatchKey);
  if (problems.size() > before) return std::nullopt;

  ScheduleChoice out;
  out.microbatches = microbatches;
  out.summary = fmt::format("schedule {}: {} microbatch{}, {} stage{} a rank", r.csv ? *r.csv : r.name, microbatches,
                            microbatches == 1 ? "" : "es", r.local_stages, r.local_stages == 1 ? "" : "s");
  if (microbatches < r.local_stages)
    out.warnings.push_back({"few-microbatches",
                            fmt::format("{} microbatch{} for {} stages a rank: most of the time is bubble",
                                        microbatches, microbatches == 1 ? "" : "es", r.local_stages),
                            "a smaller pp_microbatch_size or a larger batch fills the pipeline",
                            {},
                            std::string(kMicrobatchKey)});
  return out;
}

}  // namespace automodel::plan
