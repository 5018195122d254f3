// y = x W^T + b for one or several weights with the same input.
#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include "ops/low_rank.h"
#include "ops/parameter.h"

namespace automodel::ops {

/// The weights of one matmul: [out_i, in] each, with results concatenated; or, `transposed`, one weight stored as [in,
/// out] (GPT-2's Conv1D). Biases: none, or one per weight (null: none) [out_i].
struct Linear {
  Parameters weights = {};
  Parameters biases = {};
  bool transposed = false;
  std::vector<LowRank> adapters = {};            ///< none, or one per weight
  std::shared_ptr<const DropoutDraw> draw = {};  ///< for the adapters' dropout; null: no dropout
  std::int64_t outputs() const;
};

/// x [..., in]. Returns [..., sum out_i] in the weights' type. The backward pass computes the weight gradient or, if a
/// WeightGradients queue is current, defers it to the queue.
at::Tensor linear(const at::Tensor& x, const Linear& layer);
at::Tensor linear(const at::Tensor& x, const Parameters& weights, const Parameters& biases = {});

// The parts of that operation, for operations that interleave communication; none of them records in the graph.

/// x [n, in] times the weights, plus the adapters' terms, without biases: [n, out].
at::Tensor product(const at::Tensor& x, const Linear& layer);
/// The same into `out`, whose rows must be contiguous.
void product_into(at::Tensor out, const at::Tensor& x, const Linear& layer);
/// y [n, out] += biases.
void add_biases(at::Tensor y, const Linear& layer);
/// Gradient of x [n, in] from that of the result [n, out]. low: gets lowered_gradient(), for weight_gradients().
at::Tensor input_gradient(const at::Tensor& gradient, const Linear& layer, at::Tensor* low = nullptr);
/// Accumulates the gradients of the biases.
void bias_gradients(const at::Tensor& gradient, const Linear& layer);
/// Accumulates the gradients of weights and adapters, now or (WeightGradients) later. low: lowered_gradient() of the
/// same gradient; undefined: computed again.
void weight_gradients(const at::Tensor& gradient, const at::Tensor& x, const Linear& layer, const at::Tensor& low = {});
/// True if a weight or an adapter is trained, so that gradients need x.
bool any_trained(const Linear& layer);
/// x to be saved for the backward pass; if everything is frozen, a tensor of the same shape that holds no memory.
at::Tensor kept_input(const at::Tensor& x, const Linear& layer);

}  // namespace automodel::ops
