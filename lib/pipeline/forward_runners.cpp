#include "pipeline/forward_runners.h"

namespace automodel::pipeline {

void EvaluationRunner::begin(int microbatches) {
  AUTOMODEL_CHECK(run_ != nullptr && static_cast<int>(run_->data.size()) == microbatches,
                  "an evaluation's microbatches differ from its table's");
}

Message EvaluationRunner::forward(int microbatch, const Message& input) {
  const auto at = static_cast<std::size_t>(microbatch);
  const model::ForwardOptions options{.loss_scale = run_->loss_scales[at]};
  auto data = run_->data[at];
  data.routers = stage().model().statistics(data, options);
  if (data.routers && input.side.defined()) data.routers->set_before(input.side);
  const auto output = last() && run_->heads_apart ? stage().model().head_inputs(data, input.value)
                                                  : stage().forward(microbatch, data, input.value, options);
  if (last()) run_->losses.push_back(output);
  return {output, data.routers ? data.routers->totals() : at::Tensor()};
}

Message LogitsRunner::forward(int microbatch, const Message& input) {
  if (!last()) return {stage().forward(microbatch, run_->data, input.value, {}), {}};
  run_->logits = stage().model().logits(run_->data, input.value, run_->token);
  return {};
}

}  // namespace automodel::pipeline
