// Router statistics of a microbatch, and the auxiliary loss that balances the experts' load.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include <ATen/core/Tensor.h>

namespace automodel::model {

/// Sums over the tokens of a microbatch, for every layer with experts:
///   loss = coefficient x experts x sum over e of F_e P_e,
/// where F_e is the number of assignments to expert e per row and P_e the mean probability of e, both over the rows of
/// all layers together (Hugging Face transformers' load_balancing_loss_func, after Fedus et al. 2021). F has no
/// gradient. The gradient of P is added in the backward passes of the routers' logits (balanced()), by when the sums of
/// all layers are known. All sums stay on the device; the host never reads them.
class RouterStatistics {
 public:
  /// `weight`: factor of the loss (the microbatch's share of the global batch); `seed`: gradient that the backward pass
  /// of the loss starts with; `device`: where the layers' sums are.
  RouterStatistics(int experts, double coefficient, double weight, double seed, at::Device device)
      : experts_(experts), coefficient_(coefficient), weight_(weight), seed_(seed), device_(device) {}

  /// Sets the sums of layer `layer`. A second call for a layer (recomputation) replaces the first.
  void put(int layer, at::Tensor sums) { layers_[layer] = std::move(sums); }

  /// Total over the layers put so far, float64 [2 * experts + 1]: counts, probabilities, rows.
  at::Tensor sums() const;
  /// Sums of the preceding stages.
  const at::Tensor& before() const { return before_; }
  void set_before(at::Tensor before) { before_ = std::move(before); }
  /// The sums that loss and gradient use: by default those of the layers so far; in the backward pass those of all
  /// layers of all stages.
  at::Tensor totals() const { return totals_.defined() ? totals_ : sums(); }
  void set_totals(at::Tensor totals) { totals_ = std::move(totals); }

  /// The weighted loss, float64 [].
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

/// Returns the logits [n, experts] unchanged, but adds the gradient of the auxiliary loss to theirs. `real` [n] is
/// false for padding; undefined: no padding. `chosen` int64 [n, k]. Puts the layer's sums into `statistics`.
at::Tensor balanced(const at::Tensor& logits, const at::Tensor& chosen, const at::Tensor& real, int layer,
                    std::shared_ptr<RouterStatistics> statistics);

}  // namespace automodel::model
