// The files of the folder page, which the build puts into the program.
#pragma once

#include <span>
#include <string_view>

namespace automodel::report {

struct PagePart {
  std::string_view name;  ///< "draw.js"
  std::string_view text;
};
std::span<const PagePart> page_parts();

}  // namespace automodel::report
