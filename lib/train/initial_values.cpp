#include "train/initial_values.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include <ATen/ops/from_blob.h>

#include "base/random.h"
#include "model/slice.h"

namespace automodel::train {
namespace {

enum class Kind { kNormal, kOne, kZero, kValue, kDecay, kAdapter };

Kind kind_of(const arch::Parameter& info) {
  if (info.role == arch::Role::kAdapter) return arch::is_last_matrix(info) ? Kind::kZero : Kind::kAdapter;
  switch (info.initial) {
    case arch::Initial::kNormal: return Kind::kNormal;
    case arch::Initial::kZero: return Kind::kZero;
    case arch::Initial::kOne: return Kind::kOne;
    case arch::Initial::kValue: break;
    case arch::Initial::kLogUniform:
    case arch::Initial::kLogCount:
    case arch::Initial::kStepBias: return Kind::kDecay;
  }
  return Kind::kValue;
}

/// Elements [first, ...) of an adapter's A [rank, in].
void fill_adapter(const RandomStream& stream, const arch::Parameter& info, arch::AdapterStart start,
                  std::uint64_t first, std::span<float> out) {
  const auto rank = static_cast<double>(info.shape[0]), in = static_cast<double>(info.shape[1]);
  if (start == arch::AdapterStart::kXavier) return stream.fill_normal(first, out, 0.0, std::sqrt(2 / (in + rank)));
  stream.fill_uniform(first, out);
  const auto bound = static_cast<float>(1 / std::sqrt(in));
  for (auto& value : out) value = (2 * value - 1) * bound;
}

/// Elements [first, ...) of what a state's decay is made of.
void fill_decay(const RandomStream& stream, const arch::Parameter& info, std::uint64_t first, std::span<float> out) {
  constexpr double kLeastStep = 0.001, kMostStep = 0.1;
  if (info.initial == arch::Initial::kLogCount) {
    for (auto& value : out) value = static_cast<float>(std::log(static_cast<double>(++first)));
    return;
  }
  stream.fill_uniform(first, out);
  for (auto& value : out) {
    const double u = value;
    const double step = kLeastStep * std::pow(kMostStep / kLeastStep, u);
    value = static_cast<float>(info.initial == arch::Initial::kStepBias ? std::log(std::expm1(step))
                                                                        : std::log(std::max(u, 1e-4) * info.start));
  }
}

double deviation(const arch::ModelSpec& spec, const arch::Parameter& info) {
  const bool residual =
      spec.depth_scaled_start && (info.part == arch::Part::kAttentionOut || info.part == arch::Part::kDown);
  return residual ? spec.initializer_range / std::sqrt(2.0 * spec.layers) : spec.initializer_range;
}

}  // namespace

parallel::WeightSource initial_values(const plan::TrainingPlan& plan) {
  return initial_values(plan, plan.weights);
}

parallel::WeightSource initial_values(const plan::TrainingPlan& plan, const plan::WeightOrigin& origin) {
  const auto start = plan.adapters ? plan.adapters->spec.start : arch::AdapterStart::kXavier;
  return [spec = plan.model->spec, start, seed = origin.seed, all_zero = origin.zero](
             const model::Weight& weight, std::int64_t first, at::Tensor out) {
    const Kind own = kind_of(weight.info), kind = all_zero && own != Kind::kAdapter ? Kind::kZero : own;
    if (kind == Kind::kOne || kind == Kind::kZero || kind == Kind::kValue) {
      out.fill_(kind == Kind::kOne ? 1.0 : kind == Kind::kZero ? 0.0 : weight.info.start);
      return;
    }
    // A tied head has the values of the embedding that it shares.
    const RandomStream stream(seed, "init/" + (weight.info.tied_to.empty() ? weight.info.fqn : weight.info.tied_to));
    std::vector<float> values(static_cast<std::size_t>(out.numel()));
    for (const auto& run : model::runs(weight.slice, weight.full, first, out.numel())) {
      const auto part =
          std::span(values).subspan(static_cast<std::size_t>(run.local - first), static_cast<std::size_t>(run.length));
      if (kind == Kind::kAdapter)
        fill_adapter(stream, weight.info, start, static_cast<std::uint64_t>(run.full), part);
      else if (kind == Kind::kDecay)
        fill_decay(stream, weight.info, static_cast<std::uint64_t>(run.full), part);
      else
        stream.fill_normal(static_cast<std::uint64_t>(run.full), part, 0.0, deviation(spec, weight.info));
    }
    const bool embedding = weight.info.role == arch::Role::kEmbedding ||
                           (weight.info.role == arch::Role::kHead && !weight.info.tied_to.empty());
    if (embedding && spec.pad_token && *spec.pad_token >= 0) {
      const auto width = weight.full[1], begin = *spec.pad_token * width;
      for (const auto& run : model::runs(weight.slice, weight.full, first, out.numel()))
        for (auto i = std::max(begin, run.full); i < std::min(begin + width, run.full + run.length); ++i)
          values[static_cast<std::size_t>(run.local - first + i - run.full)] = 0;
    }
    out.copy_(at::from_blob(values.data(), {out.numel()}, at::kFloat));
  };
}

}  // namespace automodel::train
