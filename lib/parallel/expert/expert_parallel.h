// Expert parallelism: each rank of a group holds an equal, contiguous range of every layer's experts, and tokens are
// sent to them. With expert tensor parallelism, neighbouring ranks hold parts of the width of the same experts.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "arch/modules.h"
#include "comm/communicator.h"
#include "model/seams.h"
#include "model/weights.h"
#include "plan/values/execution.h"

namespace automodel::parallel {

struct ExpertOptions {
  plan::ExpertPlan plan = {};
  int tensor = 1;                ///< number of ranks, neighbours in the group, that hold parts of the same experts
  at::Device device = at::kCPU;  ///< device of the tensors that `group` communicates
};

class ExpertParallel : public model::ExpertSeam {
 public:
  /// `group`: the ranks that share a layer's experts; `tokens`: the ranks that have different tokens of the same
  /// microbatch (cp and tp).
  ExpertParallel(std::shared_ptr<comm::Communicator> group, std::shared_ptr<comm::Communicator> tokens,
                 ExpertOptions options);

  int size() const override { return group_->size(); }
  int parts() const override { return options_.plan.overlap_experts ? 2 : 1; }
  bool late_expert_gradients() const override { return options_.plan.late_expert_gradients; }
  model::ExpertRoute route(const at::Tensor& counts) override;
  model::RowsInFlight send(const at::Tensor& x, const model::ExpertRoute& route, bool back) override;
  at::Tensor arrive(const model::RowsInFlight& in_flight, std::function<void()> departed) override;
  void sum_over_tokens(at::Tensor values) override;

 private:
  std::shared_ptr<comm::Communicator> group_, tokens_;
  ExpertOptions options_;
};

/// A rank's place among those that share a layer's experts.
struct ExpertPlace {
  int size = 1;         ///< number of ranges of experts
  int rank = 0;         ///< the range that is here
  int tensor_size = 1;  ///< number of ranks that hold parts of each of its experts
  int tensor_rank = 0;
};
/// The rank-local part of an expert's parameter. `experts` is a multiple of place.size; with tensor_size > 1 experts
/// have tensors of their own and no biases.
model::Placement expert_placement(const arch::Parameter& parameter, int experts, const ExpertPlace& place);

}  // namespace automodel::parallel
