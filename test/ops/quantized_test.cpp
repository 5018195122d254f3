// Weights quantized to 4 or 8 bits, whole and in shards, against bitsandbytes on the CPU.
#include "ops/quantized.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "golden_file.h"
#include "ops/linear.h"
#include "torch_catch.h"

namespace automodel::ops {
namespace {

/// The weights of record.py.
at::Tensor weight(std::int64_t rows, std::int64_t columns, at::ScalarType type) {
  auto out = at::empty({rows * columns}, at::kFloat);
  auto* to = out.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    auto mixed = static_cast<std::uint32_t>(static_cast<std::uint64_t>(i) * 2654435761U + 974711U);
    mixed = (mixed ^ (mixed >> 15U)) * 2246822519U;
    mixed ^= mixed >> 13U;
    const float unit = static_cast<float>(mixed >> 8U) * 0x1p-24F - 0.5F;
    to[i] = i < 64 ? 0.0F : unit * (0.02F * static_cast<float>(1 + i / 64 * 7 % 13));
  }
  return out.view({rows, columns}).to(type);
}

std::string hashed(const at::Tensor& tensor) {
  const auto whole = tensor.contiguous();
  const auto* bytes = static_cast<const unsigned char*>(whole.const_data_ptr());
  std::uint64_t value = 0xCBF29CE484222325;
  for (std::size_t i = 0; i < whole.nbytes(); ++i) value = (value ^ bytes[i]) * 0x100000001B3;
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::string hex(const std::uint8_t* bytes, std::int64_t count) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string out;
  for (std::int64_t i = 0; i < count; ++i) out += {kDigits[bytes[i] >> 4U], kDigits[bytes[i] & 15U]};
  return out;
}

at::ScalarType type_named(const std::string& name) {
  return name == "bfloat16" ? at::kBFloat16 : at::kFloat;
}

QuantizedLayout layout_of(QuantizedFormat format, const at::Tensor& whole, at::ScalarType type,
                          QuantizedPart part = {}) {
  return {format, whole.size(0), whole.size(1), std::move(part), type};
}

/// The elements of a part of a matrix, in order.
at::Tensor cut(const at::Tensor& whole, const QuantizedPart& part) {
  if (part.ranges.empty()) return whole.flatten();
  std::vector<at::Tensor> pieces;
  for (std::int64_t repeat = 0; repeat < part.repeats; ++repeat)
    for (const auto& [first, last] : part.ranges)
      pieces.push_back(whole.flatten().narrow(0, repeat * part.period + first, last - first));
  return at::cat(pieces);
}

at::Tensor packed(const QuantizedLayout& layout, const at::Tensor& whole, const QuantizedPart& part = {}) {
  Quantizer quantizer(layout);
  constexpr std::int64_t kMeasured = 1000, kCoded = 98;  // pieces that end inside blocks
  for (std::int64_t first = 0; first < whole.numel(); first += kMeasured)
    quantizer.measure(first, whole.flatten().narrow(0, first, std::min(kMeasured, whole.numel() - first)));
  auto out = at::zeros({layout.bytes()}, at::kByte);
  auto* bytes = out.mutable_data_ptr<std::uint8_t>();
  quantizer.write_scales(bytes);
  const auto here = cut(whole, part);
  for (std::int64_t first = 0; first < here.numel(); first += kCoded)
    quantizer.write_codes(bytes, first, here.narrow(0, first, std::min(kCoded, here.numel() - first)));
  return out;
}

}  // namespace

TEST_CASE("the 8-bit code table for nested scales equals that of bitsandbytes", "[ops]") {
  const auto& numbers = dynamic_numbers();
  CHECK(hex(reinterpret_cast<const std::uint8_t*>(numbers.data()), 1024) ==
        golden::load("quantization/values.json")["dynamic"]);
}

TEST_CASE("quantized codes, scales and dequantized values equal those of bitsandbytes", "[ops]") {
  const auto values = golden::load("quantization/values.json");
  for (const int bits : {4, 8})
    for (const auto& recorded : values[bits == 4 ? "four_bits" : "eight_bits"]) {
      const auto whole = weight(recorded["rows"], recorded["columns"], type_named(recorded["dtype"]));
      const QuantizedFormat format{.bits = bits, .small_scales = recorded.value("nested", false)};
      CAPTURE(bits, recorded["dtype"], format.small_scales);
      for (const auto type : {at::kBFloat16, at::kFloat}) {
        const auto layout = layout_of(format, whole, type);
        const auto bytes = packed(layout, whole);
        const auto* data = bytes.const_data_ptr<std::uint8_t>();
        CHECK(hex(data, bits == 4 ? whole.numel() / 2 : whole.numel()) == recorded["codes"]);
        CHECK(hex(data + layout.scales_at(), format.small_scales ? layout.scales() : 4 * layout.scales()) ==
              recorded["scales"]);
        if (format.small_scales) {
          CHECK(hex(data + layout.outer_at(), 4) == recorded["offset"]);
          CHECK(hex(data + layout.outer_at() + 4,
                    static_cast<std::int64_t>(recorded["scales_of_scales"].get<std::string>().size()) / 2) ==
                recorded["scales_of_scales"]);
        }
        const auto made = dense(layout, bytes);
        const std::string name = type == at::kFloat ? "float32" : "bfloat16";
        CHECK(hashed(made) == recorded["as_" + name]);
        CHECK(at::equal(dense_by_tensors(layout, bytes), made));
        if (recorded.contains("gradient_" + name)) CHECK(hashed(made) == recorded["gradient_" + name]);
      }
    }
}

