#include "train/evaluate.h"

#include "train/microbatches.h"
#include "train/world_sums.h"

namespace automodel::train {
namespace {

struct EvaluationSums {
  double loss = 0, labels = 0;
};

}  // namespace

std::optional<Evaluation> evaluate(Runtime& runtime, const data::Loader& loader, const std::function<bool()>& stops,
                                   const std::function<void(std::int64_t, std::int64_t)>& tell) {
  auto& world = runtime.world();
  const auto& place = runtime.place();
  const bool counts = place.pp == 0 && place.cp == 0 && place.tp == 0;
  pipeline::LossSum losses;
  EvaluationSums sums;
  const auto steps = loader.sampler().steps_per_epoch();
  for (std::int64_t step = 0; step < steps; ++step) {
    if (tell) tell(step, steps);
    for (const auto& batch : loader.load(0, step)) {
      if (stops()) return std::nullopt;
      const auto microbatches =
          make_microbatches(batch, runtime.plan().batch.microbatch, world.device(), place.context());
      runtime.set_lengths({batch.length});
      losses.add(runtime.pipeline().evaluate(microbatches, std::vector<double>(microbatches.size(), 1.0)));
      if (counts) sums.labels += static_cast<double>(batch.num_label_tokens);
    }
  }
  if (place.tp == 0) sums.loss = losses.value();
  sum_over_world(world, sums);
  return Evaluation{.loss = sums.labels > 0 ? sums.loss / sums.labels : 0,
                    .label_tokens = static_cast<std::int64_t>(sums.labels)};
}

}  // namespace automodel::train
