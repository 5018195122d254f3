// Time spent on recomputation in a layer's backward pass.
#pragma once

#include "arch/layout.h"
#include "arch/model_spec.h"
#include "estimate/hardware.h"
#include "plan/training_plan.h"

namespace automodel::estimate {

/// The MLP's fraction of a layer's FLOPs, which selective recomputation computes twice.
double feed_forward_share(const arch::ModelSpec& spec, const arch::Layout& layout, int layer, std::int64_t sequence);

/// Seconds to recompute the layer parts in the plan's recompute_modules, per microbatch on one rank. Norms and
/// activations only cost memory traffic.
double modules_seconds(const plan::TrainingPlan& plan, const Hardware& hardware, int layer);

/// FLOPs of a microbatch in the experts chosen by its tokens, on one rank of the tp group.
double expert_flops(const plan::TrainingPlan& plan);

}  // namespace automodel::estimate
