// HTML pages, each one self-contained file.
#pragma once

#include <string>
#include <vector>

#include "report/run_files.h"

namespace automodel::report {

std::string to_page(const std::vector<RunFiles>& runs);

/// A page that the scripts of the folder page draw from `data`, a JSON object. `nonce`: of the page's content security
/// policy; empty without one.
struct DrawnPage {
  std::string title = {};
  std::string data = {};
  std::vector<std::string> scripts = {};  ///< in order: "draw.js"
  std::string start = {};                 ///< the function to call
  std::string nonce = {};
};
std::string to_html(const DrawnPage& page);

}  // namespace automodel::report
