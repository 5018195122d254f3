// Where YAML text goes wrong, if the parser notices it late or not at all: quotes and brackets that are not closed, a
// colon without a blank, and indentation.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace automodel::config {

struct SyntaxFault {
  int line = 0;    ///< from 1
  int column = 0;  ///< from 1
  std::string message = {};
  std::string help = {};
};

/// If the quoted text that begins at `line` and `column` (from 0, as the parser counts; a tag or an anchor may come
/// first) does not end, or ends on a later line than it began while `broken` says that the parser failed there (from 1;
/// 0: it did not fail). yaml-cpp takes a quote that is open at the end of a file as closed.
std::optional<SyntaxFault> find_quote_fault(std::string_view text, int line, int column, int broken);

/// The first block-style line that is indented deeper than the preceding line allows, or dedented to a column that
/// matches no enclosing block; or a key before `broken` (from 1) whose colon no blank follows. Only for texts that the
/// parser rejects: multi-line quoted or bracketed text is skipped, not parsed.
std::optional<SyntaxFault> find_line_fault(std::string_view text, int broken);

}  // namespace automodel::config
