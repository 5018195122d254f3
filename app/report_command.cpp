#include <fmt/format.h>

#include "commands.h"
#include "report.h"
#include "report/page.h"
#include "report/run_files.h"

namespace automodel::app {

int run_report(const Options& options) {
  std::vector<report::RunFiles> runs;
  for (const auto& folder : options.folders) runs.push_back(report::read_run(folder));
  const auto page = report::report_page(runs);
  const auto file = options.output.empty() ? options.folders.front() + "/report.html" : options.output;
  write_file(file, page);
  out(file + "\n");
  return code(ExitCode::kOk);
}

}  // namespace automodel::app
