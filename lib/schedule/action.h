// The vocabulary of pipeline schedules: the actions of a rank and the tables built from them. Spellings follow
// torch.distributed.pipelining, so that either program can read the other's CSV files.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/index.h"

namespace automodel::schedule {

/// A contiguous part of the model, numbered from the embedding; a rank may hold several.
using Stage = Index<struct StageTag>;
/// A slice of the batch; every stage processes each microbatch once forward and once backward.
using Microbatch = Index<struct MicrobatchTag>;
inline constexpr Microbatch kNoMicrobatch{-1};

/// Upper limits of a table: far beyond any machine, low enough to bound allocations for any input.
inline constexpr int kMaxRanks = 1024;
inline constexpr int kMaxStages = 4096;
inline constexpr int kMaxMicrobatches = 65536;
/// Limit of stages * microbatches: the checks keep a few bytes per pair.
inline constexpr std::int64_t kMaxPairs = std::int64_t{1} << 20;

enum class Op : std::uint8_t {
  kForward,
  kBackwardInput,   ///< gradient of the stage's input only
  kBackwardWeight,  ///< gradients of the parameters; after kBackwardInput of the same microbatch
  kFullBackward,    ///< both at once
  kSendForward,     ///< send the stage's output to the next stage's rank
  kRecvForward,     ///< receive the stage's input from the previous stage's rank
  kSendBackward,    ///< send the gradient of the stage's input to the previous stage's rank
  kRecvBackward,    ///< receive the gradient of the stage's output from the next stage's rank
  kUnshard,         ///< all-gather the stage's parameters
  kReshard,         ///< free the gathered parameters
  kReduceGrad,      ///< reduce the stage's gradients over the data-parallel ranks; once per step
};

/// One row per Op, in enumeration order.
struct OpTraits {
  std::string_view spelling;  ///< as in a CSV cell: "F", "SEND_F", ...
  std::string_view meaning;   ///< in words: "forward"
  bool is_compute;            ///< one of F, I, W, B
  bool has_microbatch;        ///< false for UNSHARD, RESHARD, REDUCE_GRAD, which apply to the whole stage
};
inline constexpr std::array kOps = {
    OpTraits{"F", "forward", true, true},
    OpTraits{"I", "input gradient", true, true},
    OpTraits{"W", "weight gradient", true, true},
    OpTraits{"B", "full backward", true, true},
    OpTraits{"SEND_F", "send forward", false, true},
    OpTraits{"RECV_F", "receive forward", false, true},
    OpTraits{"SEND_B", "send backward", false, true},
    OpTraits{"RECV_B", "receive backward", false, true},
    OpTraits{"UNSHARD", "gather parameters", false, false},
    OpTraits{"RESHARD", "free gathered parameters", false, false},
    OpTraits{"REDUCE_GRAD", "reduce gradients", false, false},
};
constexpr const OpTraits& traits(Op op) {
  return kOps[static_cast<std::size_t>(op)];
}
constexpr bool is_compute(Op op) {
  return op <= Op::kFullBackward;
}
constexpr bool is_transfer(Op op) {
  return op >= Op::kSendForward && op <= Op::kRecvBackward;
}

/// One action, packed into 32 bits because large tables are walked many times.
class Action {
 public:
  /// No action; a placeholder that never appears in a table.
  constexpr Action() = default;
  /// `stage` and `microbatch` must be below their limits; `microbatch` is kNoMicrobatch iff the op has none.
  constexpr Action(Op op, Stage stage, Microbatch microbatch)
      : bits_(static_cast<std::uint32_t>(op) << kOpShift | static_cast<std::uint32_t>(stage.value) << kStageShift |
              (static_cast<std::uint32_t>(microbatch.value) & kMicrobatchMask)) {
    AUTOMODEL_CHECK(stage.value >= 0 && stage.value < kMaxStages && microbatch.value < kMaxMicrobatches &&
                        (microbatch.value >= 0) == traits(op).has_microbatch,
                    "an action out of range");
  }

