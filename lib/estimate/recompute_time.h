// Time spent on recomputation in a layer's backward pass.
#pragma once

#include "arch/layout.h"
#include "arch/model_spec.h"
#include "estimate/hardware.h"
#include "plan/training_plan.h"

namespace automodel::estimate {

/// The MLP's fraction of a layer's FLOPs, which selective recomputation computes twice.
double feed_forward_share(const arch::ModelSpec& spec, const arch::Layout& layout, int layer, std::int64_t sequence);

/// FLOPs per token of the product that full recomputation leaves out, on one rank of a tp group of size 1. PyTorch's
/// checkpoints stop at the last tensor that the backward pass reads: in a layer without experts, whose last product's
/// output is only added to the residual stream, at the input of that product. 0 for other programs; those of ZeRO 1 and
/// 2, Megatron Core and DeepSpeed, repeat the layer.
double unrepeated_flops(const arch::ModelSpec& spec, int layer, const Hardware& hardware, const plan::Sharding& parts);

/// Seconds to recompute the layer parts in the plan's recompute_modules, per microbatch on one rank. Norms and
/// activations only cost memory traffic.
double modules_seconds(const plan::TrainingPlan& plan, const Hardware& hardware, int layer);

/// FLOPs of a microbatch in the experts chosen by its tokens, on one rank of the tp group.
double expert_flops(const plan::TrainingPlan& plan);

}  // namespace automodel::estimate
