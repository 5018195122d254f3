// What the routers of one microbatch chose, and the auxiliary loss that keeps experts evenly used.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include <ATen/core/Tensor.h>

namespace automodel::model {

/// Sums over the tokens of a microbatch, of every layer with experts:
///   loss = coefficient x experts x sum over e of F_e P_e,
/// F_e the assignments to expert e a row and P_e the mean probability of e, over the rows of all layers together
/// (Hugging Face transformers' load_balancing_loss_func, after Fedus et al. 2021). F has no gradient; that of P joins
/// the routers' logits in their backward passes (balanced()), when the sums of all layers are known. All sums stay on
/// the device; the host asks for none.
class RouterStatistics {
 public:
  /// `weight`: factor of the loss (the microbatch's share of the global batch); `seed`: what the backward pass of the
  /// loss starts with; `device`: that the layers' sums are on.
  RouterStatistics(int experts, double coefficient, double weight, double seed, at::Device device)
      : experts_(experts), coefficient_(coefficient), weight_(weight), seed_(seed), device_(device) {}

  /// Layer `layer` routed tokens with these sums. A second call for a layer (recomputation) replaces the first.
  void put(int layer, at::Tensor sums) { layers_[layer] = std::move(sums); }

  /// Sums of the layers put here, float64 [2 * experts + 1]: counts, probabilities, rows.
  at::Tensor sums() const;
  /// Sums of the stages before.
  const at::Tensor& before() const { return before_; }
  void set_before(at::Tensor before) { before_ = std::move(before); }
  /// The sums to go by from now on: of the layers so far, and in the backward pass of all layers of all stages.
  at::Tensor totals() const { return totals_.defined() ? totals_ : sums(); }
  void set_totals(at::Tensor totals) { totals_ = std::move(totals); }

  /// The loss times the weight, float64 [].
  at::Tensor loss() const;
  /// Gradient of the loss with respect to the probability of each expert for one row, [experts] float64.
  at::Tensor probability_gradient() const;

 private:
  at::Tensor counts(const at::Tensor& sums) const { return sums.narrow(0, 0, experts_); }
  at::Tensor probabilities(const at::Tensor& sums) const { return sums.narrow(0, experts_, experts_); }
  /// numerator / rows^2; 0 without rows.
  at::Tensor by_rows(const at::Tensor& numerator, const at::Tensor& sums) const;

  std::int64_t experts_;
  double coefficient_, weight_, seed_;
  at::Device device_;
  std::map<int, at::Tensor> layers_ = {};  ///< sums of each
  at::Tensor before_ = {}, totals_ = {};
};

/// The same logits [n, experts]; their gradient gets that of the auxiliary loss. `real` [n] is false for padding;
/// undefined: none. `chosen` int64 [n, k]. Puts the layer's sums into `statistics`.
at::Tensor balanced(const at::Tensor& logits, const at::Tensor& chosen, const at::Tensor& real, int layer,
                    std::shared_ptr<RouterStatistics> statistics);

}  // namespace automodel::model
