#include "pipeline/stage.h"

#include <algorithm>

#include <ATen/TensorOperators.h>

#include "base/error.h"

namespace automodel::pipeline {

void Stage::begin(int microbatches) {
  kept_.clear();
  kept_.resize(static_cast<std::size_t>(microbatches));
}

at::Tensor Stage::forward(int microbatch, const model::Microbatch& data, const at::Tensor& input,
                          const model::ForwardOptions& options) {
  if (!c10::GradMode::is_enabled()) return model_.forward(data, input, options);
  auto& mine = kept(microbatch);
  if (input.defined()) mine.input = ops::leaf(input);
  const auto output = model_.forward(data, mine.input, options);
  mine.output = ops::Origin(output);
  return output.detach();
}

at::Tensor Stage::run_backward(Kept& mine, const at::Tensor& gradient) {
  AUTOMODEL_CHECK(mine.output.defined(), "a backward pass without its forward pass");
  const auto origin = std::exchange(mine.output, {});
  ops::run_backward(origin, gradient);
  if (!mine.input.defined()) return {};
  auto out = mine.input.grad();
  mine.input = at::Tensor();
  return out;
}

at::Tensor Stage::backward(int microbatch, const at::Tensor& gradient) {
  const ops::WeightGradients::Scope scope(nullptr);
  return run_backward(kept(microbatch), gradient);
}

at::Tensor Stage::backward_input(int microbatch, const at::Tensor& gradient) {
  auto& mine = kept(microbatch);
  const ops::WeightGradients::Scope scope(&mine.waiting);
  return run_backward(mine, gradient);
}

void Stage::backward_weight(int microbatch) {
  kept(microbatch).waiting.drain();
}

bool Stage::done() const {
  return std::all_of(kept_.begin(), kept_.end(),
                     [](const Kept& each) { return !each.output.defined() && each.waiting.empty(); });
}

void scale_grads_by_divisor(model::Weights& weights, double divisor) {
  const ops::NoGraph guard;
  for (const auto& weight : weights.all())
    if (weight->trained && !weight->parameter.fresh && weight->parameter.grad.defined())
      weight->parameter.grad.div_(divisor);
}

}  // namespace automodel::pipeline
