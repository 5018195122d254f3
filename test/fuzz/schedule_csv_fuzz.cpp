// Arbitrary bytes as a schedule: it is proven and runs, or is refused with problems and their locations.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "schedule/csv.h"
#include "schedule/pipeline_schedule.h"
#include "schedule/simulate.h"

namespace {

using namespace automodel;            // NOLINT(google-build-using-namespace): a program of one file
using namespace automodel::schedule;  // NOLINT(google-build-using-namespace)

void require(bool condition) {
  if (!condition) std::abort();
}

void run(const std::string& text, CsvFormat format) {
  CsvTable table = read_csv(text, "fuzz.csv", format);
  for (const Diagnostic& problem : table.problems) require(!problem.message.empty());
  if (!table.problems.empty()) return;
  // A schedule that was read is the same when written and read back, except a row of one idle step, which is written as
  // a blank line.
  const std::string written = to_csv(table.schedule);
  require(to_csv(read_csv(written, "again.csv", format).schedule) == written);

  const Shape shape = shape_of(table.schedule);
  const PipelineSchedule made = make_schedule(std::move(table), format, shape);
  for (const Diagnostic& problem : made.problems) require(!problem.message.empty());
  if (!made.ok()) return;
  const Timeline timeline = simulate(made.training, made.placement, made.shape, unit_costs(shape.stages));
  require(std::isfinite(timeline.makespan) && timeline.bubble_fraction >= -1e-9 && timeline.bubble_fraction <= 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const CsvFormat format : {CsvFormat::kComputeOnly, CsvFormat::kComputeComms}) run(text, format);
  return 0;
}
