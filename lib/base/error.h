// Exceptions and the exit codes they lead to.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/diagnostic.h"

namespace automodel {

/// An error caused by the user, the machine or the data. Carries every problem found, not just the first.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, Diagnostics problems);
  /// With the exit code of the problem's id.
  explicit Error(const Diagnostic& problem) : Error(problem.exit(), problem) {}
  explicit Error(const Diagnostics& problems) : Error(exit_code(problems), problems) {}
  Error(ExitCode code, const Diagnostic& problem) : Error(code, Diagnostics{problem}) {}
  /// A problem on rank `rank` that other ranks throw as well.
  Error(ExitCode code, const Diagnostic& problem, int rank) : Error(code, problem) { rank_ = rank; }
  ExitCode code() const { return code_; }
  const Diagnostics& problems() const { return problems_; }
  /// The rank where the problem occurred, if that may differ from the throwing rank.
  std::optional<int> rank() const { return rank_; }

 private:
  ExitCode code_;
  Diagnostics problems_;
  std::optional<int> rank_;
};

/// A bug in this program: a broken invariant that no input should be able to reach.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

namespace detail {
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);
}

}  // namespace automodel

/// Throws InternalError if `condition` is false. For the program's own invariants, never for validating user input.
#define AUTOMODEL_CHECK(condition, message) \
  ((condition) ? void(0) : ::automodel::detail::check_failed(__FILE__, __LINE__, #condition, message))
