#include "train/pixel_values.h"

#include <algorithm>
#include <array>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "ops/graph.h"
#include "pictures/lanczos.h"

namespace automodel::train {
namespace {

using pictures::Size;

/// [1, 3, height, width], a copy.
at::Tensor channels_first(const pictures::Picture& picture) {
  const auto [width, height] = picture.size;
  return at::from_blob(const_cast<std::uint8_t*>(picture.rgb.data()), {1, height, width, 3}, at::kByte)
      .permute({0, 3, 1, 2})
      .contiguous();
}

/// bytes [1, 3, height, width].
at::Tensor resized(const at::Tensor& bytes, Size to, pictures::Resampling resampling) {
  if (bytes.size(2) == to.height && bytes.size(3) == to.width) return bytes;
  if (resampling == pictures::Resampling::kLanczos) {
    const auto rows = bytes.permute({0, 2, 3, 1}).contiguous();
    const auto* data = rows.const_data_ptr<std::uint8_t>();
    pictures::Picture picture;
    picture.size = {static_cast<int>(bytes.size(3)), static_cast<int>(bytes.size(2))};
    picture.rgb.assign(data, data + rows.numel());
    return channels_first(pictures::lanczos(picture, to));
  }
  const std::array<std::int64_t, 2> size = {to.height, to.width};
  return resampling == pictures::Resampling::kBicubic ? at::_upsample_bicubic2d_aa(bytes, size, false)
                                                      : at::_upsample_bilinear2d_aa(bytes, size, false);
}

/// The part around the middle; what is beyond the picture is 0. Source: center_crop in transformers 5.23, which pads
/// first, with the odd pixel at the right and the bottom, and rounds the corner of the part down.
at::Tensor cropped(at::Tensor bytes, Size to) {
  const std::int64_t height = bytes.size(2), width = bytes.size(3);
  if (width < to.width || height < to.height) {
    const auto left = std::max<std::int64_t>(to.width - width, 0) / 2,
               top = std::max<std::int64_t>(to.height - height, 0) / 2;
    auto wide = at::zeros({1, 3, std::max<std::int64_t>(height, to.height), std::max<std::int64_t>(width, to.width)},
                          bytes.options());
    wide.narrow(2, top, height).narrow(3, left, width).copy_(bytes);
    bytes = wide;
  }
  return bytes.narrow(2, (bytes.size(2) - to.height) / 2, to.height)
      .narrow(3, (bytes.size(3) - to.width) / 2, to.width);
}

/// By channel, as float32 rounded from the double, for [1, 3, height, width].
at::Tensor channels(const std::array<double, 3>& values) {
  return at::tensor(values, at::kFloat).view({1, 3, 1, 1});
}

/// [patches, 3 * patch * patch] of values [1, 3, height, width], in blocks of merge x merge patches. Source:
/// Qwen2VLImageProcessor, which repeats each row for the frames of a still picture; its towers add up the frames'
/// weights instead, as Muse-Glimmer's does, whose processor has patches in raster order. PixtralImageProcessor leaves
/// pictures whole, and its tower cuts them. Gemma4ImageProcessor has patches in raster order, and a pixel's channels
/// side by side. Step's squares stay in raster order.
at::Tensor in_patches(const at::Tensor& values, const pictures::PatchSettings& settings) {
  const std::int64_t patch = settings.patch, merge = settings.parts ? 1 : settings.merge, side = patch * merge;
  const auto rows = values.size(2) / side, columns = values.size(3) / side;
  const auto apart = values.reshape({3, rows, merge, patch, columns, merge, patch});
  return (settings.soft_tokens ? apart.permute({1, 4, 2, 5, 3, 6, 0}) : apart.permute({1, 4, 2, 5, 0, 3, 6}))
      .reshape({rows * columns * merge * merge, 3 * patch * patch});
}

at::Tensor normalized(const at::Tensor& bytes, const pictures::Processor& processor) {
  const auto values = bytes.to(at::kFloat);
  const double factor = 1 / processor.rescale;
  return processor.normalize ? (values - channels(processor.mean) * factor) / (channels(processor.deviation) * factor)
                             : values * processor.rescale;
}

/// The patches of all parts, row by row, then those of the whole picture. Source: Step3p7ImageProcessor.
at::Tensor in_parts(at::Tensor bytes, const pictures::Processor& processor) {
  const auto& patches = *processor.patches;
  const auto parts = patches.cut({static_cast<int>(bytes.size(3)), static_cast<int>(bytes.size(2))});
  if (bytes.size(3) != parts.padded.width || bytes.size(2) != parts.padded.height) {
    auto square = at::zeros({1, 3, parts.padded.height, parts.padded.width}, bytes.options());
    square.narrow(2, 0, bytes.size(2)).narrow(3, 0, bytes.size(3)).copy_(bytes);
    bytes = square;
  }
  std::vector<at::Tensor> out;
  const auto add = [&](const at::Tensor& picture, int side) {
    out.push_back(in_patches(normalized(resized(picture, {side, side}, processor.resampling), processor), patches));
  };
  if (parts.side > 0) {
    const auto cut = resized(bytes, parts.cut, processor.resampling);
    for (std::int64_t y = 0; y < cut.size(2); y += parts.side)
      for (std::int64_t x = 0; x < cut.size(3); x += parts.side)
        add(cut.narrow(2, y, std::min<std::int64_t>(parts.side, cut.size(2) - y))
                .narrow(3, x, std::min<std::int64_t>(parts.side, cut.size(3) - x))
                .contiguous(),
            patches.parts->part);
  }
  add(resized(bytes, parts.reduced, processor.resampling), patches.parts->whole);
  return at::cat(out);
}

}  // namespace

at::Tensor pixel_values(const pictures::Picture& picture, const pictures::Processor& processor) {
  const ops::NoGraph guard;
  auto bytes = channels_first(picture);
  if (processor.patches && processor.patches->parts) return in_parts(bytes, processor);
  if (processor.resize) bytes = resized(bytes, processor.resized(picture.size), processor.resampling);
  if (processor.crop) bytes = cropped(bytes, *processor.crop);
  const auto out = normalized(bytes, processor);
  return processor.patches ? in_patches(out, *processor.patches) : out.squeeze(0);
}

}  // namespace automodel::train