  constexpr Op op() const { return static_cast<Op>(bits_ >> kOpShift); }
  constexpr Stage stage() const { return {static_cast<std::int32_t>(bits_ >> kStageShift & (kMaxStages - 1))}; }
  constexpr Microbatch microbatch() const {
    return op() < Op::kUnshard ? Microbatch{static_cast<std::int32_t>(bits_ & kMicrobatchMask)} : kNoMicrobatch;
  }
  constexpr bool is_none() const { return bits_ == kNone; }
  constexpr auto operator<=>(const Action&) const = default;

 private:
  static constexpr int kStageShift = 16;
  static constexpr int kOpShift = 28;
  static constexpr std::uint32_t kMicrobatchMask = kMaxMicrobatches - 1;
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;
  static_assert(kMaxMicrobatches == 1 << kStageShift && kMaxStages == 1 << (kOpShift - kStageShift) &&
                kOps.size() < 15);

  std::uint32_t bits_ = kNone;
};
constexpr Action make_action(Op op, int stage, int microbatch) {
  return {op, Stage{stage}, Microbatch{microbatch}};
}
constexpr Action make_action(Op op, Stage stage) {
  return {op, stage, kNoMicrobatch};
}

/// A forward and the full backward of another microbatch, executed together (DualPipeV). Written
/// "(0F3;7B0)OVERLAP_F_B".
struct Overlap {
  Action forward = {};
  Action backward = {};
};

/// What one rank does in one step: nothing (a bubble), one action, or an overlapped pair. Code that only cares about
/// individual actions loops over actions(), which has 0, 1 or 2 elements.
class Slot {
 public:
  Slot() = default;
  explicit Slot(const Action& action) : actions_{action, {}} {}
  explicit Slot(const Overlap& overlap) : actions_{overlap.forward, overlap.backward} {}

  std::span<const Action> actions() const {
    return {actions_.data(), static_cast<std::size_t>(!is_bubble()) + static_cast<std::size_t>(is_overlap())};
  }
  bool is_bubble() const { return actions_[0].is_none(); }
  bool is_overlap() const { return !actions_[1].is_none(); }
  bool operator==(const Slot&) const = default;

 private:
  std::array<Action, 2> actions_ = {};
};

using Row = std::vector<Slot>;      ///< indexed by step
using Schedule = std::vector<Row>;  ///< indexed by pipeline rank

/// The dimensions of a schedule.
struct Shape {
  int ranks = 1;
  int stages = 1;
  int microbatches = 1;
  auto operator<=>(const Shape&) const = default;
  /// Size of dense arrays with one element per (stage, microbatch).
  std::size_t pairs() const { return static_cast<std::size_t>(stages) * static_cast<std::size_t>(microbatches); }
  /// Index of `action`, which must have a microbatch, in such an array.
  std::size_t pair(const Action& action) const { return pair(action.stage(), action.microbatch()); }
  std::size_t pair(Stage stage, Microbatch microbatch) const {
    return stage.at() * static_cast<std::size_t>(microbatches) + microbatch.at();
  }
};

/// Number of rows, highest stage + 1 and highest microbatch + 1 of a table.
Shape shape_of(const Schedule& schedule);
/// Only the F, I, W and B of each row, in order; bubbles and all other actions are dropped.
Schedule compute_only(const Schedule& schedule);
/// Only the forwards of each row, in order, for evaluation. An overlapped pair becomes its forward.
Schedule forward_only(const Schedule& schedule);

/// "2F0", "3SEND_F1", "2UNSHARD".
std::string to_text(const Action& action);
/// The text of a CSV cell: empty for a bubble, "(0F3;7B0)OVERLAP_F_B" for a pair.
std::string to_text(const Slot& slot);
/// The cells of a row, separated by commas.
std::string to_text(const Row& row);

/// Why a text is not a valid cell.
struct ParseProblem {
  std::size_t offset = 0;  ///< position in the text, from 0
  std::string message = {};
  std::string help = {};
};

/// Parses one cell. Surrounding blanks are ignored; an empty cell is a bubble. The whole text must match: PyTorch
/// ignores anything after a valid prefix ("0F0xyz" runs as 0F0, "0FULL_BACKWARD0" as a forward without a microbatch),
/// so a typo would silently change the training. Leading zeros are accepted. If the text is malformed, returns nothing
/// and fills `problem`.
std::optional<Slot> parse_slot(std::string_view text, ParseProblem& problem);

}  // namespace automodel::schedule
