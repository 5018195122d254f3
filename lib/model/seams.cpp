#include "model/seams.h"

#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/graph.h"
#include "ops/norm.h"
#include "ops/split.h"

namespace automodel::model {

at::Tensor TensorSeam::embed(const at::Tensor& ids, ops::Parameter& table, const at::Tensor& anchor,
                             std::int64_t padding) {
  return ops::embedding(ids, table, anchor, padding);
}

at::Tensor TensorSeam::norm_of_heads(const at::Tensor& x, ops::Parameter& weight, const ops::Parameter& /*projection*/,
                                     std::int64_t /*width*/, double eps, double offset) {
  return ops::rms_norm(x, weight, eps, offset);
}

at::Tensor TensorSeam::loss(const at::Tensor& logits, const at::Tensor& labels, const ops::Factor& scale,
                            std::int64_t ignore) {
  return ops::cross_entropy(logits, labels, scale, ignore);
}

ExpertRoute ExpertSeam::route(const at::Tensor& counts) {
  const ops::NoGraph guard;
  const auto known = counts.cpu();
  const auto* begin = known.const_data_ptr<std::int64_t>();
  return {.rows = {.counts = {begin, begin + known.size(0)}}};
}

at::Tensor ExpertSeam::arrive(const RowsInFlight& in_flight, std::function<void()> departed) {
  if (!departed) return in_flight.rows;
  return ops::tap({in_flight.rows}, std::move(departed))[0];
}

}  // namespace automodel::model
