// Where the indentation of a YAML text goes wrong; the parser notices it lines later, in other words.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace automodel::config {

struct IndentationFault {
  int line = 0;    ///< from 1
  int column = 0;  ///< from 1
  std::string message = {};
  std::string help = {};
};

/// The first line of block style that is deeper than the line before it allows, or no deeper and no shallower than any
/// line above it. Only for texts that no parser takes: what stands in quotes or brackets over several lines is passed
/// over, not understood.
std::optional<IndentationFault> find_indentation_fault(std::string_view text);

}  // namespace automodel::config
