// Diagnostics: what is wrong, where, and what to try. Every error that a user can cause takes this form.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/problem_id.h"

namespace automodel {

/// A position in user-written text. Lines and columns count from 1. Line 0 means the line is unknown, and `file` then
/// describes the source ("command line", "environment").
struct SourceLocation {
  std::string file = {};
  int line = 0;
  int column = 0;
  auto operator<=>(const SourceLocation&) const = default;
};

/// One problem, built in words: Diagnostic{"indivisible"}.says("{} heads", heads).hint("use {}", nearest).
struct Diagnostic {
  ProblemId id;
  std::string message = {};              ///< what is violated, with the numbers
  std::string help = {};                 ///< the rule, and the nearest valid value
  SourceLocation where = {};             ///< empty: where the recipe sets `key`
  std::string key = {};                  ///< dotted recipe key ("distributed.pp_size"), if any
  std::optional<ExitCode> special = {};  ///< an exit code other than the id's

  template <class... Values>
  Diagnostic& says(fmt::format_string<Values...> text, Values&&... values) {
    message = fmt::vformat(text, fmt::make_format_args(values...));
    return *this;
  }
  Diagnostic& says(std::string text) {
    message = std::move(text);
    return *this;
  }
  template <class... Values>
  Diagnostic& hint(fmt::format_string<Values...> text, Values&&... values) {
    help = fmt::vformat(text, fmt::make_format_args(values...));
    return *this;
  }
  Diagnostic& hint(std::string text) {
    help = std::move(text);
    return *this;
  }
  Diagnostic& at(SourceLocation location) {
    where = std::move(location);
    return *this;
  }
  Diagnostic& of(std::string recipe_key) {
    key = std::move(recipe_key);
    return *this;
  }
  Diagnostic& exits(ExitCode code) {
    special = code;
    return *this;
  }
  ExitCode exit() const { return special.value_or(id.exit()); }
};

/// Problems in the order in which they were found.
struct Diagnostics : std::vector<Diagnostic> {
  using std::vector<Diagnostic>::vector;
  /// Adds a problem; the reference is valid until the next one is added.
  Diagnostic& add(ProblemId id, std::string key = "") {
    return emplace_back(Diagnostic{.id = id, .key = std::move(key)});
  }
};

/// The exit code of a program that ends with these problems: their common one, or kBadInput if they differ.
ExitCode exit_code(const Diagnostics& problems);

/// `FILE:LINE:COL: error[ID]: message` and, on a second line, `help: ...`; printable() but for a hang's report, which
/// has a line per rank. `severity` is "error" or "warning".
std::string to_text(const Diagnostic& diagnostic, std::string_view severity = "error");
/// All of them, each followed by a line break.
std::string to_text(const Diagnostics& diagnostics, std::string_view severity = "error");
/// Line `line` of `text` (counted from 1), printable, with a caret under `column`; empty if there is no such line.
std::string source_excerpt(std::string_view text, int line, int column);

}  // namespace automodel
