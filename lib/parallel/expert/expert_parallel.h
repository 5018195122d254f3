// Expert parallelism: each rank of a group holds an equal run of every layer's experts, and tokens travel to them.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "arch/modules.h"
#include "comm/communicator.h"
#include "model/seams.h"
#include "model/weights.h"

namespace automodel::parallel {

struct ExpertOptions {
  /// Tokens of a layer travel in two parts, so that one is computed while the other is under way; the shared experts
  /// run while both are. overlap_moe_expert_parallel_comm of Megatron Core.
  bool overlap = false;
  /// overlap_dispatch_backward_with_experts_wgrad of Megatron Core.
  bool late_weight_gradients = false;
  at::Device device = at::kCPU;  ///< that `group` takes tensors of
};

class ExpertParallel : public model::ExpertSeam {
 public:
  /// `group`: the ranks that share a layer's experts (ep), of whose number that of the experts is a multiple; `tokens`:
  /// the ranks that have other tokens of the same microbatch (cp and tp).
  ExpertParallel(std::shared_ptr<comm::Communicator> group, std::shared_ptr<comm::Communicator> tokens,
                 ExpertOptions options);

  int size() const override { return group_->size(); }
  int parts() const override { return options_.overlap ? 2 : 1; }
  bool late_weight_gradients() const override { return options_.late_weight_gradients; }
  model::ExpertRoute route(const std::vector<std::int64_t>& rows) override;
  model::TravellingRows send(const at::Tensor& x, const model::ExpertRoute& route, bool back) override;
  at::Tensor arrive(const model::TravellingRows& travelling, std::function<void()> departed) override;
  void sum_over_tokens(at::Tensor values) override;

 private:
  std::shared_ptr<comm::Communicator> group_, tokens_;
  ExpertOptions options_;
};

/// What rank `rank` of `size` expert-parallel ranks holds of an expert's parameter. `experts` is a multiple of `size`.
model::Placement expert_placement(const arch::Parameter& parameter, int experts, int size, int rank);

}  // namespace automodel::parallel
