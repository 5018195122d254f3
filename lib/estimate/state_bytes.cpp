#include "estimate/state_bytes.h"

#include "arch/modules.h"
#include "plan/training_plan.h"

namespace automodel::estimate {
namespace {

/// Mean bytes per element of the optimizer's tensors; with amsgrad these include the maximum of the second moment.
double moment_bytes(const plan::TypePlan& types, const plan::OptimizerPlan& optimizer) {
  const int second = moments_of(optimizer).of_rest - 1;
  return second < 1 ? size_of(types.first_moment)
                    : (size_of(types.first_moment) + second * size_of(types.second_moment)) / (1.0 + second);
}

StateBytes own_bytes(const plan::TypePlan& types) {
  StateBytes out;
  out.values = size_of(types.compute);
  out.master = size_of(types.master);
  out.gradient = out.reduced = size_of(types.gradient);
  out.travelling = types.reduce == types.gradient ? 0 : size_of(types.reduce);
  return out;
}

/// PyTorch's FSDP2 and DDP: parameters, gradients and moments in the dtype of the recipe's weights.
StateBytes pytorch_bytes(const plan::TypePlan& types, const plan::Sharding& sharding) {
  StateBytes out;
  out.values = sharding.parameters ? size_of(types.compute) : size_of(types.stored);
  out.master = out.reduced = size_of(types.stored);
  out.gradient = sharding.parameters ? size_of(types.reduce) : size_of(types.stored);
  out.travelling = sharding.parameters ? size_of(types.reduce) : 0;
  return out;
}

/// Megatron Core's distributed optimizer: gradients are accumulated in the dtype they are reduced in; the optimizer has
/// float32 weights and moments.
StateBytes megatron_bytes(const plan::TypePlan& types) {
  StateBytes out;
  out.values = size_of(types.compute);
  out.master = size_of(types.master);
  out.gradient = size_of(types.gradient == types.master ? types.reduce : types.gradient);
  // The optimizer's copy, if it needs another dtype.
  out.reduced = types.reduce == types.master ? 0 : size_of(types.master);
  return out;
}

/// Tensor memory that allocators hold beyond tensors. PyTorch's FSDP allocates and frees units of different sizes on
/// several streams; peaks of "reserved" beside what the tensors are (docs/estimates.md).
constexpr double kReserved = 0.04, kPytorchReserved = 0.16;
/// Bytes per logit that other programs' losses hold beside the 16-bit logits: in Megatron Core the logits in float32
/// and their exponentials; in PyTorch's own cross-entropy the logarithms of the probabilities, their gradient and that
/// of the logits. Ours writes the gradient in the logits' place.
constexpr double kLoss = 8, kPytorchLoss = 12;

bool is_own(const plan::TrainingPlan& plan) {
  return !plan.cuda || plan.stack == config::Stack::kOwn;
}

/// Weights beside the optimizer's float32 masters in other programs: Megatron Core's, whether its optimizer is
/// distributed or not, Megatron-FSDP's and DeepSpeed's.
bool has_masters(const plan::TrainingPlan& plan) {
  return plan.zero_level ||
         (plan.stack == config::Stack::kTransformerEngine && plan.mesh.strategy() == mesh::Strategy::kDdp);
}

}  // namespace

plan::Sharding stored_sharding(const plan::TrainingPlan& plan) {
  return is_own(plan) ? plan::stored_parts(plan.sharding) : plan.sharding;
}

plan::TypePlan state_types(const plan::TrainingPlan& plan, const plan::Sharding& sharding) {
  auto out = plan.types;
  if (is_own(plan)) return out;
  if (has_masters(plan)) {
    if (out.gradient == out.master) out.gradient = out.reduce;
    return out;
  }
  out.compute = sharding.parameters ? out.compute : out.stored;
  out.master = out.stored;
  out.gradient = out.reduce = sharding.parameters ? out.reduce : out.stored;
  if (!plan.optimizer.first_moment && !plan.optimizer.second_moment) out.first_moment = out.second_moment = out.stored;
  return out;
}

Moments moments_of(const plan::OptimizerPlan& optimizer) {
  if (const auto* adam = std::get_if<plan::AdamRule>(&optimizer.rule))
    return adam->amsgrad ? Moments{3, 3} : Moments{2, 2};
  if (const auto* sgd = std::get_if<plan::SgdRule>(&optimizer.rule))
    return sgd->momentum > 0 ? Moments{1, 1} : Moments{0, 0};
  return {1, 2};  // Muon: the momentum of matrices, AdamW's moments of the rest
}

StateBytes state_bytes(const plan::TrainingPlan& plan, const plan::Sharding& sharding) {
  const bool own = is_own(plan);
  StateBytes out = own                 ? own_bytes(plan.types)
                   : has_masters(plan) ? megatron_bytes(plan.types)
                                       : pytorch_bytes(plan.types, sharding);
  // PyTorch's moments have the dtype of its weights unless the recipe sets one.
  out.moment = !own && !has_masters(plan) && !plan.optimizer.first_moment && !plan.optimizer.second_moment
                   ? size_of(plan.types.stored)
                   : moment_bytes(plan.types, plan.optimizer);
  out.lean = !own;
  out.by_unit = !own || (sharding.gradients && sharding.overlap_reduction && !sharding.whole_stage);
  if (plan.cuda) {
    const bool pytorch = !own && plan.stack == config::Stack::kPytorch;
    out.reserved = pytorch ? kPytorchReserved : kReserved;
    // DeepSpeed adds 16-bit gradients up in float32 and keeps both.
    if (pytorch && plan.zero_level && *plan.zero_level < 3 && out.gradient > out.values) out.gradient += out.values;
    const bool in_place = own || plan.execution.loss.in_place;
    out.beside_logits = in_place ? 0 : pytorch ? kPytorchLoss : kLoss;
  }
  return out;
}

double saved_bytes(const plan::TrainingPlan& plan) {
  const auto bytes = state_bytes(plan, plan.sharding);
  const auto moments = moments_of(plan.optimizer);
  const double stored = size_of(plan.types.compute), master = size_of(plan.types.master);
  double out = 0;
  for (const auto& each : plan::all_parameters(plan)) {
    if (!each.tied_to.empty() || each.frozen) continue;
    const auto elements = static_cast<double>(each.shape.elements());
    out += elements * (stored + (stored == master ? 0 : master));
    if (each.trainable) out += moments.tensors(elements, arch::is_hidden_matrix(each) ? elements : 0) * bytes.moment;
  }
  return out;
}

}  // namespace automodel::estimate
