#include "train/initial_values.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "base/expert_number.h"
#include "base/random.h"
#include "model/slice.h"
#include "ops/scalar_type.h"

namespace automodel::train {
namespace {

enum class Kind { kNormal, kOne, kZero, kValue, kDecay, kTable, kAdapter };

Kind kind_of(const arch::Parameter& info) {
  if (arch::is_magnitudes(info)) return Kind::kZero;  // set by magnitudes_over()
  if (info.role == arch::Role::kAdapter) return arch::is_last_matrix(info) ? Kind::kZero : Kind::kAdapter;
  switch (info.initial) {
    case arch::Initial::kNormal: return Kind::kNormal;
    case arch::Initial::kZero: return Kind::kZero;
    case arch::Initial::kOne: return Kind::kOne;
    case arch::Initial::kValue: break;
    case arch::Initial::kInTurn: return Kind::kTable;
    case arch::Initial::kLogUniform:
    case arch::Initial::kLogCount:
    case arch::Initial::kStepBias: return Kind::kDecay;
  }
  return Kind::kValue;
}

/// Elements of an adapter's A [rank, in], from `first` on.
void fill_adapter(const RandomStream& stream, const arch::Parameter& info, arch::AdapterStart start,
                  std::uint64_t first, std::span<float> out) {
  const auto rank = static_cast<double>(info.shape[0]), in = static_cast<double>(info.shape[1]);
  if (start == arch::AdapterStart::kXavier) return stream.fill_normal(first, out, 0.0, std::sqrt(2 / (in + rank)));
  stream.fill_uniform(first, out);
  const auto bound = static_cast<float>(1 / std::sqrt(in));
  for (auto& value : out) value = (2 * value - 1) * bound;
}

/// Elements of a recurrent state's decay parameters, from `first` on.
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

/// Numbers of experts in turn, so that all are chosen alike, as they are in memory.
void fill_table(const arch::Parameter& info, std::int64_t first, std::span<float> out) {
  for (auto& value : out) value = static_cast<float>(stored_expert(first++ % static_cast<std::int64_t>(info.start)));
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
  const parallel::WeightSource values_of = [spec = plan.model->spec, start, seed = origin.seed, all_zero = origin.zero](
                                               const model::Weight& weight, std::int64_t first, at::Tensor out) {
    const Kind own = kind_of(weight.info),
               kind = all_zero && own != Kind::kAdapter && own != Kind::kTable ? Kind::kZero : own;
    if (kind == Kind::kOne || kind == Kind::kZero || kind == Kind::kValue) {
      out.fill_(kind == Kind::kOne ? 1.0 : kind == Kind::kZero ? 0.0 : weight.info.start);
      return;
    }
    // A tied head gets the same values as the embedding.
    const RandomStream stream(seed, "init/" + (weight.info.tied_to.empty() ? weight.info.fqn : weight.info.tied_to));
    std::vector<float> values(static_cast<std::size_t>(out.numel()));
    constexpr std::int64_t kShare = 1 << 16;  // minimum number of elements per task
    for (const auto& run : model::runs(weight.slice, weight.full, first, out.numel())) {
      const auto part =
          std::span(values).subspan(static_cast<std::size_t>(run.local - first), static_cast<std::size_t>(run.length));
      if (kind == Kind::kAdapter)
        fill_adapter(stream, weight.info, start, static_cast<std::uint64_t>(run.full), part);
      else if (kind == Kind::kTable)
        fill_table(weight.info, run.full, part);
      else if (kind == Kind::kDecay)
        fill_decay(stream, weight.info, static_cast<std::uint64_t>(run.full), part);
      else
        // Each number depends only on its position, not on the thread that computes it.
        at::parallel_for(0, run.length, kShare, [&](std::int64_t begin, std::int64_t end) {
          stream.fill_normal(static_cast<std::uint64_t>(run.full + begin),
                             part.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)), 0.0,
                             deviation(spec, weight.info));
        });
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
  return magnitudes_over(plan, values_of, values_of);
}

parallel::WeightSource magnitudes_over(const plan::TrainingPlan& plan, parallel::WeightSource base,
                                       parallel::WeightSource rest) {
  if (!plan.adapters || !plan.adapters->spec.magnitudes) return rest;
  auto weights = std::make_shared<std::map<std::string, arch::Parameter>>();
  for (const auto& info : plan.adapters->all)
    if (info.role != arch::Role::kAdapter) weights->emplace(info.fqn, info);
  return [weights, type = scalar_type(plan.types.compute), base = std::move(base), rest = std::move(rest)](
             const model::Weight& weight, std::int64_t first, const at::Tensor& out) {
    if (!arch::is_magnitudes(weight.info)) return rest(weight, first, out);
    const auto whole = model::whole_weight(weights->at(weight.info.adapts));
    const auto columns = whole.full[1];
    const auto lengths = [&](std::int64_t row, std::int64_t rows) {
      const bool transposed = whole.info.transposed;  // then any row needs the whole matrix
      const auto values =
          at::empty({transposed ? whole.full[0] * columns : rows * columns}, at::TensorOptions().dtype(type));
      base(whole, transposed ? 0 : row * columns, values);
      const auto matrix = values.view({-1, columns}).to(c10::promoteTypes(type, at::kFloat));
      return transposed ? matrix.square().sum(0).sqrt().narrow(0, row, rows) : matrix.square().sum(1).sqrt();
    };
    constexpr std::int64_t kRows = 1024;  // rows at a time
    for (const auto& run : model::runs(weight.slice, weight.full, first, out.numel()))
      for (std::int64_t at = 0; at < run.length; at += kRows) {
        const auto rows = std::min(kRows, run.length - at);
        out.narrow(0, run.local - first + at, rows).copy_(lengths(run.full + at, rows));
      }
  };
}

}  // namespace automodel::train
