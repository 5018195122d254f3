#include "train/microbatches.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <ATen/ops/from_blob.h>
#include <ATen/ops/stack.h>

#include "base/error.h"
#include "ops/upload.h"
#include "train/pixel_values.h"

namespace automodel::train {
namespace {

template <class T>
at::Tensor tensor_of(const std::vector<T>& values, std::int64_t rows, std::int64_t length, at::ScalarType type,
                     at::Device device) {
  const auto options = at::TensorOptions().dtype(type);
  return ops::uploaded(at::from_blob(const_cast<T*>(values.data()), {rows, length}, options), at::kLong, device);
}

/// Pixel values of the pictures in rows [first, first + rows); undefined if there are none.
at::Tensor pixels_of(const data::Batch& batch, std::int64_t first, int rows, const pictures::Processor* processor,
                     at::Device device) {
  std::vector<at::Tensor> out;
  for (auto row = first; row < first + rows && !batch.pictures.empty(); ++row)
    for (const auto& picture : batch.pictures[static_cast<std::size_t>(row)]) {
      AUTOMODEL_CHECK(processor != nullptr, "a batch with pictures needs their processor");
      out.push_back(pixel_values(*picture, *processor));
    }
  return out.empty() ? at::Tensor() : at::stack(out).to(device);
}

}  // namespace

std::vector<model::Microbatch> make_microbatches(const data::Batch& batch, int rows, at::Device device,
                                                 parallel::ContextPlace place, const pictures::Processor* processor) {
  AUTOMODEL_CHECK(batch.rows % rows == 0, "a batch does not divide into microbatches");
  const auto own = [&](const std::vector<std::int64_t>& values) {
    return parallel::own_tokens(tensor_of(values, batch.rows, batch.length, at::kLong, device), place);
  };
  const auto ids = own(batch.input_ids);
  const auto labels = own(batch.labels);
  const auto positions = own(batch.positions);
  const auto documents = [&] { return tensor_of(batch.segments, batch.rows, batch.length, at::kInt, device); };
  const auto segments = batch.needs_segments ? documents() : at::Tensor();
  const bool padded = std::find(batch.segments.begin(), batch.segments.end(), 0) != batch.segments.end();
  const auto real = padded ? parallel::own_tokens(documents().ne(0), place) : at::Tensor();
  const auto part = [&](const at::Tensor& all, std::int64_t first) {
    return all.defined() ? all.narrow(0, first, rows) : all;
  };
  const auto places = [&](std::int64_t first) {
    return batch.needs_segments ? ops::Documents::of(batch.segments.data() + first * batch.length, rows, batch.length)
                                : nullptr;
  };
  std::vector<model::Microbatch> out;
  for (std::int64_t first = 0; first < batch.rows; first += rows)
    out.push_back(
        {.ids = part(ids, first),
         .labels = part(labels, first),
         .positions = part(positions, first),
         .segments = part(segments, first),
         .documents = places(first),
         .length = batch.length,
         .extent = 1 + *std::max_element(batch.positions.begin() + first * batch.length,
                                         batch.positions.begin() + (first + rows) * batch.length),
         .label_tokens = rows * batch.length - std::count(batch.labels.begin() + first * batch.length,
                                                          batch.labels.begin() + (first + rows) * batch.length,
                                                          data::kIgnoredLabel),
         .pixels = pixels_of(batch, first, rows, processor, device),
         .real = part(real, first)});
  return out;
}

void draw_dropout(std::vector<model::Microbatch>& microbatches, const DropoutPlace& place) {
  constexpr int kColumnBits = 22;  // of a token's column; sequences are shorter than 2^22
  std::int64_t row = place.first_row;
  for (auto& microbatch : microbatches) {
    const auto columns = parallel::token_places(microbatch.length, place.context, at::kCPU);
    const auto* column = columns.const_data_ptr<std::int64_t>();
    auto draw = std::make_shared<ops::DropoutDraw>();
    draw->seed = place.seed;
    draw->step = place.step;
    for (std::int64_t i = 0; i < microbatch.ids.size(0); ++i, ++row)
      for (std::int64_t t = 0; t < columns.numel(); ++t) draw->tokens.push_back((row << kColumnBits) | column[t]);
    microbatch.draw = std::move(draw);
  }
}

void PartSums::ask(std::vector<model::Microbatch>& microbatches) const {
  if (!wanted_) return;
  for (auto& microbatch : microbatches) microbatch.parts = std::make_shared<model::LossParts>();
}

void PartSums::take(const std::vector<model::Microbatch>& microbatches) {
  for (const auto& microbatch : microbatches) {
    if (!microbatch.parts) continue;
    const auto& parts = *microbatch.parts;
    for (const auto& [sum, part] : {std::pair(&hits_, &parts.hits), std::pair(&cross_entropy_, &parts.cross_entropy),
                                    std::pair(&divergence_, &parts.divergence)})
      if (part->defined()) sum->add(*part);
  }
}

}  // namespace automodel::train
