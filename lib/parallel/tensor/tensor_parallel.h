// Tensor and sequence parallelism on one rank: model::TensorSeam over a group.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "arch/model_spec.h"
#include "arch/tensor_plan.h"
#include "comm/communicator.h"
#include "model/seams.h"
#include "parallel/tensor/products.h"
#include "parallel/tensor/vocabulary.h"

namespace automodel::parallel {

/// Linear layers by the styles of a plan. Without sequence parallelism the residual stream is whole on every rank, and
/// sums are all-reduces; with it each rank has a share of the tokens, and sums are reduce-scatters.
class TensorParallel : public model::TensorSeam {
 public:
  /// `layout` and `plan` must outlive this; the group has at least two ranks.
  TensorParallel(std::shared_ptr<comm::Communicator> group, const arch::ModelSpec& spec, const arch::Layout& layout,
                 const arch::TensorPlan& plan);

  int size() const override { return group_->size(); }
  int rank() const override { return group_->rank(); }
  std::int64_t local(std::int64_t count, const ops::Parameter& weight) const override;
  at::Tensor norm_of_heads(const at::Tensor& x, ops::Parameter& weight, const ops::Parameter& projection,
                           std::int64_t width, double eps, double offset) override;
  at::Tensor enter(const at::Tensor& x) override;
  at::Tensor leave(const at::Tensor& y) override;
  at::Tensor column(const at::Tensor& x, const ops::Linear& layer) override;
  at::Tensor row(const at::Tensor& x, const ops::Linear& layer) override;
  at::Tensor tokenwise(const at::Tensor& x, const ops::Linear& layer) override;
  at::Tensor tokens(const at::Tensor& x) override;
  at::Tensor alike(const at::Tensor& rows) override;
  at::Tensor embed(const at::Tensor& ids, ops::Parameter& table, const at::Tensor& anchor,
                   std::int64_t padding) override;
  at::Tensor loss(const at::Tensor& logits, const at::Tensor& labels, const ops::Factor& scale,
                  std::int64_t ignore) override;
  at::Tensor head_loss(const at::Tensor& x, const ops::Linear& head, const at::Tensor& labels,
                       const ops::HeadLoss& loss) override;
  at::Tensor whole_logits(const at::Tensor& logits) override;
  at::Tensor part(const at::Tensor& x) override;
  at::Tensor whole(const at::Tensor& y) override;

 private:
  /// The plan's style of a weight. An embedding or head is kColwise if its vocabulary is divided, else kReplicated.
  arch::TensorStyle style_of(const ops::Parameter& weight) const;
  bool divided(const ops::Parameter& weight) const { return style_of(weight) == arch::TensorStyle::kColwise; }
  ProductOptions options_for(const ops::Linear& layer) const;
  /// The layer for this rank's share of the tokens of x: with that part of the dropout draw.
  ops::Linear for_own_tokens(const at::Tensor& x, const ops::Linear& layer) const;
  /// enter() and leave() for computations that every rank repeats on all tokens, so that gradients are not summed.
  at::Tensor enter_alike(const at::Tensor& x);
  at::Tensor leave_alike(const at::Tensor& y);
  /// Gathers the results of each weight from all ranks; those of several weights are concatenated.
  at::Tensor gather_results(const at::Tensor& y, const ops::Linear& layer);

  std::shared_ptr<comm::Communicator> group_;
  const arch::Layout& layout_;
  const arch::TensorPlan& plan_;
  bool sequence_;
  bool head_divided_;
  std::int64_t vocab_, outputs_;                                            ///< rows of the embedding, and of the head
  mutable std::unordered_map<std::string, arch::TensorStyle> styles_ = {};  ///< cache of style_of()
};

}  // namespace automodel::parallel
