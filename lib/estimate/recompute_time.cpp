#include "estimate/recompute_time.h"

#include "arch/counts.h"
#include "estimate/layer_traffic.h"
#include "estimate/score_time.h"
#include "plan/training_plan.h"

namespace automodel::estimate {
namespace {

double tokens_of(const plan::TrainingPlan& plan) {
  return static_cast<double>(plan.batch.microbatch * plan.batch.planned_length()) / plan.mesh.sizes().cp;
}
/// FLOPs per token in an MLP, per element of its width.
double width_flops(const arch::ModelSpec& spec) {
  return 2.0 * (spec.gated_mlp ? 3 : 2) * spec.hidden;
}

}  // namespace

double feed_forward_share(const arch::ModelSpec& spec, const arch::Layout& layout, int layer, std::int64_t sequence) {
  if (!spec.has_feed(layer)) return 0;
  const double inputs = spec.gated_mlp ? 3 : 2;
  const double widths =
      spec.is_moe(layer) ? static_cast<double>(spec.moe->ffn) * spec.moe->top_k + spec.moe->shared_ffn : spec.ffn;
  return 2 * inputs * widths * spec.hidden / arch::layer_flops_per_token(spec, layout, layer, sequence);
}

double unrepeated_flops(const arch::ModelSpec& spec, int layer, const Hardware& hardware, const plan::Sharding& parts) {
  const bool repeats = hardware.stack != config::Stack::kPytorch || (parts.optimizer && !parts.parameters);
  if (repeats || !spec.has_feed(layer) || spec.is_moe(layer) || spec.branch_norms) return 0;
  return 2.0 * spec.hidden * spec.ffn_of(layer);
}

double expert_flops(const plan::TrainingPlan& plan) {
  const auto& spec = plan.model->spec;
  return tokens_of(plan) * width_flops(spec) * spec.moe->top_k * spec.moe->ffn / plan.mesh.sizes().tp;
}

double modules_seconds(const plan::TrainingPlan& plan, const Hardware& hardware, int layer) {
  const auto& spec = plan.model->spec;
  const auto& m = plan.recompute_modules;
  const auto& widths = plan.shares.layer(layer).widths;
  const double tokens = tokens_of(plan);
  const auto seconds = [&](double flops, double share) { return flops / (hardware.peak * share); };
  const auto product = [&](double flops) { return seconds(flops, hardware.forward_efficiency); };
  double out = 0;
  if (m.core_attention) {
    const double flops = tokens * arch::layer_score_flops_per_token(spec, layer, plan.batch.planned_length());
    out += score_time(spec, layer, flops / widths.heads, size_of(plan.types.compute), plan.batch.planned_length(),
                      plan.mesh.sizes().cp, hardware)
               .forward;
  }
  if (m.latent_up && spec.latent) {
    const auto& latent = *spec.latent;
    const double queries = static_cast<double>(spec.query_width(0)) * latent.q_rank;
    const double keys = static_cast<double>(spec.heads) * (latent.nope_dim + latent.v_dim) * latent.kv_rank;
    out += product(tokens * 2 * (queries + keys) / widths.heads);
  }
  if (!spec.is_moe(layer))
    return out + (m.mlp ? product(tokens * width_flops(spec) * spec.ffn_of(layer) / widths.up) : 0);
  if (m.experts || m.shared_experts) out += product(tokens * width_flops(spec) * spec.moe->shared_ffn / widths.up);
  if (!m.experts) return out;
  const auto passes = layer_passes(plan, hardware, plan::Recompute::kNone, layer);
  return out + product(expert_flops(plan)) + passes.forward.experts.exposed;
}

}  // namespace automodel::estimate
