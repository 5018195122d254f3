// The exceptions of this project and the exit codes they end in.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>

#include "base/diagnostic.h"

namespace automodel {

/// Exit codes of both programs; they are a promise to scripts (README.md).
enum class ExitCode : int {
  kOk = 0,
  kBadInput = 2,     ///< bad recipe, command line or input file
  kRefused = 3,      ///< the plan cannot run or does not fit
  kEnvironment = 4,  ///< MPI, GPU, files, permissions
  kStopped = 10,     ///< stopped by a signal; a checkpoint was saved where checkpoints are on
  kNonFinite = 11,   ///< loss or gradient is not finite
  kHang = 12,        ///< a rank waited longer than the deadline
  kCheckpoint = 13,  ///< a checkpoint could not be written or read
  kInternal = 70,    ///< a defect of this program
};

/// What the user, the machine or the data did wrong. Carries every problem found, not only the first.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, Diagnostics problems);
  Error(ExitCode code, const Diagnostic& problem) : Error(code, Diagnostics{problem}) {}
  /// What went wrong on rank `rank`, thrown on others as well.
  Error(ExitCode code, const Diagnostic& problem, int rank) : Error(code, problem) { rank_ = rank; }
  ExitCode code() const { return code_; }
  const Diagnostics& problems() const { return problems_; }
  /// The rank that it happened on, where that may not be the one that throws.
  std::optional<int> rank() const { return rank_; }

 private:
  ExitCode code_;
  Diagnostics problems_;
  std::optional<int> rank_;
};

/// A defect of this program: a broken invariant, never reachable from input.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

namespace detail {
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);
}

}  // namespace automodel

/// Throws InternalError when `condition` is false. For invariants of the program, never for what a user wrote.
#define AUTOMODEL_CHECK(condition, message) \
  ((condition) ? void(0) : ::automodel::detail::check_failed(__FILE__, __LINE__, #condition, message))
