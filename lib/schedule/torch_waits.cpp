#include "schedule/torch_waits.h"

#include <unordered_set>

#include "base/error.h"
#include "schedule/lower.h"

namespace automodel::schedule {
namespace {

constexpr std::string_view kWait = "WAIT_";

std::string wait_text(const Action& action) {
  std::string text = to_text(action);
  return text.insert(text.find_first_not_of("0123456789"), kWait);
}

/// After every REDUCE_GRAD an idle step, where torch waits for it; the step takes a turn, which moves later receives.
Row with_idle_steps(const Row& row) {
  Row out;
  out.reserve(row.size() + 8);
  for (const Slot& slot : row) {
    out.push_back(slot);
    if (!slot.is_bubble() && slot.actions()[0].op() == Op::kReduceGrad) out.emplace_back();
  }
  return out;
}

/// One row with its waits: for a forward's message after the backward of that microbatch, for reductions at the idle
/// steps, for gradients at the end.
std::string row_text(const Row& row) {
  std::unordered_set<std::string> sent;
  for (const Slot& slot : row)
    for (const Action& action : slot.actions())
      if (action.op() == Op::kSendForward) sent.insert(to_text(action));
  std::string out;
  std::string waits_at_end;
  Action reduced;
  const auto add = [&](const std::string& cell) { out += (out.empty() ? "" : ",") + cell; };
  for (const Slot& slot : row) {
    if (slot.is_bubble()) {
      add(wait_text(reduced));
      continue;
    }
    add(to_text(slot));
    for (const Action& action : slot.actions()) {
      if (action.op() == Op::kReduceGrad) reduced = action;
      if (action.op() == Op::kSendBackward) waits_at_end += "," + wait_text(action);
      if (action.op() != Op::kBackwardInput && action.op() != Op::kFullBackward) continue;
      const Action message(Op::kSendForward, action.stage(), action.microbatch());
      if (sent.contains(to_text(message))) add(wait_text(message));
    }
  }
  return out + waits_at_end;
}

}  // namespace

std::optional<Action> parse_wait(std::string_view cell) {
  const std::size_t begin = cell.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return std::nullopt;
  const std::size_t word = cell.find_first_not_of("0123456789", begin);
  if (word == begin || word == std::string_view::npos || !cell.substr(word).starts_with(kWait)) return std::nullopt;
  ParseProblem problem;
  const auto slot = parse_slot(
      std::string(cell.substr(begin, word - begin)) + std::string(cell.substr(word + kWait.size())), problem);
  if (!slot || slot->is_bubble() || slot->is_overlap()) return std::nullopt;
  const Action& action = slot->actions()[0];
  const bool waits =
      action.op() == Op::kSendForward || action.op() == Op::kSendBackward || action.op() == Op::kReduceGrad;
  return waits ? std::optional(action) : std::nullopt;
}

std::string to_csv_with_waits(const Schedule& order, const Placement& placement, const Shape& shape) {
  Schedule rows;
  rows.reserve(order.size());
  for (const Row& row : order) rows.push_back(with_idle_steps(add_reduce_grad(add_unshard_reshard(row), shape)));
  const Lowered lowered = add_send_recv(rows, placement, shape, {}, IdleSteps::kKeep);
  AUTOMODEL_CHECK(lowered.problems.empty(), "a table that does not end");
  std::string out;
  for (const Row& row : lowered.schedule) out += row_text(row) + "\r\n";
  return out;
}

}  // namespace automodel::schedule
