#include "schedule/action.h"

#include <algorithm>

namespace automodel::schedule {
namespace {

void append_text(std::string& out, const Action& action) {
  out += std::to_string(action.stage().value);
  out += traits(action.op()).spelling;
  if (action.microbatch() != kNoMicrobatch) out += std::to_string(action.microbatch().value);
}

void append_text(std::string& out, const Slot& slot) {
  const auto actions = slot.actions();
  if (slot.is_bubble()) return;
  if (!slot.is_overlap()) return append_text(out, actions[0]);
  out += '(';
  append_text(out, actions[0]);
  out += ';';
  append_text(out, actions[1]);
  out += ")OVERLAP_F_B";
}

template <class Keep>
Schedule filtered(const Schedule& schedule, Keep&& keep) {
  Schedule out(schedule.size());
  for (std::size_t rank = 0; rank < schedule.size(); ++rank) {
    out[rank].reserve(schedule[rank].size());
    for (const Slot& slot : schedule[rank]) keep(slot, out[rank]);
  }
  return out;
}

}  // namespace

Shape shape_of(const Schedule& schedule) {
  Shape shape{static_cast<int>(schedule.size()), 0, 0};
  for (const Row& row : schedule)
    for (const Slot& slot : row)
      for (const Action& action : slot.actions()) {
        shape.stages = std::max(shape.stages, action.stage().value + 1);
        shape.microbatches = std::max(shape.microbatches, action.microbatch().value + 1);
      }
  return shape;
}

Schedule compute_only(const Schedule& schedule) {
  return filtered(schedule, [](const Slot& slot, Row& row) {
    if (!slot.is_bubble() && is_compute(slot.actions()[0].op())) row.push_back(slot);
  });
}

Schedule forward_only(const Schedule& schedule) {
  return filtered(schedule, [](const Slot& slot, Row& row) {
    for (const Action& action : slot.actions())
      if (action.op() == Op::kForward) row.emplace_back(action);
  });
}

std::string to_text(const Action& action) {
  std::string out;
  append_text(out, action);
  return out;
}

std::string to_text(const Slot& slot) {
  std::string out;
  append_text(out, slot);
  return out;
}

std::string to_text(const Row& row) {
  std::string out;
  for (std::size_t step = 0; step < row.size(); ++step) {
    if (step > 0) out += ',';
    append_text(out, row[step]);
  }
  return out;
}

}  // namespace automodel::schedule
