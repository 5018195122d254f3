#include "ops/checkpoint.h"

#include "ops/graph.h"

namespace automodel::ops {
namespace {

class CheckpointBackward : public Backward {
 public:
  CheckpointBackward(Computation compute, std::vector<at::Tensor> inputs)
      : compute_(std::move(compute)), inputs_(std::move(inputs)) {}

  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    std::vector<at::Tensor> leaves;
    for (const auto& input : inputs_) leaves.push_back(input.defined() ? leaf(input) : input);
    std::vector<at::Tensor> outputs, seeds;
    {
      WithGraph guard;
      const auto all = compute_(leaves);
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (!all[i].defined() || !gradients[i].defined() || !all[i].requires_grad()) continue;
        outputs.push_back(all[i]);
        seeds.push_back(gradients[i]);
      }
    }
    inputs_.clear();
    gradients.clear();
    run_backward(outputs, seeds);
    std::vector<at::Tensor> out;
    for (const auto& each : leaves) out.push_back(each.defined() ? each.grad() : each);
    return out;
  }
  const char* name() const override { return "checkpoint"; }

 private:
  Computation compute_;
  std::vector<at::Tensor> inputs_;
};

}  // namespace

std::vector<at::Tensor> checkpoint(const Computation& compute, const std::vector<at::Tensor>& inputs) {
  if (!records(inputs)) return compute(inputs);
  std::vector<at::Tensor> kept, outputs;
  {
    NoGraph guard;
    for (const auto& input : inputs) kept.push_back(input.defined() ? input.detach() : input);
    outputs = compute(kept);
    for (auto& output : outputs)  // an output that is one of the inputs must not form a reference cycle
      if (output.defined()) output = output.detach();
  }
  record(outputs, inputs, std::make_unique<CheckpointBackward>(compute, std::move(kept)));
  return outputs;
}

}  // namespace automodel::ops
