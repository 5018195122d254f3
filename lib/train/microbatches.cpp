#include "train/microbatches.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

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

/// Rows [first, first + rows) of a batch.
struct Rows {
  const data::Batch& batch;
  std::int64_t first;
  std::int64_t count;
};

/// The pictures of the rows.
std::vector<pictures::PicturePtr> pictures_of(const Rows& rows) {
  std::vector<pictures::PicturePtr> out;
  for (auto row = rows.first; row < rows.first + rows.count; ++row)
    std::ranges::copy(rows.batch.pictures[static_cast<std::size_t>(row)], std::back_inserter(out));
  return out;
}

/// A picture's rows in the store, [rows * values].
at::Tensor stored_rows(const data::FeatureStore& store, const pictures::Picture& picture, at::ScalarType type) {
  const auto bytes = store.read(picture.content);
  const auto count = static_cast<std::int64_t>(bytes.size() / c10::elementSize(type));
  return at::from_blob(const_cast<char*>(bytes.data()), {count}, at::TensorOptions().dtype(type));
}

/// M-RoPE: text goes on by one on all axes; a picture's tokens have the time of its first, and their row and column
/// behind it; what follows begins behind the largest. Each row of a pack begins at 0. Padding is at 0. Placeholders
/// behind the last picture, which only a model writes, are text. Source:
/// get_rope_index of Qwen2.5-VL in transformers 5.23.
at::Tensor axes_of(const Rows& rows, const std::vector<arch::PatchGrid>& grids, const pictures::PictureTokens& tokens,
                   at::Device device) {
  const int merge = tokens.processor->patches->merge;
  const auto length = rows.batch.length, plane = rows.count * length;
  auto out = at::zeros({3, rows.count, length}, at::kLong);
  auto* to = out.mutable_data_ptr<std::int64_t>();
  auto grid = grids.begin();
  for (std::int64_t row = 0; row < rows.count; ++row) {
    const auto at = static_cast<std::size_t>((rows.first + row) * length);
    std::int64_t next = 0;
    std::int32_t document = 0;
    for (std::int64_t t = 0; t < length;) {
      const auto segment = rows.batch.segments[at + static_cast<std::size_t>(t)];
      if (segment == 0) {
        ++t;
        continue;
      }
      if (segment != document) document = segment, next = 0;
      const auto place = row * length + t;
      if (rows.batch.input_ids[at + static_cast<std::size_t>(t)] != tokens.placeholder || grid == grids.end()) {
        for (int axis = 0; axis < 3; ++axis) to[axis * plane + place] = next;
        ++next, ++t;
        continue;
      }
      const std::int64_t height = grid->rows / merge, width = grid->columns / merge;
      AUTOMODEL_CHECK(t + height * width <= length, "a picture's placeholders are in one row");
      for (std::int64_t i = 0; i < height * width; ++i) {
        to[place + i] = next;
        to[plane + place + i] = next + i / width;
        to[2 * plane + place + i] = next + i % width;
      }
      next += std::max(height, width);
      t += height * width;
      ++grid;
    }
  }
  return out.to(device);
}

/// Numbers of the pictures in the rows' tokens: each run of placeholders is one (transformers' token types), of which
/// there are `left`.
at::Tensor pictures_at(const Rows& rows, std::int32_t placeholder, std::int64_t left, at::Device device) {
  const auto length = rows.batch.length;
  auto out = at::zeros({rows.count, length}, at::kLong);
  auto* to = out.mutable_data_ptr<std::int64_t>();
  std::int64_t number = 0;
  for (std::int64_t row = 0; row < rows.count; ++row)
    for (std::int64_t t = 0; t < length; ++t) {
      const auto from = static_cast<std::size_t>((rows.first + row) * length + t);
      if (rows.batch.input_ids[from] != placeholder || rows.batch.segments[from] == 0 || left-- <= 0) continue;
      number += t == 0 || to[row * length + t - 1] == 0 ? 1 : 0;
      to[row * length + t] = number;
    }
  return out.to(device);
}

/// Of each token of the rows, the number of placeholders before it [rows, length].
at::Tensor before_each(const Rows& rows, std::int32_t placeholder, at::Device device) {
  const auto length = rows.batch.length;
  auto out = at::zeros({rows.count, length}, at::kLong);
  auto* to = out.mutable_data_ptr<std::int64_t>();
  const auto* ids = rows.batch.input_ids.data() + rows.first * length;
  std::int64_t number = 0;
  for (std::int64_t i = 0; i < rows.count * length; ++i) {
    to[i] = number;
    number += ids[i] == placeholder ? 1 : 0;
  }
  return out.to(device);
}

}  // namespace

model::PictureValues picture_values(const std::vector<pictures::PicturePtr>& pictures,
                                    const pictures::Processor& processor, at::Device device,
                                    const PictureInput& input) {
  const auto& patches = processor.patches;
  model::PictureValues out;
  std::vector<at::Tensor> all;
  for (const auto& picture : pictures) {
    if (input.wanted)
      all.push_back(input.features != nullptr ? stored_rows(*input.features, *picture, input.type)
                                              : pixel_values(*picture, processor));
    if (!patches) continue;
    if (patches->parts) {
      const auto square = [&](int side) { return arch::PatchGrid{side / patches->patch, side / patches->patch}; };
      out.grids.insert(out.grids.end(), static_cast<std::size_t>(patches->cut(picture->size).count()),
                       square(patches->parts->part));
      out.grids.push_back(square(patches->parts->whole));
      continue;
    }
    const auto size = processor.resized(picture->size);
    out.grids.push_back({size.height / patches->patch, size.width / patches->patch});
  }
  if (all.empty()) return out;
  if (input.features != nullptr)
    out.features = at::cat(all).view({-1, input.features->values(c10::elementSize(input.type))}).to(device);
  else
    out.pixels = (patches ? at::cat(all) : at::stack(all)).to(device);
  return out;
}

std::vector<model::Microbatch> make_microbatches(const data::Batch& batch, int rows, at::Device device,
                                                 parallel::ContextPlace place, const pictures::PictureTokens* pictures,
                                                 const PictureInput& input) {
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
         .real = part(real, first)});
  if (batch.pictures.empty()) return out;
  AUTOMODEL_CHECK(pictures != nullptr, "a batch with pictures is for a model that takes them");
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Rows of{batch, static_cast<std::int64_t>(i) * rows, rows};
    auto& microbatch = out[i];
    AUTOMODEL_CHECK(pictures->processor.has_value(), "a batch with pictures needs their processor");
    const auto shown = pictures_of(of);
    microbatch.pictures = picture_values(shown, *pictures->processor, device, input);
    for (const auto& picture : shown) microbatch.pictures.placeholders += pictures->placeholders(picture->size);
    if (microbatch.pictures.any()) {
      const auto before = before_each(of, pictures->placeholder, device);
      microbatch.pictures.before = parallel::own_tokens(before, place);
    }
    const auto first = batch.pictures.begin() + of.first;
    const bool any = std::any_of(first, first + rows, [](const auto& row) { return !row.empty(); });
    if (pictures->both_ways && any)
      microbatch.pictures_at = pictures_at(of, pictures->placeholder, microbatch.pictures.placeholders, device);
    if (pictures->axes && !microbatch.pictures.grids.empty())
      microbatch.axes =
          parallel::own_tokens(axes_of(of, microbatch.pictures.grids, *pictures, device).flatten(0, 1), place)
              .view({3, rows, -1});
  }
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
