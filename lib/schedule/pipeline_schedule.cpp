#include "schedule/pipeline_schedule.h"

#include <utility>

#include "base/error.h"
#include "schedule/lower.h"
#include "schedule/validate.h"

namespace automodel::schedule {
namespace {

/// Everything after the order. A non-empty `training` table is used as is instead of lowering the order.
void complete(PipelineSchedule& out, const Origin& origin, Schedule training) {
  auto placement = infer_placement(out.order, out.shape.stages);
  AUTOMODEL_CHECK(placement.has_value(), "a valid table places every stage");
  out.placement = *std::move(placement);
  if (training.empty()) {
    Lowered lowered = lower(out.order, out.placement, out.shape, origin);
    out.problems = std::move(lowered.problems);
    training = std::move(lowered.schedule);
  }
  if (!out.ok()) return;
  out.training = std::move(training);
  out.proof = prove(out.training, out.placement, out.shape, origin);
  out.problems = out.proof.problems;
  if (!out.ok()) return;
  // Waits of a file: until here they kept its positions.
  for (Row& row : out.training) std::erase_if(row, [](const Slot& slot) { return slot.is_bubble(); });
  Lowered evaluation = lower(forward_only(out.order), out.placement, out.shape);
  AUTOMODEL_CHECK(evaluation.problems.empty(), "the forwards of a table that ends, end");
  out.evaluation = std::move(evaluation.schedule);
  out.evaluation_proof = prove(out.evaluation, out.placement, out.shape);
  AUTOMODEL_CHECK(out.evaluation_proof.ok(), to_text(out.evaluation_proof.problems));
}

}  // namespace

PipelineSchedule make_schedule(const Generator& generator, const Request& request) {
  PipelineSchedule out;
  out.shape = request.shape();
  out.problems = check_request(generator, request);
  if (!out.ok()) return out;
  out.order = generate(generator, request);
  const Origin origin{std::string(generator.name)};
  out.problems = validate(out.order, out.shape, origin);
  if (out.ok()) complete(out, origin, {});
  AUTOMODEL_CHECK(out.ok(), to_text(out.problems));
  return out;
}

PipelineSchedule make_schedule(CsvTable table, CsvFormat format, const Shape& shape) {
  PipelineSchedule out;
  out.shape = shape;
  out.problems = std::move(table.problems);
  if (out.ok()) out.problems = validate(table.schedule, shape, table.origin);
  if (!out.ok()) return out;
  const bool is_complete = format == CsvFormat::kComputeComms;
  out.order = is_complete ? compute_only(table.schedule) : std::move(table.schedule);
  complete(out, table.origin, is_complete ? std::move(table.schedule) : Schedule{});
  return out;
}

}  // namespace automodel::schedule
