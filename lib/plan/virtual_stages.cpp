#include "plan/virtual_stages.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace automodel::plan {
namespace {

constexpr std::string_view kPpKey = "distributed.pp_size";
constexpr std::string_view kLayersKey = "distributed.pipeline.layers_per_stage";

enum class Verdict { kGood, kBadNumber, kIndivisible, kNotSingle, kNotMulti, kNotV };

struct Outcome {
  Verdict verdict = Verdict::kGood;
  std::int64_t wanted = 0;  ///< stages before rounding
  std::int64_t stages = 0;
  std::int64_t per_rank = 0;
};

Outcome evaluate(const VirtualStagesRequest& r) {
  Outcome out;
  if (r.layers < 1 || r.pp_size < 1 || r.layers_per_stage.value_or(1) < 1 || r.pp_size > (1 << 24) ||
      r.layers > (1 << 24)) {
    out.verdict = Verdict::kBadNumber;
    return out;
  }
  if (!r.layers_per_stage) {
    out.per_rank = r.single_stage ? 1 : 2;
    out.stages = out.wanted = r.pp_size * out.per_rank;
    return out;
  }
  const std::int64_t per_stage = std::min(*r.layers_per_stage, r.layers);
  out.stages = out.wanted = (r.layers + per_stage - 1) / per_stage;
  if (const std::int64_t rest = out.stages % r.pp_size; rest != 0) {
    if (r.rounding == StageRounding::kRefuse) {
      out.verdict = Verdict::kIndivisible;
      return out;
    }
    out.stages += r.rounding == StageRounding::kUp ? r.pp_size - rest : -rest;
  }
  out.per_rank = out.stages / r.pp_size;
  if (r.single_stage && out.per_rank != 1) out.verdict = Verdict::kNotSingle;
  if (!r.single_stage && out.per_rank < 2) out.verdict = Verdict::kNotMulti;
  if (!r.single_stage && r.v_placement && out.per_rank != 2) out.verdict = Verdict::kNotV;
  return out;
}

/// Whether the request is valid and gives every stage at least one layer.
bool works(const VirtualStagesRequest& request) {
  const auto outcome = evaluate(request);
  return outcome.verdict == Verdict::kGood && outcome.stages <= request.layers;
}

/// The nearest values on both sides of `current` that work, as "key: value".
template <class Change>
void add_nearest(std::vector<std::string>& words, std::string_view key, std::int64_t current, std::int64_t most,
                 const Change& change) {
  const auto add = [&](std::int64_t value) { words.push_back(fmt::format("{}: {}", key, value)); };
  for (std::int64_t value = std::min(current - 1, most); value >= 1; --value)
    if (works(change(value))) {
      add(value);
      break;
    }
  for (std::int64_t value = current + 1; value <= most; ++value)
    if (works(change(value))) {
      add(value);
      break;
    }
}

std::string advice(const VirtualStagesRequest& request, std::string_view rule) {
  std::vector<std::string> words;
  if (request.layers_per_stage)
    add_nearest(words, "layers_per_stage", *request.layers_per_stage, request.layers, [&](std::int64_t value) {
      auto changed = request;
      changed.layers_per_stage = value;
      return changed;
    });
  for (const auto rounding : {StageRounding::kUp, StageRounding::kDown}) {
    auto changed = request;
    changed.rounding = rounding;
    if (rounding != request.rounding && works(changed))
      words.push_back(fmt::format("round_virtual_stages_to_pp_multiple: {}", name_of(rounding)));
  }
  if (words.empty())
    add_nearest(words, "pp_size", request.pp_size, request.layers, [&](std::int64_t value) {
      auto changed = request;
      changed.pp_size = value;
      return changed;
    });
  std::string out(rule);
  for (std::size_t i = 0; i < words.size(); ++i) {
    out += i == 0 ? "; use " : i + 1 == words.size() ? " or " : ", ";
    out += words[i];
  }
  auto without = request;
  without.layers_per_stage = std::nullopt;
  if (request.layers_per_stage && works(without))
    out += words.empty() ? "; leave layers_per_stage out" : ", or leave layers_per_stage out";
  return out;
}

void refuse_numbers(const VirtualStagesRequest& r, Diagnostics& problems) {
  const auto check = [&](std::int64_t value, std::string_view name, std::string_view key) {
    if (value >= 1 && value <= (1 << 24)) return;
    problems.add("bad-value", std::string(key)).says("{} is {}", name, value).hint("it must be from 1 to {}", 1 << 24);
  };
  check(r.layers, "the number of layers", "");
  check(r.pp_size, "pp_size", kPpKey);
  check(std::min<std::int64_t>(r.layers_per_stage.value_or(1), 1 << 24), "layers_per_stage", kLayersKey);
}

}  // namespace

std::string_view name_of(StageRounding rounding) {
  return rounding == StageRounding::kUp ? "up" : rounding == StageRounding::kDown ? "down" : "none";
}

std::optional<VirtualStages> calculate_virtual_stages(const VirtualStagesRequest& request, Diagnostics& problems) {
  const auto outcome = evaluate(request);
  const auto refuse = [&](ProblemId id, const std::string& what, std::string_view rule) {
    problems.add(id, std::string(kLayersKey))
        .says("{} layers, {} per stage, on {} pipeline ranks: {}", request.layers, request.layers_per_stage.value_or(0),
              request.pp_size, what)
        .hint(advice(request, rule));
  };
  const auto a_rank = fmt::format("{} stage{} per rank", outcome.per_rank, outcome.per_rank == 1 ? "" : "s");
  switch (outcome.verdict) {
    case Verdict::kGood: return VirtualStages{static_cast<int>(outcome.stages), static_cast<int>(outcome.per_rank)};
    case Verdict::kBadNumber: refuse_numbers(request, problems); break;
    case Verdict::kIndivisible:
      refuse("indivisible", fmt::format("{} stages are not a multiple of pp_size", outcome.wanted),
             "the number of stages must be a multiple of pp_size");
      break;
    case Verdict::kNotSingle:
      refuse("schedule-single-stage", a_rank, "this schedule runs exactly one stage per rank");
      break;
    case Verdict::kNotMulti:
      refuse("schedule-multi-stage", a_rank, "this schedule runs at least two stages per rank");
      break;
    case Verdict::kNotV: refuse("schedule-v-stages", a_rank, "this schedule runs exactly two stages per rank"); break;
  }
  return std::nullopt;
}

}  // namespace automodel::plan
