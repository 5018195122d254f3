#include "estimate/matrix_work.h"

#include <algorithm>
#include <variant>
#include <vector>

#include "estimate/memory_plan.h"
#include "plan/training_plan.h"

namespace automodel::estimate {
namespace {

/// Shards are sent to the rank that updates the matrix and back. If ranks hold copies, only the results are sent.
double bytes_of(double elements, int ranks, bool sharded) {
  const double owned = elements / ranks * size_of(DType::kBFloat16);
  return sharded ? 2 * owned * (ranks - 1) / ranks : owned * (ranks - 1);
}

}  // namespace

MatrixWork& MatrixWork::operator+=(const MatrixWork& other) {
  flops += other.flops;
  dense += other.dense;
  expert += other.expert;
  tensor += other.tensor;
  return *this;
}

MatrixWork matrix_work(const plan::TrainingPlan& plan, int stage) {
  MatrixWork out;
  const auto* muon = std::get_if<plan::MuonRule>(&plan.optimizer.rule);
  if (muon == nullptr) return out;
  const auto& sizes = plan.mesh.sizes();
  const auto& sharding = plan.sharding;
  const auto elements = stage_elements(plan, stage);
  out.dense = bytes_of(elements.dense_matrices, sharding.shards, sharding.optimizer);
  out.expert = bytes_of(elements.expert_matrices, sharding.expert_shards, sharding.optimizer);
  out.tensor = bytes_of(elements.dense_matrices / sharding.shards * sizes.tp, sizes.tp, true);
  if (plan.adapters) return out;  // adapters are low-rank: their matmuls are cheap
  for (const int layer : plan.pipeline->stages[static_cast<std::size_t>(stage)].part.layers) {
    const auto& shares = plan.shares.layer(layer);
    const double experts = shares.expert_orthogonal / (sizes.ep * plan.expert_tensor) / sharding.expert_shards;
    out.flops += static_cast<double>(muon->coefficients.size()) * (shares.orthogonal / sharding.shards + experts);
  }
  return out;
}

double matrix_seconds(const plan::TrainingPlan& plan, const Hardware& hardware, const MatrixLinks& links) {
  std::vector<double> seconds(static_cast<std::size_t>(plan.mesh.sizes().pp));
  for (const auto& stage : plan.pipeline->stages) {
    const auto work = matrix_work(plan, stage.stage);
    auto& mine = seconds[static_cast<std::size_t>(stage.pp_rank)];
    mine += work.flops / (hardware.peak * hardware.forward_efficiency);
    const auto add = [&](double bytes, const Link& link) {  // latency there and back, per layer
      if (bytes > 0) mine += bytes / link.bandwidth + 2 * static_cast<double>(stage.part.layers.size()) * link.latency;
    };
    add(work.dense, links.dense);
    add(work.expert, links.expert);
    add(work.tensor, links.tensor);
  }
  return *std::max_element(seconds.begin(), seconds.end());
}

}  // namespace automodel::estimate