TEST_CASE("a shard of a quantized weight has the values of the whole weight, wherever it is cut", "[ops]") {
  const auto whole = weight(22, 150, at::kFloat);  // rows begin inside blocks, and the last block is incomplete
  const auto elements = whole.numel();
  const std::vector<QuantizedPart> parts = {
      {.repeats = 1, .period = elements, .ranges = {{0, 11 * 150}}},
      {.repeats = 1, .period = elements, .ranges = {{11 * 150, elements}}},
      {.repeats = 1, .period = elements, .ranges = {{3 * 150, 5 * 150}, {9 * 150, 10 * 150}}},
      {.repeats = 22, .period = 150, .ranges = {{0, 75}}},
      {.repeats = 22, .period = 150, .ranges = {{75, 150}}},
      {.repeats = 22, .period = 150, .ranges = {{10, 23}, {70, 140}}},
  };
  const auto regular = weight(300, 256, at::kFloat);  // blocks begin with rows and columns of parts, as in real models
  const std::vector<QuantizedPart> of_regular = {
      {.repeats = 1, .period = 300 * 256, .ranges = {{64 * 256, 192 * 256}}},
      {.repeats = 1, .period = 300 * 256, .ranges = {{0, 64 * 256}, {100 * 256, 132 * 256}}},
      {.repeats = 300, .period = 256, .ranges = {{128, 256}}},
      {.repeats = 300, .period = 256, .ranges = {{0, 64}, {192, 256}}},
  };
  const auto check = [](const QuantizedFormat& format, const at::Tensor& matrix,
                        const std::vector<QuantizedPart>& pieces) {
    CAPTURE(format.bits, format.small_scales);
    const auto all = layout_of(format, matrix, at::kFloat);
    const auto expected = dense(all, packed(all, matrix)).view(matrix.sizes());
    CHECK((expected - matrix).abs().max().item<float>() < (format.bits == 4 ? 0.03F : 0.002F));
    for (const auto& part : pieces) {
      const auto layout = layout_of(format, matrix, at::kFloat, part);
      const auto bytes = packed(layout, matrix, part);
      CHECK(at::equal(dense(layout, bytes), cut(expected, part)));
      CHECK(at::equal(dense_by_tensors(layout, bytes), cut(expected, part)));
    }
  };
  for (const auto& format : {QuantizedFormat{4, false}, QuantizedFormat{4, true}, QuantizedFormat{8, false}}) {
    check(format, whole, parts);
    check(format, regular, of_regular);
  }
}

TEST_CASE("matmuls with a quantized weight equal matmuls with its dequantized values", "[ops]") {
  const auto whole = weight(24, 96, at::kBFloat16);
  for (const auto& format : {QuantizedFormat{4, true}, QuantizedFormat{8, false}})
    for (const auto matmul_type : {at::kBFloat16, at::kFloat}) {
      const auto layout = std::make_shared<const QuantizedLayout>(layout_of(format, whole, at::kBFloat16));
      Parameter parameter{.name = "w", .shape = {24, 96}, .matmul_type = matmul_type, .quantized = layout};
      parameter.packed = packed(*layout, whole);
      Parameter plain{.name = "w", .shape = {24, 96}, .matmul_type = matmul_type};
      plain.value = dense(*layout, parameter.packed).view({24, 96});
      const auto x = at::randn({7, 96}).to(at::kBFloat16), g = at::randn({7, 24}).to(at::kBFloat16);
      CHECK(at::equal(linear(x, {&parameter}), linear(x, {&plain})));
      CHECK(at::equal(input_gradient(g, {.weights = {&parameter}}), input_gradient(g, {.weights = {&plain}})));
    }
}

TEST_CASE("a quantized weight takes the bits per element that its format specifies", "[ops]") {
  const auto whole = at::zeros({512, 4096}, at::kBFloat16);
  const auto bits = [&](QuantizedFormat format) {
    return 8.0 * static_cast<double>(layout_of(format, whole, at::kBFloat16).bytes()) /
           static_cast<double>(whole.numel());
  };
  CHECK(bits({4, false}) == Approx(4.5));
  CHECK(bits({4, true}) == Approx(4.127).margin(0.001));
  CHECK(bits({8, false}) == Approx(8 + 32.0 / 4096));
}

}  // namespace automodel::ops
