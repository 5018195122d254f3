#include "model/seams.h"

#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/split.h"

namespace automodel::model {

at::Tensor TensorSeam::column(const at::Tensor& x, const ops::Parameters& weights, const ops::Parameters& biases) {
  return ops::linear(enter(x), weights, biases);
}

at::Tensor TensorSeam::row(const at::Tensor& x, ops::Parameter& weight, ops::Parameter* bias) {
  if (size() == 1) return ops::linear(x, {&weight}, bias != nullptr ? ops::Parameters{bias} : ops::Parameters{});
  const auto y = leave(ops::linear(x, {&weight}));
  return bias != nullptr ? ops::add_bias(y, *bias) : y;
}

at::Tensor TensorSeam::embed(const at::Tensor& ids, ops::Parameter& table, const at::Tensor& anchor,
                             std::int64_t padding) {
  return ops::embedding(ids, table, anchor, padding);
}

at::Tensor TensorSeam::loss(const at::Tensor& logits, const at::Tensor& labels, double scale, std::int64_t ignore) {
  return ops::cross_entropy(logits, labels, scale, ignore);
}

}  // namespace automodel::model
