#include "train/gather.h"

#include <ATen/ops/zeros.h>

#include "ops/graph.h"

namespace automodel::train {
namespace {

/// Copies the elements that this rank counts into zero-filled tensors of the whole shapes, and sums these over the
/// world.
std::map<std::string, at::Tensor> gather(Runtime& runtime,
                                         const std::function<at::Tensor(const optim::Target&)>& buffer,
                                         bool trained_only) {
  const ops::NoGraph guard;
  std::map<std::string, at::Tensor> whole;
  for (const auto& info : plan::all_parameters(runtime.plan())) {
    if (!info.tied_to.empty() || (trained_only && !info.trained())) continue;
    whole[info.fqn] = at::zeros(std::vector<std::int64_t>(info.shape.begin(), info.shape.end()), at::kDouble);
  }
  std::map<std::string, const model::Weight*> weights;
  for (auto* stage : runtime.stages())
    for (const auto& weight : stage->model().weights().all()) weights[weight->info.fqn] = weight.get();
  for (const auto& target : runtime.optimizer().targets())
    for (const auto& range : target.ranges) {
      if (!range.counted || (trained_only && !range.trained)) continue;
      const auto* weight = weights.at(range.name);
      const auto from = buffer(target).narrow(0, range.offset, range.length).to(at::kDouble).cpu();
      auto to = whole.at(range.name).view({-1});
      for (const auto& run : model::runs(weight->slice, weight->full, range.first, range.length))
        to.narrow(0, run.full, run.length).copy_(from.narrow(0, run.local - range.first, run.length));
    }
  for (auto& [name, tensor] : whole) runtime.world().control().all_reduce(tensor, comm::ReduceOp::kSum)->wait();
  return whole;
}

}  // namespace

std::map<std::string, at::Tensor> gather_gradients(Runtime& runtime) {
  return gather(
      runtime, [](const optim::Target& target) { return target.gradient(); }, true);
}

std::map<std::string, at::Tensor> gather_values(Runtime& runtime) {
  return gather(
      runtime, [](const optim::Target& target) { return target.value; }, false);
}

}  // namespace automodel::train
