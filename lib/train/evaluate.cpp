#include "train/evaluate.h"

#include <algorithm>

#include "plan/vision_choice.h"
#include "train/microbatches.h"
#include "train/world_sums.h"

namespace automodel::train {
namespace {

struct EvaluationSums {
  double loss = 0, labels = 0, hits = 0, cross_entropy = 0, divergence = 0;
};

}  // namespace

std::optional<Evaluation> evaluate(Runtime& runtime, const data::Loader& loader, const std::function<bool()>& stops,
                                   const std::function<void(std::int64_t, std::int64_t)>& tell) {
  auto& world = runtime.world();
  const auto& place = runtime.place();
  const bool counts = place.pp == 0 && place.cp == 0 && place.tp == 0;
  pipeline::LossSum losses;
  EvaluationSums sums;
  PartSums parts(runtime.plan());
  const auto tokens = plan::picture_tokens(*runtime.plan().model);
  const auto steps = loader.sampler().steps_per_epoch();
  for (std::int64_t step = 0; step < steps; ++step) {
    if (tell) tell(step, steps);
    for (const auto& batch : loader.load(0, step)) {
      if (stops()) return std::nullopt;
      auto microbatches = make_microbatches(batch, runtime.plan().batch.microbatch, world.device(), place.context(),
                                            tokens ? &*tokens : nullptr, runtime.picture_input());
      runtime.set_lengths({batch.length});
      parts.ask(microbatches);
      runtime.teach(microbatches);
      losses.add(runtime.pipeline().evaluate(microbatches, std::vector<double>(microbatches.size(), 1.0)));
      parts.take(microbatches);
      if (counts) sums.labels += static_cast<double>(batch.num_label_tokens);
    }
  }
  if (place.tp == 0) {
    sums.loss = losses.value();
    sums.hits = parts.hits();
    sums.cross_entropy = parts.cross_entropy();
    sums.divergence = parts.divergence();
  }
  sum_over_world(world, sums);
  Evaluation out{.loss = sums.labels > 0 ? sums.loss / sums.labels : 0,
                 .label_tokens = static_cast<std::int64_t>(sums.labels)};
  if (runtime.plan().model->spec.classes > 0) out.accuracy = sums.hits / std::max(1.0, sums.labels);
  if (runtime.plan().teacher) {
    out.ce_loss = sums.cross_entropy / std::max(1.0, sums.labels);
    out.kd_loss = sums.divergence / std::max(1.0, sums.labels);
  }
  return out;
}

}  // namespace automodel::train
