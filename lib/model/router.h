// Which experts a token goes to, and with which weights.
#pragma once

#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "arch/model_spec.h"
#include "model/router_statistics.h"
#include "model/weights.h"

namespace automodel::model {

struct Routing {
  at::Tensor experts;  ///< int64 [n, k]
  at::Tensor weights;  ///< [n, k] in float32 or better; part of the graph
};

/// The routers of Mixtral and Qwen 3 (softmax, then top k), gpt-oss (top k, then softmax) and DeepSeek-V3 (sigmoid
/// with a correction bias, best groups first). Ties go to the lower number, as far as ATen's topk does so.
class Router {
 public:
  /// `fqn` of the module that holds the weight.
  Router(const arch::MixtureOfExperts& moe, const Weights& weights, const std::string& fqn, int layer);

  /// x [n, width]. `statistics` is null where there is no auxiliary loss; `real` [n] as in balanced().
  Routing route(const at::Tensor& x, const at::Tensor& real, const std::shared_ptr<RouterStatistics>& statistics) const;

 private:
  at::Tensor choose(const at::Tensor& scores) const;

  const arch::MixtureOfExperts& moe_;
  int layer_;
  ops::Parameter *weight_, *bias_, *correction_;
};

}  // namespace automodel::model
