// The low-rank term (LoRA) of an adapted matmul: y += scale * B A x, with dropout of x or of the term. With magnitudes
// (DoRA, Liu et al. 2024), each row of W + scale * B A is rescaled to a trained length m: y = m / |W + scale * B A| *
// (W + scale * B A) x.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/parameter.h"

namespace automodel::ops {

struct Linear;

/// The dropout mask: random numbers that depend only on step, token and feature, whichever rank computes them.
struct DropoutDraw {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::vector<std::int64_t> tokens = {};  ///< each row's token number within the step, below 2^40
  /// The same on a device, copied on first use. Not thread-safe.
  const at::Tensor& tokens_on(at::Device device) const;

 private:
  mutable at::Tensor placed_ = {};
};

/// The adapter of one weight.
struct LowRank {
  Parameter* a = nullptr;          ///< [rank, in]; null: the weight has no adapter
  Parameter* b = nullptr;          ///< [out, rank]
  Parameter* magnitude = nullptr;  ///< m [out]; null: none
  /// Lengths of the rows of W + scale * B A, which are treated as constants by the gradient, and m divided by them:
  /// [out] each, computed once per pass.
  at::Tensor lengths = {}, factors = {};
  double scale = 1;
  double dropout = 0;          ///< dropout rate; acts only if there is a draw
  bool dropout_first = false;  ///< dropout of x; else of the term
  /// Which features of the whole module dropout's columns are on this rank, as ascending ranges, and how many features
  /// the module has; further columns are padding. Set if dropout > 0.
  std::vector<std::pair<std::int64_t, std::int64_t>> features = {};
  std::int64_t width = 0;
  explicit operator bool() const { return a != nullptr; }
};

bool has_magnitudes(const Linear& layer);
bool has_lengths(const Linear& layer);
/// The layer with its row lengths filled in, for matmuls with it. `sum` all-reduces the squared lengths if ranks hold
/// parts of the rows (of the inputs); empty: rows are whole here.
Linear with_lengths(const Linear& layer, const std::function<void(const at::Tensor&)>& sum = {});

/// Adds the adapters' terms to y [n, out], the result without adapters. x [n, in] has y's type.
void add_low_rank(at::Tensor y, const at::Tensor& x, const Linear& layer);
/// The gradient of the result without adapters, from that of the adapted result [n, out].
at::Tensor base_gradient(const at::Tensor& gradient, const Linear& layer);
/// scale dy B of every term, side by side [n, sum of ranks], from the gradient of the result [n, out]: what the
/// gradients of x and of every A are made from. Undefined without adapters.
at::Tensor lowered_gradient(const at::Tensor& gradient, const Linear& layer);
/// dx [n, in] += the terms' contribution to the input's gradient. gradient [n, out]; low: lowered_gradient().
void add_low_rank_input_gradient(at::Tensor dx, const at::Tensor& gradient, const at::Tensor& low, const Linear& layer);
/// Accumulates the gradients of A, B and m, now or (WeightGradients) later. low: lowered_gradient(), made here if it is
/// undefined.
void low_rank_gradients(const at::Tensor& gradient, const at::Tensor& low, const at::Tensor& x, const Linear& layer);

}  // namespace automodel::ops
