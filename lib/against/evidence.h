// What is known of a dump and of our own computation of the same step, without a tensor library.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "arch/part.h"
#include "checkpoint/format/element_type.h"

namespace automodel::against {

/// The widest tolerance of a tensor: beyond it, right and wrong are not told apart (a lost gradient differs by 1).
inline constexpr double kMostRelative = 0.3;

/// How far right gradients may be from exact ones. A relative difference is |theirs - ours| / max(|ours|, floor x the
/// norm of all gradients), in the 2-norm of a tensor: gradients that are zero but for rounding are measured against the
/// others.
struct Tolerance {
  double relative = 0;
  double floor = 1e-4;
  /// Of numbers to which many gradients contribute, whose errors partly cancel: factors. Right ones need up to 0.4 of
  /// it (test/train/dumped_step_test.cpp); the sums themselves round in float64.
  double of_sums() const { return std::max(relative / 8, 1e-12); }
  /// Of the loss, of which logs may have kept six digits; at most what it has as a bfloat16 number, and a little.
  double of_loss() const { return std::min({relative, std::max(of_sums(), 1e-5), 5e-3}); }
};

/// The tolerance of gradients that were computed in `type`: 12 roundoff sqrt(layers + 1), and the same multiple of
/// float32's roundoff times sqrt(longest), for the sums over up to `longest` terms, which accumulate in float32 at
/// least. A layer's operations each round their result by less than `roundoff`; independent errors add as their
/// squares, hence the root. Right gradients need up to half of it (test/train/dumped_step_test.cpp). With `experts` a
/// 16-bit type has four times as much: routers send a few tokens in a hundred to another expert than exact arithmetic
/// does, and an expert's gradient is a sum over few tokens. At most kMostRelative.
Tolerance tolerance_for(checkpoint::ElementType type, int layers, std::int64_t longest, bool experts);

using Values = std::vector<double>;

/// A gradient in both computations, whole and row-major.
struct Pair {
  std::string name = {};  ///< in the dump
  std::vector<std::int64_t> shape = {};
  arch::Role role = arch::Role::kMlp;
  int layer = -1;     ///< -1 outside the layers
  bool tied = false;  ///< the embedding whose storage the head shares
  Values theirs = {}, ours = {};
};

/// A row's part of the step: of the sum of its losses, not of a mean.
struct RowPart {
  std::int64_t labels = 0;
  double loss = 0;
  std::vector<Values> gradients = {};  ///< by tensor, at the elements that Evidence::strides says
};

/// What the step is with other labels.
struct Relabelled {
  std::int64_t labels = 0;
  double loss = 0;                     ///< mean over these labels
  std::vector<Values> gradients = {};  ///< of that mean, whole, by tensor
};

/// Computations that only some explanations need.
class Laboratory {
 public:
  Laboratory() = default;
  Laboratory(const Laboratory&) = delete;
  Laboratory& operator=(const Laboratory&) = delete;
  virtual ~Laboratory() = default;
  /// `targets`: what each token must predict, rows x tokens; kIgnored where nothing. Empty if none is left.
  virtual std::optional<Relabelled> with_targets(const std::vector<std::int64_t>& targets) = 0;
  /// The gradient of the tied embedding through the head alone.
  virtual Values head_part() = 0;
};

struct Evidence {
  std::vector<Pair> pairs = {};
  double their_loss = 0, our_loss = 0;
  double divisor = 1;                        ///< of the rows' sums: the labels of the batch, or 1 for a sum
  std::vector<RowPart> rows = {};            ///< empty if rows do not add up: a loss of the router over the whole batch
  std::vector<std::int64_t> strides = {};    ///< by tensor: rows have every so many-th element
  std::int64_t row_count = 0, tokens = 0;    ///< of the batch
  std::int64_t real_tokens = 0, labels = 0;  ///< tokens that are not padding; labels that count
  std::vector<std::int64_t> ids = {}, batch_labels = {}, mask = {};  ///< as in DumpedBatch
  Tolerance tolerance = {};
  double sixteen_bits = 0, sixteen_bits_routed = 0;  ///< that bfloat16 would have, without and with experts
};

}  // namespace automodel::against
