// Expert loads: how many tokens the routers of a stage sent to each expert in an optimizer step. They drive the updates
// of the routers' biases.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

namespace automodel::model {

/// Loads of one microbatch: times each expert was chosen, by layer. Recomputation routes the same tokens again and
/// replaces the earlier counts.
class RouterLoads {
 public:
  /// `chosen` int64 [n, k]; `real` [n] is false for padding, which is not counted; undefined: no padding.
  void put(int layer, int experts, const at::Tensor& chosen, const at::Tensor& real);
  /// Adds the counts to the rows of their layers, float64 [layers, experts] on the CPU.
  void add_to(at::Tensor& loads) const;

 private:
  std::map<int, at::Tensor> layers_ = {};  ///< int64 [experts]
};

/// The loads of all microbatches of a step.
class StepLoads {
 public:
  std::shared_ptr<RouterLoads> next() { return parts_.emplace_back(std::make_shared<RouterLoads>()); }
  void clear() { parts_.clear(); }
  void add_to(at::Tensor& loads) const {
    for (const auto& part : parts_) part->add_to(loads);
  }

 private:
  std::vector<std::shared_ptr<RouterLoads>> parts_ = {};
};

}  // namespace automodel::model
