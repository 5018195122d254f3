#include "estimate/estimate.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/spelling.h"
#include "base/text_table.h"
#include "plan/training_plan.h"
#include "schedule/timeline_text.h"

namespace automodel::estimate {
namespace {

constexpr int kMostRanks = 8;  // table rows; with more ranks only the first, last and heaviest

std::vector<int> shown_ranks(const MemoryPlan& memory) {
  std::vector<int> out;
  const int ranks = static_cast<int>(memory.ranks.size());
  for (int r = 0; r < ranks; ++r)
    if (ranks <= kMostRanks || r < 2 || r + 2 >= ranks || r == memory.heaviest) out.push_back(r);
  return out;
}

/// Describes what a rank keeps in host memory instead of on the device.
std::string host_text(const Estimate& estimate, const plan::TrainingPlan& plan, double bytes) {
  if (bytes <= 0) return "";
  std::vector<std::string_view> what;
  if (plan.sharding.offloaded) what.emplace_back("master weights, gradients and optimizer states");
  if (plan.execution.activations.offloading) what.emplace_back("activations kept for their backward pass");
  if (estimate.copies) what.emplace_back("copies of the state");
  if (what.empty()) what.emplace_back("the checkpoint while it is written");
  return fmt::format("; and {} per rank in host memory: {}", format_bytes(bytes), join(what));
}

std::string copies_text(const Estimate& estimate) {
  if (!estimate.copies) return "";
  const auto& copies = *estimate.copies;
  return fmt::format(
      "          copies    every {} steps {} of state into the memory of {}: {} on each, {} while a newer one is made; "
      "{} in that step, {} beside the next\n",
      copies.every, format_bytes(copies.state),
      copies.hosts == 1 ? "the host" : fmt::format("{} hosts, each part on two", copies.hosts),
      format_bytes(copies.host), format_bytes(copies.most()), format_seconds(copies.waiting),
      format_seconds(copies.background));
}

std::string memory_text(const Estimate& estimate, const plan::TrainingPlan& plan, Detail detail) {
  const bool pipelined = plan.pipelined;
  const auto& memory = estimate.memory;
  TextTable table(
      {"pp rank", "weights", "gradients", "optimizer", "activations", "logits", "buffers", "other", "peak", "in"});
  for (const int r : shown_ranks(memory)) {
    const auto& rank = memory.ranks[static_cast<std::size_t>(r)];
    const auto& m = rank.most();
    table.add({std::to_string(r), format_bytes(m.weights), format_bytes(m.gradients), format_bytes(m.optimizer),
               format_bytes(m.activations), format_bytes(m.logits), format_bytes(m.buffers), format_bytes(m.framework),
               format_bytes(m.total()) + (pipelined && r == memory.heaviest ? " heaviest" : ""),
               std::string(name_of(rank.peak))});
  }
  const auto& heaviest = memory.ranks[static_cast<std::size_t>(memory.heaviest)];
  std::string phases;
  for (std::size_t i = 0; i < kPhaseCount; ++i)
    phases += fmt::format("{}{} {}", phases.empty() ? "" : ", ", name_of(static_cast<Phase>(i)),
                          format_bytes(heaviest.phases[i].total()));
  // Reducing gradients at the end of the step may need more memory than the microbatches do.
  std::string elsewhere;
  if (heaviest.most_activations > 1.05 * heaviest.most().activations)
    elsewhere = fmt::format("          activations are {} at most, at another moment than the peak's\n",
                            format_bytes(heaviest.most_activations));
  std::string fit;
  if (!memory.capacity)
    fit = "memory of the device unknown: give hardware.profile or hardware.memory";
  else
    fit = fmt::format("{}: {} of {} ({:.0f}%)", name_of(memory.fit), format_bytes(heaviest.most().total()),
                      format_bytes(*memory.capacity), 100 * heaviest.most().total() / *memory.capacity);
  const auto verdict = fmt::format("memory    {}{}\n", fit, host_text(estimate, plan, heaviest.most().host));
  if (detail == Detail::kBrief) return verdict + copies_text(estimate);
  return verdict + table.text() + fmt::format("          phases of the heaviest: {}\n", phases) + elsewhere +
         copies_text(estimate);
}

std::string time_text(const Estimate& estimate, const plan::TrainingPlan& plan, Detail detail) {
  const auto& time = estimate.time;
  const int world = plan.mesh.world_size();
  std::string out =
      fmt::format("time      {} per step: {} {}{}{}, optimizer {}, other {}\n", format_seconds(time.step),
                  plan.pipelined ? "schedule" : "forward and backward", format_seconds(time.schedule),
                  plan.pipelined ? fmt::format(" (estimated bubble {:.1f}%)", 100 * time.bubble) : "",
                  time.communication > 0 ? fmt::format(", data parallel {}", format_seconds(time.communication)) : "",
                  format_seconds(time.optimizer), format_seconds(time.overhead));
  out += fmt::format("          {} tokens/s, {} per rank; MFU {:.1f}% of {:.4g} TFLOP/s ({}: {})\n",
                     format_count(time.tokens_per_second), format_count(time.tokens_per_second / world), 100 * time.mfu,
                     estimate.hardware.peak / 1e12, estimate.hardware.name, estimate.hardware.origin);
  if (estimate.steps)
    out += fmt::format("          the run's {} steps: {}{}\n", *estimate.steps,
                       format_seconds(3600 * estimate.run_hours()),
                       plan.cuda ? fmt::format(", {:.3g} GPU hours", estimate.run_hours() * world) : "");
  if (const auto heaviest = schedule::heaviest_rank(time.timeline); plan.pipelined && !heaviest.empty())
    out += fmt::format("          bounded: {}\n", heaviest);
  if (const auto& past = estimate.past; past.runs > 0)
    out += fmt::format("          corrected by {} past run{} (last {}): computed {}, measured {}; tensors at most {}\n",
                       past.runs, past.runs == 1 ? "" : "s", past.when, format_seconds(past.uncorrected),
                       format_seconds(past.seconds), format_bytes(past.bytes));
  if (estimate.float32_ratio > 0)
    out += fmt::format("          in float32 a step would take {:.1f} times as long on this processor\n",
                       estimate.float32_ratio);
  if (estimate.copies)
    out += fmt::format("          copies in memory add {} to it on average\n", format_seconds(time.copies));
  if (detail == Detail::kBrief) return out;
  out += fmt::format("          {} per step = 3 x forward{} ({} tokens; attention causal, recomputation not counted)\n",
                     format_flops(time.flops), plan.adapters ? ", of frozen weights 2 x" : "", plan.batch.tokens());
  for (const auto& each : time.traffic)
    out += fmt::format("          {} x{} over {}: {} per rank and step ({}), {}\n", mesh::name_of(each.axis), each.size,
                       name_of(each.link), format_bytes(each.bytes), each.what, format_seconds(each.seconds));
  return out;
}

void write_shares(JsonWriter& json, const MemoryShares& shares) {
  json.member("params", static_cast<std::int64_t>(shares.weights));
  json.member("grads", static_cast<std::int64_t>(shares.gradients));
  json.member("optimizer", static_cast<std::int64_t>(shares.optimizer));
  json.member("activations", static_cast<std::int64_t>(shares.activations));
  json.member("logits", static_cast<std::int64_t>(shares.logits));
  json.member("buffers", static_cast<std::int64_t>(shares.buffers));
  json.member("framework", static_cast<std::int64_t>(shares.framework));
  json.member("host", static_cast<std::int64_t>(shares.host));
  json.member("total", static_cast<std::int64_t>(shares.total()));
}

void write_memory(JsonWriter& json, const MemoryPlan& memory) {
  json.key("memory");
  json.begin_array();
  for (const auto& rank : memory.ranks) {
    json.begin_object();
    json.member("pp_rank", rank.pp_rank);
    json.member("parameters", rank.parameters);
    write_shares(json, rank.most());
    json.member("peak_phase", name_of(rank.peak));
    json.key("phases");
    json.begin_object();
    for (std::size_t i = 0; i < kPhaseCount; ++i) {
      json.key(name_of(static_cast<Phase>(i)));
      json.begin_object();
      write_shares(json, rank.phases[i]);
      json.end_object();
    }
    json.end_object();
    json.end_object();
  }
  json.end_array();
  json.key("fit");
  json.begin_object();
  json.member("verdict", name_of(memory.fit));
  json.member("heaviest_pp_rank", memory.heaviest);
  json.member("peak", static_cast<std::int64_t>(memory.peak()));
  json.key("capacity");
  if (memory.capacity)
    json.value(static_cast<std::int64_t>(*memory.capacity));
  else
    json.value(nullptr);
  json.end_object();
}

/// Adds the copies to the step time and everything derived from it.
void add_copies(TimePlan& time, const CopyPlan& copies) {
  time.copies = copy_seconds(copies, time.step);
  const double before = time.step;
  time.step += time.copies;
  time.tokens_per_second *= before / time.step;
  time.mfu *= before / time.step;
}

void write_copies(JsonWriter& json, const CopyPlan& copies) {
  json.key("memory_copies");
  json.begin_object();
  json.member("every_steps", copies.every);
  json.member("hosts", copies.hosts);
  json.member("state_bytes", static_cast<std::int64_t>(copies.state));
  json.member("host_bytes", static_cast<std::int64_t>(copies.host));
  json.member("most_host_bytes", static_cast<std::int64_t>(copies.most()));
  json.member("step_seconds", copies.waiting);
  json.member("background_seconds", copies.background);
  json.end_object();
}

void write_time(JsonWriter& json, const Estimate& estimate, int world) {
  const auto& time = estimate.time;
  const auto& past = estimate.past;
  json.key("time");
  json.begin_object();
  json.member("step", time.step);
  json.member("computed_step", past.runs > 0 ? past.uncorrected : time.step);
  json.member("past_runs", past.runs);
  json.member("past_tensor_bytes", past.bytes);
  json.member("float32_ratio", estimate.float32_ratio);
  if (estimate.steps) {
    json.member("run_steps", *estimate.steps);
    json.member("run_hours", estimate.run_hours());
    json.member("run_rank_hours", estimate.run_hours() * world);
  }
  json.member("schedule", time.schedule);
  json.member("data_parallel", time.communication);
  json.member("optimizer", time.optimizer);
  json.member("overhead", time.overhead);
  json.member("flops", time.flops);
  json.member("flops_formula",
              "3 x forward, 2 x where weights are frozen: 2 x matrix elements per token + 2 x (query + value width) x "
              "keys seen, causal");
  json.member("tokens_per_second", time.tokens_per_second);
  json.member("mfu", time.mfu);
  json.member("bubble_fraction", time.bubble);
  json.key("stages");
  json.begin_array();
  for (const auto& stage : time.stages) {
    json.begin_object();
    json.member("forward", stage.forward);
    json.member("backward_input", stage.backward_input);
    json.member("backward_weight", stage.backward_weight);
    json.member("backward", stage.backward);
    json.end_object();
  }
  json.end_array();
  json.key("traffic");
  json.begin_array();
  for (const auto& each : time.traffic) {
    json.begin_object();
    json.member("axis", mesh::name_of(each.axis));
    json.member("size", each.size);
    json.member("link", name_of(each.link));
    json.member("bytes", each.bytes);
    json.member("seconds", each.seconds);
    json.member("what", each.what);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

/// As ops::needs_counts judges the weights, except for widths and addresses.
bool has_groupable_experts(const plan::TrainingPlan& plan) {
  const auto& precision = plan.execution.precision;
  const bool adapted = plan.adapters && std::ranges::any_of(plan.adapters->all, [](const auto& each) {
                         return each.is_expert() && !each.adapts.empty();
                       });
  return plan.types.compute == DType::kBFloat16 && !precision.autocast && !precision.float8 &&
         !precision.fused_accumulation && !adapted;
}

}  // namespace

Hardware plan_hardware(const plan::TrainingPlan& plan, const config::Recipe& recipe, const MachineRequest& request,
                       Diagnostics& problems) {
  RatesRequest rates;
  if (plan.model)
    rates = {.spec = &plan.model->spec,
             .layout = &plan.model->layout,
             .microbatch = plan.batch.microbatch,
             .sequence = plan.batch.planned_length() / plan.mesh.sizes().cp};
  const auto& precision = plan.execution.precision;
  auto out =
      choose_hardware(recipe.hardware(),
                      {.cuda = plan.cuda,
                       .compute = plan.cuda ? precision.autocast.value_or(plan.types.compute) : plan.types.compute,
                       .world_size = plan.mesh.world_size(),
                       .per_node = request.ranks_per_node,
                       .gpu = request.gpu,
                       .stack = plan.stack,
                       .float8 = precision.float8 && !precision.float8->emulate,
                       .groupable = has_groupable_experts(plan),
                       .calibration = request.calibration,
                       .bfloat16 = request.bfloat16,
                       .rates = rates},
                      problems);
  // Documents in one row are told apart by LibTorch's flash attention, not cuDNN's.
  if (recipe.packed_sequence->packed_sequence_size() > 0) out.exponential = 0;
  // Other stacks with FSDP2 (NeMo AutoModel) dispatch tokens through DeepEP if experts are distributed.
  const bool fsdp = std::holds_alternative<config::FSDP2Config>(recipe.distributed->strategy());
  if (fsdp && out.stack && *out.stack != config::Stack::kOwn && !out.dispatcher && plan.mesh.sizes().ep > 1)
    out.dispatcher = config::Dispatcher::kDeduplicated;
  return out;
}

MemoryRequest memory_request(const config::Recipe& recipe, const Hardware& hardware) {
  return {.saves = recipe.checkpoint->enabled(),
          .saves_in_background = recipe.checkpoint->is_async(),
          .capacity = hardware.memory,
          .framework = hardware.framework};
}

Estimate make_estimate(const plan::TrainingPlan& plan, const config::Recipe& recipe, Hardware hardware) {
  Estimate out;
  out.hardware = std::move(hardware);
  if (const auto& last = recipe.step_scheduler->max_steps())
    out.steps = std::max<std::int64_t>(0, *last - recipe.step_scheduler->start_step());
  out.copies = plan_copies(plan, recipe, out.hardware);
  auto memory = memory_request(recipe, out.hardware);
  if (out.copies) memory.copies = out.copies->most() / std::clamp(out.hardware.per_node, 1, plan.mesh.world_size());
  out.memory = plan_memory(plan, memory);
  out.time = plan_time(plan, out.hardware);
  if (out.copies) add_copies(out.time, *out.copies);
  return out;
}

std::string to_text(const Estimate& estimate, const plan::TrainingPlan& plan, Detail detail) {
  return memory_text(estimate, plan, detail) + time_text(estimate, plan, detail);
}

void write_members(JsonWriter& json, const Estimate& estimate, const plan::TrainingPlan& plan) {
  json.key("hardware");
  json.begin_object();
  json.member("name", estimate.hardware.name);
  json.member("origin", estimate.hardware.origin);
  json.member("peak_flops", estimate.hardware.peak);
  json.member("ranks_per_node", estimate.hardware.per_node);
  json.member("calibrated", estimate.hardware.measured());
  json.end_object();
  write_memory(json, estimate.memory);
  write_time(json, estimate, plan.mesh.world_size());
  if (estimate.copies) write_copies(json, *estimate.copies);
}

}  // namespace automodel::estimate
