#include "plan/capture_choice.h"

#include <algorithm>
#include <array>

#include "plan/training_plan.h"

namespace automodel::plan {
namespace {

/// A condition under which microbatches cannot be captured, with the reason and a hint for the user.
struct Obstacle {
  bool (*stands)(const TrainingPlan& plan, const config::Recipe& recipe);
  const char* why;
  const char* help;
};

using Plan = TrainingPlan;
using config::Recipe;

bool other_mixers(const arch::ModelSpec& spec) {
  return spec.latent || spec.index || spec.compressed ||
         std::any_of(spec.mixers.begin(), spec.mixers.end(),
                     [](arch::Mixer mixer) { return mixer != arch::Mixer::kAttention && mixer != arch::Mixer::kNone; });
}

constexpr std::array kObstacles = {
    Obstacle{[](const Plan& plan, const Recipe&) { return !plan.cuda; },
             "CUDA graphs need a GPU, and the device is the CPU", "remove it, or plan for device: cuda"},
    Obstacle{[](const Plan& plan, const Recipe&) { return !plan.model || !plan.pipeline; },
             "the model's sizes are unknown", "name a config.json whose family is known"},
    Obstacle{[](const Plan& plan, const Recipe&) { return plan.pipeline->stages.size() > 1; },
             "pipeline stages wait for messages between forward and backward passes", "remove it, or set pp_size: 1"},
    Obstacle{[](const Plan& plan, const Recipe&) {
               const auto& sizes = plan.mesh.sizes();
               return sizes.tp > 1 || sizes.cp > 1 || sizes.ep > 1 || plan.expert_tensor > 1;
             },
             "ranks communicate inside a microbatch (tensor, context or expert parallelism)",
             "remove it, or use data parallelism only"},
    Obstacle{[](const Plan& plan, const Recipe&) { return plan.sharding.parameters || plan.sharding.gradients; },
             "weights or gradients are sharded, so their buffers are allocated and freed inside a microbatch",
             "set distributed.strategy: ddp, or megatron_fsdp with zero_dp_strategy 0 or 1"},
    Obstacle{[](const Plan& plan, const Recipe&) { return plan.model->spec.moe.has_value(); },
             "the host may need the number of rows per expert", "remove it"},
    Obstacle{[](const Plan& plan, const Recipe&) { return other_mixers(plan.model->spec); },
             "layers other than attention and feed-forward blocks are not supported", "remove it"},
    Obstacle{[](const Plan& plan, const Recipe&) { return plan.model->spec.vision.has_value(); },
             "the number of pictures differs from one microbatch to the next", "remove it"},
    Obstacle{[](const Plan& plan, const Recipe&) { return plan.model->spec.classes > 0; },
             "a classifier's hits are counted beside its loss", "remove it"},
    Obstacle{[](const Plan& plan, const Recipe&) { return plan.execution.loss.distillation.has_value(); },
             "the teacher's part of a microbatch differs in memory each time", "remove it"},
    Obstacle{[](const Plan& plan, const Recipe&) { return plan.execution.activations.offloading.has_value(); },
             "activations are offloaded to host memory inside a microbatch", "remove it, or cpu_offloading"},
    Obstacle{[](const Plan& plan, const Recipe&) {
               return plan.execution.embedding_noise > 0 || (plan.adapters && plan.adapters->spec.dropout > 0);
             },
             "the host generates the random numbers of dropout or noise for each microbatch",
             "remove it, or set peft.dropout: 0 and leave neftune out"},
    Obstacle{[](const Plan& plan, const Recipe&) {
               return plan.execution.precision.float8 || plan.execution.precision.quantization ||
                      (plan.adapters && plan.adapters->spec.magnitudes);
             },
             "float8 matmuls, quantized weights and DoRA are not supported",
             "remove it, or fp8, quantization and use_dora"},
    Obstacle{[](const Plan&, const Recipe& recipe) { return recipe.packed_sequence->packed_sequence_size() > 0; },
             "document boundaries of packs differ per microbatch, and the host splits attention at them",
             "remove it, or packed_sequence"},
};

}  // namespace

void choose_capture(TrainingPlan& plan, const config::LoadedRecipe& loaded, Located& report) {
  const std::string key = "model_parallel.enable_cuda_graph";
  if (!loaded.recipe.model_parallel->enable_cuda_graph()) return;
  for (const auto& each : kObstacles) {
    if (!each.stands(plan, loaded.recipe)) continue;
    plan.execution.capture.not_captured = each.why;
    report.warn("no-effect", key)
        .says(std::string("microbatches are not captured as CUDA graphs: ") + each.why)
        .hint(each.help);
    return;
  }
  plan.execution.capture.captured = true;
  plan.sharding.overlap_reduction = false;
}

}  // namespace automodel::plan
