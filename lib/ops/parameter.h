// A trainable tensor and the buffer in which its gradient is accumulated. Parameters are not leaves of the autograd
// graph: operations add to their gradients themselves, inside the GEMM where possible, now or later
// (WeightGradients).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/float8.h"
#include "ops/quantized.h"

namespace automodel::ops {

class WeightGradients;

/// `value` and `grad` are views of flat buffers owned by parallel/data; `value` may be undefined between uses where
/// parameters are sharded. `grad` is undefined for a parameter that is not trained.
struct Parameter {
  std::string name = {};                 ///< fully qualified, as in Hugging Face files
  std::vector<std::int64_t> shape = {};  ///< on this rank
  at::Tensor value = {};
  at::Tensor grad = {};
  /// Matmuls with this parameter run in this type; results have the type of the other operand (autocast).
  std::optional<at::ScalarType> product_type = {};
  /// Products with this parameter are of 8-bit operands.
  std::optional<Float8Rule> float8 = {};
  /// Stored in few bits: `value` is undefined, and GEMMs take dense(). Null: not quantized.
  std::shared_ptr<const QuantizedLayout> quantized = {};
  at::Tensor packed = {};  ///< its bytes; present when a value would be
  bool frozen = false;     ///< never trained: operations need not keep the inputs of its gradient
  /// Weight gradients of low-precision operands are summed in the gradient's type, not rounded to theirs first.
  bool fused_accumulation = false;
  WeightGradients* waiting = nullptr;  ///< queue that this parameter's GEMMs go to first, while it has room; null: none
  bool fresh = true;                   ///< nothing was added to `grad` since the step began: its content is undefined
  bool trained() const { return grad.defined(); }
  std::int64_t numel() const;
  /// Between uses values may be elsewhere.
  bool here() const { return quantized ? packed.defined() : value.defined(); }
  at::ScalarType type() const { return quantized ? quantized->type() : value.scalar_type(); }
  /// The value, made anew where it is kept in few bits.
  at::Tensor dense() const;
};

/// grad += contribution (grad = contribution where fresh), in the gradient's own type.
void accumulate(Parameter& parameter, const at::Tensor& contribution);

/// Rows of a parameter [rows, ...], for operations that need a part of it: all rows where `count` is 0.
struct ParameterRows {
  Parameter* parameter = nullptr;
  std::int64_t first = 0, count = 0;
  explicit operator bool() const { return parameter != nullptr; }
  std::int64_t rows() const { return count > 0 ? count : parameter->shape[0]; }
  /// Their values now, a view.
  at::Tensor value() const;
  /// Adds to their gradient; `contribution` has as many elements as they.
  void accumulate(const at::Tensor& contribution) const;
};

/// Several parameters whose rows follow each other: q, k and v; gate and up. One product serves all of them where their
/// buffers are adjacent.
using Parameters = std::vector<Parameter*>;

/// The parameters' values as one matrix [sum of rows, columns]; undefined where they do not lie next to each other.
at::Tensor joined_value(const Parameters& parameters);

/// Tensors [rows, columns] of several groups, group by group: those that stand at one place in every group as one view
/// [groups, rows, columns], those at neighbouring places together where they lie next to each other. Empty where the
/// groups do not lie at equal distances.
std::vector<at::Tensor> joined_groups(const std::vector<at::Tensor>& parts, std::int64_t groups);

/// grad[i] += gradient^T x for the rows of each parameter. gradient [n, sum of rows], x [n, columns].
void accumulate_product(const Parameters& parameters, const at::Tensor& gradient, const at::Tensor& x);

/// For a parameter [groups, in, out] and rows sorted by group, `rows` of each: grad[g] += x_g^T gradient_g.
void accumulate_stacked(Parameter& parameter, const at::Tensor& x, const at::Tensor& gradient,
                        const std::vector<std::int64_t>& rows);
/// For a parameter [groups, out]: grad[g] += sum of gradient_g's rows.
void accumulate_group_sums(Parameter& parameter, const at::Tensor& gradient, const std::vector<std::int64_t>& rows);

// The same for rows of which the device alone knows where each group's end (`ends`, grouped_product.h).

/// grad[g] += gradient_g^T x_g for a parameter [groups, out, in], or for several for each group, group by group.
void accumulate_groups(const Parameters& parameters, const at::Tensor& gradient, const at::Tensor& x,
                       const at::Tensor& ends);
void accumulate_group_sums(Parameter& parameter, const at::Tensor& gradient, const at::Tensor& ends);

/// Deferred weight gradients. While a queue is current (this thread), GEMMs whose result nothing downstream needs are
/// put on it instead of being computed: zero-bubble schedules run them in their W action, the deferred head while the
/// pipeline drains. A queue belongs to one stage and microbatch.
class WeightGradients {
 public:
  struct Product {
    Parameters parameters;
    at::Tensor gradient;
    at::Tensor x;
    std::vector<std::int64_t> rows = {};  ///< of each group where the parameter is a stack of weights
    at::Tensor ends = {};                 ///< of each group's rows where the host does not know them
  };
  /// Computes everything that waits, oldest first.
  void drain();
  void push(Product product) { ++taken_, waiting_.push_back(std::move(product)); }
  bool empty() const { return waiting_.empty(); }
  /// Takes this many GEMMs between two drains; 0: any number.
  void set_limit(int limit) { limit_ = limit; }
  bool full() const { return limit_ > 0 && taken_ >= limit_; }
  std::int64_t bytes() const;

  /// The current queue; null: weight gradients are computed immediately.
  static WeightGradients* current();

  /// Makes a queue current while it lives.
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

/// accumulate_product now, or later where a queue is current.
void weight_gradient(const Parameters& parameters, const at::Tensor& gradient, const at::Tensor& x);
/// accumulate_stacked now, or later where a queue is current.
void stacked_weight_gradient(Parameter& parameter, const at::Tensor& x, const at::Tensor& gradient,
                             const std::vector<std::int64_t>& rows);
/// accumulate_groups now, or later where a queue is current.
void group_weight_gradients(const Parameters& parameters, const at::Tensor& gradient, const at::Tensor& x,
                            const at::Tensor& ends);

/// The parameter's value as a tensor of the graph whose gradient is added to the parameter's: for uses that no fused
/// operation covers. `like` is any tensor with a gradient.
at::Tensor use(Parameter& parameter, const at::Tensor& like);

}  // namespace automodel::ops
