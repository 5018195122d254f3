#include "model/seams.h"

#include "ops/cross_entropy.h"
#include "ops/embedding.h"

namespace automodel::model {

at::Tensor TensorSeam::embed(const at::Tensor& ids, ops::Parameter& table, const at::Tensor& anchor,
                             std::int64_t padding) {
  return ops::embedding(ids, table, anchor, padding);
}

at::Tensor TensorSeam::loss(const at::Tensor& logits, const at::Tensor& labels, double scale, std::int64_t ignore) {
  return ops::cross_entropy(logits, labels, scale, ignore);
}

}  // namespace automodel::model
