// Finds the line where the indentation of a YAML text goes wrong. The parser reports such errors lines later and in
// less helpful terms.
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

/// The first block-style line that is indented deeper than the preceding line allows, or dedented to a column that
/// matches no enclosing block. Only for texts that the parser rejects: multi-line quoted or bracketed text is skipped,
/// not parsed.
std::optional<IndentationFault> find_indentation_fault(std::string_view text);

}  // namespace automodel::config
