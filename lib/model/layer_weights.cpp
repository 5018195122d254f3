#include "base/error.h"
#include "model/blocks.h"

namespace automodel::model {

ops::Parameter* LayerWeights::weight(arch::Part part) const {
  if (!has(part)) return nullptr;
  auto* of_module = context_.weights.parameter(fqn(part) + ".weight");
  return of_module != nullptr ? of_module : context_.weights.parameter(fqn(part));
}

ops::Parameter* LayerWeights::bias(arch::Part part) const {
  return has(part) ? context_.weights.parameter(fqn(part) + ".bias") : nullptr;
}

ops::Linear LayerWeights::product(std::initializer_list<arch::Part> parts) const {
  ops::Linear out;
  bool any_bias = false;
  for (const auto part : parts) {
    if (!has(part)) continue;
    const auto* weight = context_.weights.find(fqn(part) + ".weight");
    AUTOMODEL_CHECK(weight != nullptr, "no weight " + fqn(part));
    out.transposed = weight->info.transposed;
    out.weights.push_back(this->weight(part));
    out.biases.push_back(bias(part));
    any_bias = any_bias || out.biases.back() != nullptr;
  }
  AUTOMODEL_CHECK(!out.weights.empty(), "a product without weights below " + prefix_);
  if (!any_bias) out.biases.clear();
  adapt(context_.weights, context_.adapters, out);
  return out;
}

}  // namespace automodel::model
