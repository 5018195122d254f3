#include "plan/state_bytes.h"

#include "plan/training_plan.h"

namespace automodel::plan {
namespace {

StateBytes own_bytes(const TypePlan& types) {
  StateBytes out;
  out.values = size_of(types.compute);
  out.master = out.moment = size_of(types.master);
  out.gradient = out.reduced = size_of(types.gradient);
  out.travelling = types.reduce == types.gradient ? 0 : size_of(types.reduce);
  return out;
}

/// FSDP2 and DDP of PyTorch: parameters, gradients and moments in the type that the recipe's weights have.
StateBytes pytorch_bytes(const TypePlan& types, const Sharding& sharding) {
  StateBytes out;
  out.values = sharding.parameters ? size_of(types.compute) : size_of(types.stored);
  out.master = out.moment = out.reduced = size_of(types.stored);
  out.gradient = sharding.parameters ? size_of(types.reduce) : size_of(types.stored);
  out.travelling = sharding.parameters ? size_of(types.reduce) : 0;
  return out;
}

/// Megatron Core's distributed optimizer: gradients are added up in the type that they are reduced in, the optimizer
/// has float32 values and moments.
StateBytes megatron_bytes(const TypePlan& types) {
  StateBytes out;
  out.values = size_of(types.compute);
  out.master = size_of(types.master);
  out.moment = size_of(DType::kFloat32);
  out.gradient = size_of(types.reduce);
  // The optimizer's copy, where it wants another type.
  out.reduced = types.reduce == DType::kFloat32 ? 0 : size_of(DType::kFloat32);
  return out;
}

}  // namespace

StateBytes state_bytes(const TrainingPlan& plan, const Sharding& sharding) {
  const bool own = !plan.cuda || plan.stack == config::Stack::kOwn;
  StateBytes out = own               ? own_bytes(plan.types)
                   : plan.zero_level ? megatron_bytes(plan.types)
                                     : pytorch_bytes(plan.types, sharding);
  out.by_unit = out.lean = !own;
  out.reserved = plan.cuda ? 0.04 : 0;
  return out;
}

}  // namespace automodel::plan
