// The report on one run or several: one HTML page without anything from elsewhere.
#pragma once

#include <string>
#include <vector>

#include "report/run_files.h"

namespace automodel::report {

std::string to_page(const std::vector<RunFiles>& runs);

}  // namespace automodel::report
