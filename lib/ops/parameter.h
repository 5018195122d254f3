// A trainable tensor and the buffer that accumulates its gradient. Parameters are not leaves of the autograd graph:
// operations add to their gradients themselves, inside the GEMM where possible, either immediately or later
// (WeightGradients).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "arch/part.h"
#include "ops/float8.h"
#include "ops/quantized.h"

namespace automodel::ops {

class WeightGradients;

/// `value` and `grad` are views of flat buffers owned by parallel/data; `value` may be undefined between uses where
/// parameters are sharded. `grad` is undefined for a parameter that is not trained.
struct Parameter {
  std::string name = {};                 ///< fully qualified, as in Hugging Face files
  arch::Role role = arch::Role::kMlp;    ///< what the parameter is in the model
  arch::Part part = arch::Part::kNone;   ///< and in its layer; an adapter's is that of the adapted weight
  std::vector<std::int64_t> shape = {};  ///< on this rank
  at::Tensor value = {};
  at::Tensor grad = {};
  /// Matmuls with this parameter run in this type; results have the type of the other operand (autocast).
  std::optional<at::ScalarType> matmul_type = {};
  /// Matmuls with this parameter use 8-bit operands.
  std::optional<plan::Float8Plan> float8 = {};
  /// Their 8-bit forms of `value`, where these are kept; whoever changes `value` clears them. Null: made for each use.
  std::shared_ptr<Float8Weight> float8_forms = {};
  /// Stored quantized: `value` is undefined, and GEMMs use dense(). Null: not quantized.
  std::shared_ptr<const QuantizedLayout> quantized = {};
  at::Tensor packed = {};  ///< the quantized bytes; defined whenever `value` would be
  bool frozen = false;     ///< never trained: operations need not save the inputs of its gradient
  /// Weight-gradient GEMMs of low-precision operands accumulate in the gradient's type, instead of rounding their
  /// result to the operands' type first.
  bool fused_accumulation = false;
  WeightGradients* waiting = nullptr;  ///< queue that takes this parameter's GEMMs first, until it is full; null:
                                       ///< none
  bool fresh = true;                   ///< nothing was added to `grad` yet in this step: its content is undefined
  bool trained() const { return grad.defined(); }
  std::int64_t numel() const;
  /// Whether the value is present: between uses sharded values are not.
  bool here() const { return quantized ? packed.defined() : value.defined(); }
  at::ScalarType type() const { return quantized ? quantized->type() : value.scalar_type(); }
  /// The value, dequantized if it is stored quantized.
  at::Tensor dense() const;
};

/// grad += contribution (grad = contribution if fresh), in the gradient's type. No effect on a parameter that is not
/// trained.
void accumulate(Parameter& parameter, const at::Tensor& contribution);

/// Rows of a parameter [rows, ...], for operations that need a part of it; count 0: all rows.
struct ParameterRows {
  Parameter* parameter = nullptr;
  std::int64_t first = 0, count = 0;
  std::int64_t dim = 0;  ///< of the rows; the dimensions before it have one element
  explicit operator bool() const { return parameter != nullptr; }
  std::int64_t rows() const { return count > 0 ? count : parameter->shape[static_cast<std::size_t>(dim)]; }
  /// Their current values, a view.
  at::Tensor value() const;
  /// Adds `contribution`, which has as many elements as the rows, to their gradient.
  void accumulate(const at::Tensor& contribution) const;
};

/// Several parameters whose rows are concatenated: q, k and v; gate and up. If their buffers are adjacent, one GEMM
/// serves all of them.
using Parameters = std::vector<Parameter*>;

/// The parameters' values as one matrix [sum of rows, columns], a view; undefined unless they are adjacent in memory.
at::Tensor joined_value(const Parameters& parameters);

/// `parts` are tensors [rows, columns] of several groups, ordered by group. Returns views [groups, rows, columns]: one
/// for each position within a group, or one for neighbouring positions that are adjacent in memory. Empty unless all
/// groups have the same layout and are evenly spaced in memory.
std::vector<at::Tensor> joined_groups(const std::vector<at::Tensor>& parts, std::int64_t groups);

/// grad[i] += gradient_i^T x, gradient_i being the columns of the gradient that belong to parameter i. gradient [n, sum
/// of rows], x [n, columns].
void accumulate_product(const Parameters& parameters, const at::Tensor& gradient, const at::Tensor& x);

/// For a parameter [groups, in, out] and rows sorted by group, `rows[g]` per group: grad[g] += x_g^T gradient_g.
void accumulate_stacked(Parameter& parameter, const at::Tensor& x, const at::Tensor& gradient,
                        const std::vector<std::int64_t>& rows);
/// For a parameter [groups, out]: grad[g] += sum of gradient_g's rows.
void accumulate_group_sums(Parameter& parameter, const at::Tensor& gradient, const std::vector<std::int64_t>& rows);

// The same where only the device knows the rows of each group (`ends`, grouped_product.h).

/// grad[g] += gradient_g^T x_g for a parameter [groups, out, in], or for several [out, in] per group, ordered by group.
void accumulate_groups(const Parameters& parameters, const at::Tensor& gradient, const at::Tensor& x,
                       const at::Tensor& ends);
void accumulate_group_sums(Parameter& parameter, const at::Tensor& gradient, const at::Tensor& ends);

/// Deferred weight gradients. While a queue is current on this thread, weight-gradient GEMMs, whose results nothing
/// downstream needs, are queued instead of computed: zero-bubble schedules run them in their W action, the deferred
/// head while the pipeline drains. A queue belongs to one stage and microbatch.
class WeightGradients {
 public:
  struct Product {
    Parameters parameters;
    at::Tensor gradient;
    at::Tensor x;
    std::vector<std::int64_t> rows = {};  ///< rows of each group, if the parameter is a stack of weights
    at::Tensor ends = {};                 ///< ends of each group's rows, if the host does not know the rows
  };
  /// Computes everything queued, oldest first.
  void drain();
  void push(Product product) { ++taken_, waiting_.push_back(std::move(product)); }
  bool empty() const { return waiting_.empty(); }
  /// Maximum number of GEMMs accepted between two drains; 0: unlimited.
  void set_limit(int limit) { limit_ = limit; }
  bool full() const { return limit_ > 0 && taken_ >= limit_; }
  std::int64_t bytes() const;

  /// The current queue; null: weight gradients are computed immediately.
  static WeightGradients* current();

  /// Makes a queue current (null: none) while alive.
  class Scope {
   public:
    explicit Scope(WeightGradients* queue);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    WeightGradients* before_;
  };

 private:
  std::deque<Product> waiting_ = {};
  int limit_ = 0, taken_ = 0;
};

/// accumulate_product(), now or, if a queue is current, later.
void weight_gradient(const Parameters& parameters, const at::Tensor& gradient, const at::Tensor& x);
/// accumulate_stacked(), now or, if a queue is current, later.
void stacked_weight_gradient(Parameter& parameter, const at::Tensor& x, const at::Tensor& gradient,
                             const std::vector<std::int64_t>& rows);
/// accumulate_groups(), now or, if a queue is current, later.
void group_weight_gradients(const Parameters& parameters, const at::Tensor& gradient, const at::Tensor& x,
                            const at::Tensor& ends);

/// The parameter's value as a tensor of the graph whose gradient is accumulated in the parameter's: for uses that no
/// fused operation covers. `like` is any tensor that requires a gradient.
at::Tensor use(Parameter& parameter, const at::Tensor& like);

}  // namespace automodel::ops
