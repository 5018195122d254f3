#include "train/microbatches.h"

#include <ATen/ops/from_blob.h>

#include "base/error.h"

namespace automodel::train {
namespace {

template <class T>
at::Tensor tensor_of(const std::vector<T>& values, std::int64_t rows, std::int64_t length, at::ScalarType type,
                     at::Device device) {
  // from_blob does not own; the copy does.
  return at::from_blob(const_cast<T*>(values.data()), {rows, length}, at::TensorOptions().dtype(type))
      .to(at::TensorOptions().dtype(at::kLong).device(device), false, true);
}

}  // namespace

std::vector<model::Microbatch> make_microbatches(const data::Batch& batch, int rows, at::Device device,
                                                 parallel::ContextPlace place) {
  AUTOMODEL_CHECK(batch.rows % rows == 0, "a batch does not divide into microbatches");
  const auto own = [&](const std::vector<std::int64_t>& values) {
    return parallel::own_tokens(tensor_of(values, batch.rows, batch.length, at::kLong, device), place);
  };
  const auto ids = own(batch.input_ids);
  const auto labels = own(batch.labels);
  const auto positions = own(batch.positions);
  const auto segments =
      batch.needs_segments ? tensor_of(batch.segments, batch.rows, batch.length, at::kInt, device) : at::Tensor();
  std::vector<model::Microbatch> out;
  for (std::int64_t first = 0; first < batch.rows; first += rows)
    out.push_back({.ids = ids.narrow(0, first, rows),
                   .labels = labels.narrow(0, first, rows),
                   .positions = positions.narrow(0, first, rows),
                   .segments = segments.defined() ? segments.narrow(0, first, rows) : segments,
                   .length = batch.length});
  return out;
}

}  // namespace automodel::train
