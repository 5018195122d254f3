#include "ops/quantized.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>

#include "base/error.h"
#include "ops/kernels/device.h"
#include "ops/upload.h"

namespace automodel::ops {
namespace {

using cuda::kBlock, cuda::kScaleBlock;
constexpr std::int64_t kPartAlignment = 16;             // bytes
constexpr std::int64_t kGrain = std::int64_t{1} << 15;  // elements per thread
constexpr float kLeast = 1e-38F;                        // lower bound of a divisor, for blocks of zeros
constexpr float kLargestCode = 127;                     // of int8
constexpr float kCodeUnit = 1.0F / kLargestCode;

/// NormalFloat: quantiles of a normal distribution, with zero and both ends (Dettmers et al. 2023, appendix E).
constexpr std::array<float, 16> kNormalFloat = {-1.0F,
                                                -0.6961928009986877F,
                                                -0.5250730514526367F,
                                                -0.39491748809814453F,
                                                -0.28444138169288635F,
                                                -0.18477343022823334F,
                                                -0.09105003625154495F,
                                                0.0F,
                                                0.07958029955625534F,
                                                0.16093020141124725F,
                                                0.24611230194568634F,
                                                0.33791524171829224F,
                                                0.44070982933044434F,
                                                0.5626170039176941F,
                                                0.7229568362236023F,
                                                1.0F};

std::int64_t aligned_part(std::int64_t bytes) {
  return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

/// Code of the nearest of the 16 values to x in [-1, 1]; ties go to the lower one.
std::uint8_t normal_float_code(float x) {
  std::uint8_t code = 0;
  for (std::size_t i = 0; i + 1 < kNormalFloat.size(); ++i) code += x > (kNormalFloat[i] + kNormalFloat[i + 1]) / 2;
  return code;
}

/// Code of the nearest dynamic value to x in [-1, 1]; ties go to the lower one.
std::uint8_t dynamic_code(float x) {
  const auto& numbers = dynamic_numbers();
  // Code 0 counts as -1 here, although its value is slightly above.
  const auto after = std::upper_bound(numbers.begin() + 1, numbers.end(), x);
  const auto below = static_cast<std::size_t>(after - numbers.begin()) - 1;
  const float here = below == 0 ? -1.0F : numbers[below];
  if (after == numbers.end()) return static_cast<std::uint8_t>(below);
  return static_cast<std::uint8_t>(std::abs(x - *after) < std::abs(x - here) ? below + 1 : below);
}

void store(std::uint8_t* to, float value) {
  std::memcpy(to, &value, sizeof value);
}
float load(const std::uint8_t* from) {
  float value = 0;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// The scale of a block's codes.
float scale_of(const QuantizedLayout& layout, const std::uint8_t* bytes, const QuantizedLayout::Piece& piece) {
  if (!layout.format().small_scales) return load(bytes + layout.scales_at() + 4 * piece.slot);
  const auto* outer = bytes + layout.outer_at();
  const float number = dynamic_numbers()[bytes[layout.scales_at() + piece.slot]];
  // Rounded twice: volatile keeps the compiler from contracting this to a fused multiply-add.
  const volatile float product = number * load(outer + 4 + 4 * (piece.block / kScaleBlock));
  return product + load(outer);
}

template <class T>
void unpack(const QuantizedLayout& layout, const std::uint8_t* codes, float scale, const QuantizedLayout::Piece& piece,
            T* out) {
  if (layout.format().bits == 8) {
    const float unit = scale * kCodeUnit;
    const auto* from = reinterpret_cast<const std::int8_t*>(codes);
    for (auto i = piece.local; i < piece.local + piece.count; ++i)
      out[i] = static_cast<T>(static_cast<float>(from[i]) * unit);
    return;
  }
  std::array<T, 16> numbers;
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<T>(kNormalFloat[i] * scale);
  auto i = piece.local;
  const auto end = piece.local + piece.count;
  if (i % 2 == 1 && i < end) {
    out[i] = numbers[codes[i / 2] & 15U];
    ++i;
  }
  for (; i + 1 < end; i += 2) {
    const auto both = codes[i / 2];
    out[i] = numbers[both >> 4U];
    out[i + 1] = numbers[both & 15U];
  }
  if (i < end) out[i] = numbers[codes[i / 2] >> 4U];
}

template <class T>
void unpack_all(const QuantizedLayout& layout, const std::uint8_t* bytes, T* out) {
  at::parallel_for(0, layout.elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    layout.each_piece(begin, end - begin, [&](const QuantizedLayout::Piece& piece) {
      unpack(layout, bytes, scale_of(layout, bytes, piece), piece, out);
    });
  });
}

at::Tensor floats(const float* data, std::size_t count) {
  return at::from_blob(const_cast<float*>(data), {static_cast<std::int64_t>(count)}, at::kFloat).clone();
}

}  // namespace

const std::vector<float>& dynamic_numbers() {
  static const std::vector<float> known = [] {
    constexpr int kExponents = 7;
    std::vector<float> out = {0, 1};
    for (int i = 0; i < kExponents; ++i) {
      const auto ends = at::linspace(0.1, 1, (1 << i) + 1, at::kFloat);
      const auto count = ends.numel() - 1;
      const auto middles =
          ((ends.narrow(0, 0, count) + ends.narrow(0, 1, count)) / 2.0) * std::pow(10.0, i + 1 - kExponents);
      for (std::int64_t at = 0; at < count; ++at) {
        const float value = middles.const_data_ptr<float>()[at];
        out.insert(out.end(), {value, -value});
      }
    }
    std::sort(out.begin(), out.end());
    return out;
  }();
  return known;
}

QuantizedLayout::QuantizedLayout(QuantizedFormat format, std::int64_t rows, std::int64_t columns, QuantizedPart part,
                                 at::ScalarType type)
    : format_(format),
      part_(std::move(part)),
      type_(type),
      whole_(rows * columns),
      block_(format.bits == 8 ? columns : kBlock) {
  AUTOMODEL_CHECK(format.bits == 4 || format.bits == 8, "weights are kept in 4 or 8 bits");
  if (part_.ranges.empty()) part_ = {.repeats = 1, .period = whole_, .ranges = {{0, whole_}}};
  for (std::int64_t repeat = 0; repeat < part_.repeats; ++repeat)
    for (const auto& [first, last] : part_.ranges) {
      elements_ += last - first;
      if (last > first)
        scales_ += (repeat * part_.period + last - 1) / block_ - (repeat * part_.period + first) / block_ + 1;
    }
  scales_at_ = aligned_part(format_.bits == 8 ? elements_ : (elements_ + 1) / 2);
  outer_at_ = scales_at_ + aligned_part(format_.small_scales ? scales_ : 4 * scales_);
  bytes_ = outer_at_ + (format_.small_scales ? aligned_part(4 + 4 * ((blocks() + kScaleBlock - 1) / kScaleBlock)) : 0);
}

Quantizer::Quantizer(const QuantizedLayout& layout)
    : layout_(layout), largest_(static_cast<std::size_t>(layout.blocks()), 0) {}

void Quantizer::measure(std::int64_t first, const at::Tensor& values) {
  // bitsandbytes converts weights to float16 before it quantizes to int8.
  const auto wide = (layout_.format().bits == 8 ? values.to(at::kHalf) : values).to(at::kFloat).contiguous();
  const auto* from = wide.const_data_ptr<float>();
  const auto last = first + wide.numel(), block = layout_.block();
  const auto touched = wide.numel() == 0 ? first / block : (last - 1) / block + 1;
  at::parallel_for(first / block, touched, std::max<std::int64_t>(1, kGrain / block), [&](auto begin, auto end) {
    for (auto at = begin; at < end; ++at) {
      auto& largest = largest_[static_cast<std::size_t>(at)];
      const auto stop = std::min(last, (at + 1) * block);
      for (auto i = std::max(first, at * block); i < stop; ++i) largest = std::max(largest, std::abs(from[i - first]));
    }
  });
}

void Quantizer::write_scales(std::uint8_t* bytes) {
  auto* scales = bytes + layout_.scales_at();
  if (!layout_.format().small_scales) {
    layout_.each_piece(0, layout_.elements(), [&](const QuantizedLayout::Piece& piece) {
      store(scales + 4 * piece.slot, largest_[static_cast<std::size_t>(piece.block)]);
    });
    return;
  }
  double sum = 0;
  for (const float each : largest_) sum += each;
  const auto offset = static_cast<float>(sum / static_cast<double>(largest_.size()));
  auto* outer = bytes + layout_.outer_at();
  store(outer, offset);
  std::vector<float> of_scales;
  for (std::size_t i = 0; i < largest_.size(); i += kScaleBlock) {
    float most = 0;
    for (auto j = i; j < std::min(largest_.size(), i + kScaleBlock); ++j)
      most = std::max(most, std::abs(largest_[j] - offset));
    of_scales.push_back(most);
    store(outer + 4 * of_scales.size(), most);
  }
  layout_.each_piece(0, layout_.elements(), [&](const QuantizedLayout::Piece& piece) {
    const float from_offset = largest_[static_cast<std::size_t>(piece.block)] - offset;
    const float most = of_scales[static_cast<std::size_t>(piece.block / kScaleBlock)];
    scales[piece.slot] = dynamic_code(most > 0 ? from_offset / most : 0);
  });
}

void Quantizer::write_codes(std::uint8_t* bytes, std::int64_t first, const at::Tensor& values) const {
  const bool wide_codes = layout_.format().bits == 8;
  AUTOMODEL_CHECK(wide_codes || first % 2 == 0, "codes of 4 bits are written in whole bytes");
  const auto wide = (wide_codes ? values.to(at::kHalf) : values).to(at::kFloat).contiguous();
  const auto* from = wide.const_data_ptr<float>();
  const auto write = [&](const QuantizedLayout::Piece& piece) {
    const float largest = largest_[static_cast<std::size_t>(piece.block)];
    if (wide_codes) {
      const float factor = largest > 0 ? 1 / largest * kLargestCode : 0;  // in this order, as bitsandbytes rounds
      for (auto i = piece.local; i < piece.local + piece.count; ++i)
        bytes[i] = static_cast<std::uint8_t>(static_cast<std::int8_t>(std::nearbyint(from[i - first] * factor)));
      return;
    }
    // bitsandbytes divides in a block that the end of the tensor cuts off, and multiplies in others; that rounds
    // differently.
    const bool cut = (piece.block + 1) * kBlock > layout_.whole();
    const float least = std::max(largest, kLeast), factor = 1.0F / least;
    std::array<std::uint8_t, kBlock> codes;  // apart from the bytes, so that the compiler vectorizes 15 comparisons
    for (std::int64_t i = 0; i < piece.count; ++i) {
      const float x = from[piece.local + i - first];
      codes[static_cast<std::size_t>(i)] = normal_float_code(std::clamp(cut ? x / least : x * factor, -1.0F, 1.0F));
    }
    for (std::int64_t i = 0; i < piece.count; ++i) {
      const auto at = piece.local + i;
      const unsigned code = codes[static_cast<std::size_t>(i)];
      auto& byte = bytes[at / 2];
      byte = static_cast<std::uint8_t>(at % 2 == 0 ? code << 4U : (byte & 0xF0U) | code);
    }
  };
  // By pairs, because two codes of 4 bits share a byte.
  at::parallel_for(0, (wide.numel() + 1) / 2, kGrain / 2, [&](auto begin, auto end) {
    const auto last = std::min(2 * end, wide.numel());
    layout_.each_piece(first + 2 * begin, last - 2 * begin, write);
  });
}

namespace {

/// What the device's kernel needs; nothing if it cannot take the part: more ranges than it has room for, or several
/// that split blocks.
std::optional<cuda::Quantized> for_device(const QuantizedLayout& layout, const at::Tensor& bytes) {
  const auto& part = layout.part();
  const bool readable = reinterpret_cast<std::uintptr_t>(bytes.const_data_ptr()) % sizeof(float) == 0;
  if (!readable || part.ranges.size() > cuda::FeatureRuns::kMost || layout.elements() == 0) return {};
  const auto whole = [&](std::int64_t at) { return at % layout.block() == 0; };
  cuda::Quantized out{.bytes = bytes.const_data_ptr<std::uint8_t>(),
                      .elements = layout.elements(),
                      .block = layout.block(),
                      .scales_at = layout.scales_at(),
                      .outer_at = layout.outer_at(),
                      .bits = layout.format().bits,
                      .small_scales = layout.format().small_scales,
                      .period = part.period,
                      .ranges = {},
                      .aligned = part.repeats == 1 || whole(part.period),
                      .unit = kCodeUnit,
                      .normal = kNormalFloat,
                      .dynamic = {}};
  for (const auto& [first, last] : part.ranges) {
    out.ranges.first[static_cast<std::size_t>(out.ranges.count)] = first;
    ++out.ranges.count;
    out.ranges.begin[static_cast<std::size_t>(out.ranges.count)] =
        out.ranges.begin[static_cast<std::size_t>(out.ranges.count - 1)] + last - first;
    // The tensor's last block may be shorter than the others.
    out.aligned = out.aligned && whole(first) && (whole(last) || (part.repeats == 1 && last == layout.whole()));
  }
  if (!out.aligned && (part.repeats > 1 || part.ranges.size() > 1)) return {};
  if (out.small_scales) std::copy(dynamic_numbers().begin(), dynamic_numbers().end(), out.dynamic.begin());
  return out;
}

}  // namespace

at::Tensor dense(const QuantizedLayout& layout, const at::Tensor& bytes) {
  auto out = at::empty({layout.elements()}, bytes.options().dtype(layout.type()));
  if (const auto* device = device_kernels(out))
    if (const auto in = for_device(layout, bytes)) {
      device->dequantize(element_of(out), *in, out.mutable_data_ptr(), device->stream());
      return out;
    }
  if (!bytes.is_cpu()) return dense_by_tensors(layout, bytes);
  const auto* from = bytes.const_data_ptr<std::uint8_t>();
  if (layout.type() == at::kFloat)
    unpack_all(layout, from, out.mutable_data_ptr<float>());
  else if (layout.type() == at::kBFloat16)
    unpack_all(layout, from, out.mutable_data_ptr<at::BFloat16>());
  else if (layout.type() == at::kHalf)
    unpack_all(layout, from, out.mutable_data_ptr<at::Half>());
  else
    return dense_by_tensors(layout, bytes);
  return out;
}

at::Tensor dense_by_tensors(const QuantizedLayout& layout, const at::Tensor& bytes) {
  const auto device = bytes.device();
  // The block of each scale, and the number of its elements here, follow from the layout alone.
  auto lengths = at::empty({layout.scales()}, at::kLong), outer_of = at::empty({layout.scales()}, at::kLong);
  auto* length = lengths.mutable_data_ptr<std::int64_t>();
  auto* outer = outer_of.mutable_data_ptr<std::int64_t>();
  layout.each_piece(0, layout.elements(), [&](const QuantizedLayout::Piece& piece) {
    length[piece.slot] = piece.count;
    outer[piece.slot] = piece.block / kScaleBlock;
  });
  const auto floats_at = [&](std::int64_t at, std::int64_t count) {
    return bytes.narrow(0, at, 4 * count).contiguous().view(at::kFloat);
  };
  at::Tensor scales;
  if (layout.format().small_scales) {
    const auto& numbers = dynamic_numbers();
    const auto codes = bytes.narrow(0, layout.scales_at(), layout.scales()).to(at::kLong);
    const auto of_scales = floats_at(layout.outer_at(), 1 + (layout.blocks() + kScaleBlock - 1) / kScaleBlock);
    scales = at::index_select(uploaded(floats(numbers.data(), numbers.size()), at::kFloat, device), 0, codes) *
             at::index_select(of_scales, 0, uploaded(outer_of, at::kLong, device) + 1);
    scales = scales + of_scales.narrow(0, 0, 1);
  } else {
    scales = floats_at(layout.scales_at(), layout.scales());
  }
  if (layout.format().bits == 8) scales = scales * kCodeUnit;
  // Not at::repeat_interleave, for which the host waits on a GPU.
  const auto ends = uploaded(lengths.cumsum(0), at::kLong, device);
  const auto slots = at::searchsorted(ends, at::arange(layout.elements(), ends.options()), /*out_int32=*/true,
                                      /*right=*/true);
  const auto each = at::index_select(scales, 0, slots);
  at::Tensor numbers;
  if (layout.format().bits == 8) {
    numbers = bytes.narrow(0, 0, layout.elements()).view(at::kChar).to(at::kFloat);
  } else {
    const auto packed = bytes.narrow(0, 0, (layout.elements() + 1) / 2);
    const auto codes = at::stack({packed.div(16, "floor"), packed.remainder(16)}, 1).flatten();
    numbers = at::index_select(uploaded(floats(kNormalFloat.data(), kNormalFloat.size()), at::kFloat, device), 0,
                               codes.narrow(0, 0, layout.elements()).to(at::kLong));
  }
  return (numbers * each).to(layout.type());
}

}  // namespace automodel::ops
