// HTML pages, each one self-contained file that the scripts of the folder page draw.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/run_files.h"

namespace automodel::report {

struct Page {
  std::string title = {};
  std::string data = {};                  ///< a JSON object, which the scripts call `boot`
  std::vector<std::string> scripts = {};  ///< in order: "draw.js"
  std::string start = {};                 ///< the function to call
  std::string nonce = {};                 ///< of the content security policy; empty without one
};
std::string to_html(const Page& page);

/// Text as the content of an element or of a quoted attribute.
std::string escaped(std::string_view text);
/// A page without scripts, which is refused any: `body` is HTML.
std::string still_page(const std::string& title, const std::string& body);

/// The report on one or more runs.
std::string report_page(const std::vector<RunFiles>& runs);

/// A plan, as `plan --json` prints it, and its time line as `plan --trace` does, which may be empty.
std::string plan_page(const std::string& title, const std::string& plan, const std::string& trace);

}  // namespace automodel::report
