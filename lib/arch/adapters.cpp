#include "arch/adapters.h"

#include <algorithm>
#include <unordered_set>

#include "base/error.h"

namespace automodel::arch {
namespace {

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kMagnitudes = ".lora_magnitude_vector";

std::string module_of(std::string_view weight) {
  AUTOMODEL_CHECK(weight.ends_with(kWeight), "only weights have adapters");
  weight.remove_suffix(kWeight.size());
  return std::string(weight);
}

Parameter matrix_of(const Parameter& weight, char matrix, int rank) {
  const auto sizes = linear_sizes(weight);
  Parameter out;
  out.fqn = adapter_matrix(weight.fqn, matrix);
  out.shape = matrix == 'A' ? Shape{rank, sizes.in} : Shape{sizes.out, rank};
  out.role = Role::kAdapter;
  out.part = weight.part;
  out.layer = weight.layer;
  out.expert = weight.expert;
  out.adapts = weight.fqn;
  return out;
}

Parameter magnitudes_of(const Parameter& weight) {
  auto out = matrix_of(weight, 'B', 1);
  out.fqn = adapter_magnitudes(weight.fqn);
  out.shape = Shape{linear_sizes(weight).out};
  return out;
}

}  // namespace

bool is_linear_weight(const Parameter& parameter) {
  const auto role = parameter.role;
  const bool linear = role == Role::kAttention || role == Role::kRecurrence || role == Role::kMlp ||
                      role == Role::kSharedExpert || role == Role::kHead || parameter.part == Part::kTowerProduct;
  const bool whole = parameter.part != Part::kOutDown;  // of which each group of heads has a part to itself
  return linear && whole && parameter.shape.rank() == 2 && parameter.fqn.ends_with(kWeight);
}

bool can_be_quantized(const Parameter& parameter) {
  return is_linear_weight(parameter) && parameter.role != Role::kHead && !parameter.in_tower() && !parameter.transposed;
}

std::string adapter_matrix(std::string_view weight, char matrix) {
  return module_of(weight) + (matrix == 'A' ? ".lora_A.weight" : ".lora_B.weight");
}

std::string adapter_magnitudes(std::string_view weight) {
  return module_of(weight) + std::string(kMagnitudes);
}

bool is_last_matrix(const Parameter& adapter) {
  return adapter.fqn.ends_with(".lora_B.weight") || is_magnitudes(adapter);
}

bool is_magnitudes(const Parameter& adapter) {
  return adapter.fqn.ends_with(kMagnitudes);
}

LinearSizes linear_sizes(const Parameter& weight) {
  return {weight.shape[weight.transposed ? 0 : 1], weight.shape[weight.transposed ? 1 : 0]};
}

std::vector<Parameter> with_adapters(std::vector<Parameter> parameters, const AdapterSpec& adapters) {
  const std::unordered_set<std::string> adapted(adapters.weights.begin(), adapters.weights.end());
  std::vector<Parameter> out, waiting;
  const auto flush = [&] {
    // A's first: those of weights with the same input are adjacent in memory, so that one product serves them.
    std::stable_partition(waiting.begin(), waiting.end(), [](const Parameter& p) { return !is_last_matrix(p); });
    std::move(waiting.begin(), waiting.end(), std::back_inserter(out));
    waiting.clear();
  };
  for (auto& parameter : parameters) {
    if (!waiting.empty() && waiting.back().layer != parameter.layer) flush();
    parameter.frozen = true;
    if (adapters.base && can_be_quantized(parameter)) parameter.bits = adapters.base->bits;
    if (adapted.contains(parameter.fqn)) {
      for (const char matrix : {'A', 'B'}) waiting.push_back(matrix_of(parameter, matrix, adapters.rank_of(parameter)));
      if (adapters.magnitudes) waiting.push_back(magnitudes_of(parameter));
    }
    out.push_back(std::move(parameter));
  }
  flush();
  return out;
}

}  // namespace automodel::arch
