// Diagnostics: what is wrong, where, and what to try. Every error that a user can cause takes this form.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace automodel {

/// A position in user-written text. Lines and columns count from 1. Line 0 means the line is unknown, and `file` then
/// describes the source ("command line", "environment").
struct SourceLocation {
  std::string file = {};
  int line = 0;
  int column = 0;
  auto operator<=>(const SourceLocation&) const = default;
};

/// One problem. `id` is a stable kebab-case identifier (all are listed in docs/errors.md), `message` says what is
/// wrong, `help` gives the rule and the nearest valid value, and `key` is the dotted recipe key
/// ("distributed.pp_size"), if any.
struct Diagnostic {
  std::string id = {};
  std::string message = {};
  std::string help = {};
  SourceLocation where = {};
  std::string key = {};
};

using Diagnostics = std::vector<Diagnostic>;

/// `FILE:LINE:COL: error[ID]: message` and, on a second line, `help: ...`. `severity` is "error" or "warning".
std::string to_text(const Diagnostic& diagnostic, std::string_view severity = "error");
/// All of them, each followed by a line break.
std::string to_text(const Diagnostics& diagnostics, std::string_view severity = "error");
/// Line `line` of `text` (counted from 1) with a caret under `column`; empty if there is no such line.
std::string source_excerpt(std::string_view text, int line, int column);

}  // namespace automodel
