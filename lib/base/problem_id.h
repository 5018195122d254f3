// The names of problems, checked by the compiler, and the exit codes to which they lead.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

namespace automodel {

/// Exit codes of both programs. Scripts rely on them (README.md); do not renumber.
enum class ExitCode : int {
  kOk = 0,
  kBadInput = 2,     ///< bad recipe, command line or input file
  kRefused = 3,      ///< the plan cannot run or does not fit
  kEnvironment = 4,  ///< MPI, GPU, files, permissions
  kStopped = 10,     ///< stopped by a signal, after saving a checkpoint if checkpoints are enabled
  kNonFinite = 11,   ///< loss or gradient is not finite
  kHang = 12,        ///< a rank waited past the deadline
  kCheckpoint = 13,  ///< a checkpoint could not be written or read
  kInternal = 70,    ///< a bug in this program
};

namespace detail {

/// Every id, in the order of docs/errors.md. problem_table.cpp has what causes each and its exit code; both lists must
/// agree, and a new id needs a row there and a test that provokes it.
inline constexpr std::string_view kProblemIds[] = {
    "usage",
    "bad-override",
    "missing-file",
    "cannot-write",
    "disk-space",
    "yaml-syntax",
    "duplicate-key",
    "unknown-key",
    "missing-key",
    "bad-type",
    "bad-value",
    "unknown-target",
    "environment",
    "unsupported-option",
    "no-effect",
    "from-format",
    "from-refused",
    "from-missing",
    "from-inexact",
    "size-conflict",
    "backend-conflict",
    "other-recipe",
    "device-conflict",
    "strategy-conflict",
    "precision-conflict",
    "low-precision-masters",
    "slow-bfloat16",
    "sequence-parallel",
    "length-conflict",
    "host-lost",
    "no-progress",
    "restarts-used-up",
    "checkpoints-gone",
    "too-few-ranks",
    "memory-copies-too-large",
    "no-memory-folder",
    "changed-while-running",
    "non-finite-weights",
    "loss-spike",
    "no-checkpoint-before",
    "world-size-mismatch",
    "indivisible",
    "sharding-level",
    "unit-modules",
    "expert-tensor-parallel",
    "unknown-style",
    "unknown-tp-plan",
    "recurrent-context",
    "tp-plan",
    "sequence-too-long",
    "beyond-positions",
    "too-large-to-measure",
    "does-not-fit",
    "memory-unknown",
    "model-not-found",
    "model-unknown",
    "length-unknown",
    "unsupported",
    "freeze-target",
    "adapter-target",
    "router-bias",
    "quantized-weights",
    "adapter-base",
    "no-chat-template",
    "no-end-of-turn",
    "answers-end-early",
    "prompt-too-long",
    "adapters-alone",
    "bad-json",
    "unknown-model-type",
    "unsupported-model",
    "multimodal",
    "quantized",
    "too-many-stages",
    "unknown-module",
    "missing-module",
    "duplicate-module",
    "stage-order",
    "split-conflict",
    "schedule-unknown",
    "schedule-needs-csv",
    "schedule-single-stage",
    "schedule-multi-stage",
    "schedule-v-stages",
    "schedule-stages-per-rank",
    "schedule-stages",
    "schedule-ranks",
    "schedule-microbatches",
    "schedule-group-size",
    "few-microbatches",
    "schedule-costs",
    "schedule-memory-limit",
    "schedule-too-large",
    "schedule-csv-file",
    "schedule-csv-empty",
    "schedule-csv-cell",
    "schedule-csv-bubble",
    "schedule-csv-communication",
    "schedule-wait",
    "schedule-idle-rank",
    "schedule-stage-range",
    "schedule-stage-twice",
    "schedule-microbatch-range",
    "schedule-missing",
    "schedule-duplicate",
    "schedule-order",
    "schedule-backward-in-evaluation",
    "schedule-send",
    "schedule-recv",
    "schedule-send-order",
    "schedule-unshard",
    "schedule-reduce-grad",
    "schedule-meeting",
    "schedule-deadlock",
    "dataset-not-found",
    "features-damaged",
    "bad-table",
    "unavailable",
    "bad-row",
    "empty-data",
    "bad-file",
    "bad-index",
    "bad-template",
    "bad-tokenizer",
    "token-out-of-range",
    "missing-weights",
    "cannot-read",
    "safetensors-header",
    "safetensors-dtype",
    "safetensors-shape",
    "safetensors-offsets",
    "safetensors-duplicate",
    "safetensors-truncated",
    "index-syntax",
    "index-duplicate",
    "index-path",
    "index-missing-tensor",
    "weights-missing",
    "weights-unexpected",
    "weights-shape",
    "expert-out-of-range",
    "weights-quantized",
    "weights-not-tied",
    "adapter-config",
    "adapter-shape",
    "missing-option",
    "checkpoint-of-another-run",
    "checkpoint-missing",
    "checkpoint-damaged",
    "manifest-syntax",
    "state-syntax",
    "verify-failed",
    "optimizer-differs",
    "dump-meta",
    "dump-batch",
    "dump-not-finite",
    "cannot-start",
    "folder-in-use",
    "unwritable-file",
    "no-device",
    "no-cuda-half",
    "no-gpu-used",
    "gpu-shared",
    "cuda-failed",
    "too-many-ranks",
    "one-rank",
    "unknown-backend",
    "backend-unavailable",
    "mpi-threads",
    "transport-failed",
    "plans-differ",
    "no-start",
    "rank-killed",
    "out-of-memory",
    "non-finite",
    "hang",
    "internal",
};

/// Not constexpr: a problem with an unknown id does not compile.
void add_the_id_to_problem_id_h_and_problem_table_cpp();

}  // namespace detail

/// The stable kebab-case id of a problem. Written as its name: Diagnostic{"bad-value"} compiles because the name is in
/// the list, Diagnostic{"bad-valeu"} does not.
class ProblemId {
 public:
  consteval ProblemId(const char* name) : index_(static_cast<std::uint16_t>(find(name))) {
    if (index_ == std::size(detail::kProblemIds)) detail::add_the_id_to_problem_id_h_and_problem_table_cpp();
  }
  /// For an id that another process has sent.
  static std::optional<ProblemId> named(std::string_view name) {
    const auto index = find(name);
    return index == std::size(detail::kProblemIds) ? std::nullopt : std::optional(ProblemId(index));
  }
  constexpr std::string_view name() const { return detail::kProblemIds[index_]; }
  operator std::string() const { return std::string(name()); }
  /// The exit code to which the problem leads; kOk for a mere warning.
  ExitCode exit() const;

  friend constexpr bool operator==(ProblemId, ProblemId) = default;
  template <std::convertible_to<std::string_view> Text>
  friend constexpr bool operator==(ProblemId id, const Text& name) {
    return id.name() == std::string_view(name);
  }
  friend std::ostream& operator<<(std::ostream& out, ProblemId id);

 private:
  explicit constexpr ProblemId(std::size_t index) : index_(static_cast<std::uint16_t>(index)) {}
  static constexpr std::size_t find(std::string_view name) {
    std::size_t i = 0;
    while (i < std::size(detail::kProblemIds) && detail::kProblemIds[i] != name) ++i;
    return i;
  }

  std::uint16_t index_;
};

/// docs/errors.md: every id with its cause, its rule and its exit code.
std::string errors_page();

}  // namespace automodel
