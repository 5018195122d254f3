#include "schedule/generators.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/spelling.h"
#include "schedule/orders.h"

namespace automodel::schedule {
namespace {

constexpr std::string_view kTorchClass = "torch's class name";
constexpr std::string_view kNemoDoc = "as NeMo AutoModel's documentation writes it";

constexpr std::array kGPipeAliases = {Alias{"ScheduleGPipe", kTorchClass}};
constexpr std::array k1F1BAliases = {Alias{"Schedule1F1B", kTorchClass}};
constexpr std::array kInterleaved1F1BAliases = {
    Alias{"interleaved_1f1b", kNemoDoc},
    Alias{"dfs",
          "NeMo AutoModel's documentation: depth-first, the order that takes microbatches through all stages as "
          "early as it can; its opposite is looped_bfs"},
    Alias{"ScheduleInterleaved1F1B", kTorchClass},
};
constexpr std::array kLoopedBFSAliases = {
    Alias{"looped_bfs", kNemoDoc},
    Alias{"bfs", "breadth-first"},
    Alias{"ScheduleLoopedBFS", kTorchClass},
};
constexpr std::array kInterleavedZeroBubbleAliases = {
    Alias{"zero_bubble", "NeMo AutoModel's documentation: the zero-bubble schedule with loop placement"},
    Alias{"zb1p", "its name in the zero-bubble paper (arXiv 2401.10241): the memory of 1F1B"},
    Alias{"ScheduleInterleavedZeroBubble", kTorchClass},
};
constexpr std::array kZBVAliases = {
    Alias{"v_schedule", "NeMo AutoModel's documentation: the schedule with V placement"},
    Alias{"zbv", "its name in the zero-bubble paper (arXiv 2401.10241)"},
    Alias{"ScheduleZBVZeroBubble", kTorchClass},
};
constexpr std::array kDualPipeVAliases = {Alias{"ScheduleDualPipeV", kTorchClass}};

constexpr std::array kSearchedAliases = {Alias{"search", "its name in `automodel schedule`"}};

constexpr auto kLoop = PlacementStyle::kLoop;
constexpr auto kV = PlacementStyle::kV;

constexpr std::array kGenerators = {
    Generator{"GPipe", kGPipeAliases, "all forwards, then all backwards; keeps every microbatch in memory", kLoop, true,
              1, 1, nullptr, orders::gpipe, "1F1B takes the same time in less memory"},
    Generator{"1F1B", k1F1BAliases,
              "one forward, one backward once the pipeline is full; at most as many microbatches in memory as stages "
              "follow",
              kLoop, true, 1, 1, nullptr, orders::one_f_one_b},
    Generator{"Interleaved1F1B", kInterleaved1F1BAliases,
              "1F1B over several stages per rank: the bubble shrinks by the number of stages per rank", kLoop, false, 1,
              0, orders::check_rounds, orders::interleaved_1f1b},
    Generator{"LoopedBFS", kLoopedBFSAliases,
              "GPipe over several stages per rank: all microbatches through a stage before the rank turns to its next",
              kLoop, false, 1, 0, nullptr, orders::looped_bfs, "Interleaved1F1B takes the same time in less memory"},
    Generator{"InterleavedZeroBubble", kInterleavedZeroBubbleAliases,
              "Interleaved1F1B whose weight gradients are computed later, where a rank would wait", kLoop, false, 1, 0,
              orders::check_rounds, orders::interleaved_zero_bubble},
    Generator{
        "ZBVZeroBubble", kZBVAliases,
        "two stages per rank placed as a V, weight gradients apart; no bubble where F, I and W take the same time", kV,
        false, 2, 2, nullptr, orders::zbv_zero_bubble},
    Generator{"DualPipeV", kDualPipeVAliases,
              "two stages per rank placed as a V; a forward and the backward of another microbatch run as one pair", kV,
              false, 2, 2, orders::check_dual_pipe_v, orders::dual_pipe_v},
    Generator{"MegatronInterleaved",
              {},
              "Megatron Core's interleaving, with microbatch_group_size_per_vp_stage",
              kLoop,
              false,
              1,
              0,
              orders::check_megatron_interleaved,
              orders::megatron_interleaved,
              "it only differs from Interleaved1F1B by a group size that the recipe gives"},
    Generator{"ZB-H1",
              {},
              "zero bubble with the memory of 1F1B: weight gradients apart, a third of 1F1B's bubble",
              kLoop,
              true,
              1,
              1,
              nullptr,
              orders::zb_h1},
    Generator{"ZB-H2",
              {},
              "zero bubble with twice the memory of 1F1B; no bubble where F, I and W take the same time",
              kLoop,
              true,
              1,
              1,
              nullptr,
              orders::zb_h2},
    Generator{"V-Half",
              {},
              "two stages per rank placed as a V, about half of ZBVZeroBubble's activations",
              kV,
              false,
              2,
              2,
              nullptr,
              orders::v_half},
    Generator{"V-Min",
              {},
              "two stages per rank placed as a V, about a third of ZBVZeroBubble's activations",
              kV,
              false,
              2,
              2,
              nullptr,
              orders::v_min},
    Generator{"searched", kSearchedAliases,
              "the fastest order that a search finds for the plan's estimated times and memory, with one, two or four "
              "stages per rank in a loop or two as a V",
              kLoop, false, 1, 0, nullptr, nullptr, "each plan would be searched again", true},
    Generator{"PipelineScheduleSingle",
              {},
              "the order of a CSV file, one stage per rank",
              kLoop,
              true,
              1,
              1,
              nullptr,
              nullptr,
              "a file gives its order"},
    Generator{"PipelineScheduleMulti",
              {},
              "the order of a CSV file, any number of stages per rank",
              kLoop,
              false,
              1,
              0,
              nullptr,
              nullptr,
              "a file gives its order"},
};

/// Lower case, without hyphens: V-Half, v-half and vhalf are one name.
std::string folded(std::string_view name) {
  std::string out;
  for (const char c : name)
    if (c != '-') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}
bool same_word(std::string_view a, std::string_view b) {
  return folded(a) == folded(b);
}

Diagnostics check_sizes(const Request& request) {
  Diagnostics problems;
  if (request.ranks < 1 || request.ranks > kMaxRanks)
    problems.add("schedule-ranks")
        .says("{} pipeline ranks", request.ranks)
        .hint("a pipeline has 1 to {} ranks", kMaxRanks);
  if (request.stages_per_rank < 1 || request.stages_per_rank > kMaxStages)
    problems.add("schedule-stages-per-rank")
        .says("{} stages per rank", request.stages_per_rank)
        .hint("a rank has 1 to {} stages", kMaxStages);
  if (request.microbatches < 1 || request.microbatches > kMaxMicrobatches)
    problems.add("schedule-microbatches")
        .says("{} microbatches", request.microbatches)
        .hint("a step has 1 to {} microbatches", kMaxMicrobatches);
  if (!problems.empty()) return problems;
  const auto pairs = std::int64_t{request.ranks} * request.stages_per_rank * request.microbatches;
  if (std::int64_t{request.ranks} * request.stages_per_rank > kMaxStages || pairs > kMaxPairs)
    problems.add("schedule-too-large")
        .says("{} ranks of {} stages and {} microbatches make too large a schedule", request.ranks,
              request.stages_per_rank, request.microbatches)
        .hint("at most {} stages, and {} stages times microbatches", kMaxStages, kMaxPairs);
  return problems;
}

}  // namespace

std::span<const Generator> generators() {
  return kGenerators;
}

const Generator* find_generator(std::string_view name) {
  for (const auto& row : kGenerators) {
    if (same_word(row.name, name)) return &row;
    for (const auto& alias : row.aliases)
      if (same_word(alias.name, name)) return &row;
  }
  return nullptr;
}

Diagnostic unknown_schedule(std::string_view name) {
  std::vector<std::string_view> names;
  std::vector<std::string_view> spellings;
  for (const auto& row : kGenerators) {
    names.push_back(row.name);
    spellings.push_back(row.name);
    for (const auto& alias : row.aliases) spellings.push_back(alias.name);
  }
  const auto near = nearest(name, spellings);
  return Diagnostic{"schedule-unknown"}
      .says("unknown schedule '{}'", name.substr(0, 64))
      .hint("{}known: {}", near.empty() ? "" : fmt::format("did you mean '{}'? ", near), join(names));
}

Diagnostics check_request(const Generator& generator, const Request& request) {
  Diagnostics problems = check_sizes(request);
  if (!problems.empty()) return problems;
  const int lowest = generator.min_stages_per_rank;
  const int highest = generator.max_stages_per_rank;
  if (request.stages_per_rank < lowest || (highest > 0 && request.stages_per_rank > highest))
    problems.add("schedule-stages-per-rank")
        .says("{} cannot have {} stages per rank", generator.name, request.stages_per_rank)
        .hint("it needs {}{} stage{} per rank: {} on {} ranks", highest == lowest ? "exactly " : "at least ", lowest,
              lowest == 1 ? "" : "s", lowest * request.ranks, request.ranks);
  if (generator.generate == nullptr)
    problems.add("schedule-needs-csv")
        .says("the order of {} comes from a CSV file", generator.name)
        .hint("name the file in pp_schedule_csv, or choose a schedule that has an order of its own");
  if (problems.empty() && generator.check != nullptr) problems = generator.check(request);
  return problems;
}

Schedule generate(const Generator& generator, const Request& request) {
  AUTOMODEL_CHECK(check_request(generator, request).empty(), "a schedule that cannot be made");
  return generator.generate(request);
}

}  // namespace automodel::schedule
