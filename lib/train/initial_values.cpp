#include "train/initial_values.h"

#include <cmath>
#include <span>
#include <vector>

#include <ATen/ops/from_blob.h>

#include "base/random.h"
#include "model/slice.h"

namespace automodel::train {
namespace {

enum class Kind { kNormal, kOne, kZero };

Kind kind_of(const arch::ModelSpec& spec, const arch::Parameter& info) {
  if (info.role == arch::Role::kNorm)
    return info.fqn.ends_with(".bias") || spec.norm_scale == arch::NormScale::kOnePlusInFloat ? Kind::kZero
                                                                                              : Kind::kOne;
  if (info.shape.rank() < 2) {
    const bool norm = info.fqn.ends_with("norm.weight") || info.fqn.ends_with("layernorm.weight");  // inside attention
    if (norm) return spec.norm_scale == arch::NormScale::kOnePlusInFloat ? Kind::kZero : Kind::kOne;
    return info.fqn.ends_with(".sinks") ? Kind::kNormal : Kind::kZero;
  }
  return info.trainable && !info.fqn.ends_with("_bias") ? Kind::kNormal : Kind::kZero;
}

double deviation(const arch::ModelSpec& spec, const arch::Parameter& info) {
  const bool residual = spec.learned_positions && info.fqn.ends_with("c_proj.weight");
  return residual ? spec.initializer_range / std::sqrt(2.0 * spec.layers) : spec.initializer_range;
}

}  // namespace

parallel::WeightSource initial_values(const arch::ModelSpec& spec, std::uint64_t seed, bool all_zero) {
  return [spec, seed, all_zero](const model::Weight& weight, std::int64_t first, at::Tensor out) {
    const Kind kind = all_zero ? Kind::kZero : kind_of(spec, weight.info);
    if (kind != Kind::kNormal) {
      out.fill_(kind == Kind::kOne ? 1.0 : 0.0);
      return;
    }
    // A tied head has the values of the embedding that it shares.
    const RandomStream stream(seed, "init/" + (weight.info.tied_to.empty() ? weight.info.fqn : weight.info.tied_to));
    std::vector<float> values(static_cast<std::size_t>(out.numel()));
    for (const auto& run : model::runs(weight.slice, weight.full, first, out.numel()))
      stream.fill_normal(
          static_cast<std::uint64_t>(run.full),
          std::span(values).subspan(static_cast<std::size_t>(run.local - first), static_cast<std::size_t>(run.length)),
          0.0, deviation(spec, weight.info));
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
