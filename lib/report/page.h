// The report on one or more runs, as one self-contained HTML page.
#pragma once

#include <string>
#include <vector>

#include "report/run_files.h"

namespace automodel::report {

std::string to_page(const std::vector<RunFiles>& runs);

}  // namespace automodel::report
