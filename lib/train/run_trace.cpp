#include "train/run_trace.h"

#include <algorithm>
#include <chrono>
#include <sstream>

#include <fmt/format.h>

#include "estimate/estimated_plan.h"
#include "schedule/chrome_trace.h"

namespace automodel::train {
namespace {

/// Wall-clock time: shared by the ranks of one machine, and close to that of others.
double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

RunTrace::RunTrace(pipeline::Pipeline& pipeline, const estimate::EstimatedPlan& plan, int pp_rank, bool records)
    : plan_(plan), pp_rank_(pp_rank), records_(records) {
  pipeline.add_watch([this](const schedule::Slot& slot) {
    if (on_) marks_.push_back({now(), slot});
  });
}

void RunTrace::begin_step() {
  on_ = records_;
  marks_.clear();
  begin_ = now();
}

void RunTrace::end_step() {
  on_ = false;
  end_ = now();
  kept_ = marks_;
}

std::string RunTrace::finish(comm::World& world) const {
  std::string text;
  if (records_)
    for (std::size_t i = 0; i < kept_.size(); ++i)
      text += fmt::format("{} {:.9f} {:.9f} {}\n", pp_rank_, kept_[i].seconds,
                          i + 1 < kept_.size() ? kept_[i + 1].seconds : end_, schedule::to_text(kept_[i].slot));
  const auto all = world.gather_text(text);
  if (world.rank() != 0 || !plan_.estimate) return "";
  schedule::Timeline executed;
  executed.shape = plan_.pipeline->schedule.shape;
  executed.placement = plan_.pipeline->schedule.placement;
  double first = 0;
  for (const auto& each : all) {
    std::istringstream lines(each);
    int rank = 0;
    double begin = 0, end = 0;
    std::string cell;
    while (lines >> rank >> begin >> end >> cell) {
      schedule::ParseProblem ignored;
      const auto slot = schedule::parse_slot(cell, ignored);
      if (!slot) continue;
      if (first == 0 || begin < first) first = begin;
      for (const auto& action : slot->actions()) {
        schedule::Event event;
        event.start = begin;
        event.end = end;
        event.action = action;
        event.rank = rank;
        event.lane = schedule::is_compute(action.op()) ? schedule::Lane::kCompute : schedule::Lane::kCommunication;
        executed.events.push_back(event);
      }
    }
  }
  for (auto& event : executed.events) {
    event.start -= first;
    event.end -= first;
    executed.makespan = std::max(executed.makespan, event.end);
  }
  return schedule::chrome_trace({{"planned", &plan_.estimate->time.timeline}, {"executed", &executed}});
}

}  // namespace automodel::train
