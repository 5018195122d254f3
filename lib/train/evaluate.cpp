#include "train/evaluate.h"

#include <ATen/ops/tensor.h>

#include "train/microbatches.h"

namespace automodel::train {

std::optional<Evaluation> evaluate(Runtime& runtime, const data::Loader& loader, const std::function<bool()>& stops) {
  auto& world = runtime.world();
  const auto& place = runtime.place();
  const bool counts = place.pp == 0 && place.cp == 0 && place.tp == 0;
  pipeline::LossSum losses;
  double labels = 0;
  for (std::int64_t step = 0; step < loader.sampler().steps_per_epoch(); ++step)
    for (const auto& batch : loader.load(0, step)) {
      if (stops()) return std::nullopt;
      const auto microbatches =
          make_microbatches(batch, runtime.plan().batch.microbatch, world.device(), place.context());
      runtime.set_length(batch.length);
      losses.add(runtime.executor().evaluate(microbatches, std::vector<double>(microbatches.size(), 1.0)));
      if (counts) labels += static_cast<double>(batch.num_label_tokens);
    }
  auto sums = at::tensor({place.tp == 0 ? losses.value() : 0.0, labels}, at::TensorOptions().dtype(at::kDouble));
  world.control().all_reduce(sums, comm::ReduceOp::kSum)->wait();
  const double* values = sums.const_data_ptr<double>();
  return Evaluation{.loss = values[1] > 0 ? values[0] / values[1] : 0,
                    .label_tokens = static_cast<std::int64_t>(values[1])};
}

}  // namespace automodel::train
