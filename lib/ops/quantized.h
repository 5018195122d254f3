// Weights in 4 or 8 bits, in bitsandbytes' formats: nf4 in blocks of 64 elements with one scale each, which may itself
// be stored in 8 bits (double quantization), and int8 with one scale per row. Blocks are counted in the whole tensor,
// whatever part of it is on this rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace automodel::ops {

struct QuantizedFormat {
  int bits = 4;               ///< 4: nf4; 8: int8
  bool small_scales = false;  ///< nf4 only: scales in 8 bits, in blocks of 256 with a scale of their own (double
                              ///< quantization)
  bool operator==(const QuantizedFormat&) const = default;
};

/// Which elements of a matrix (row-major) are on this rank: `ranges` within each of `repeats` stretches of `period`
/// elements.
struct QuantizedPart {
  std::int64_t repeats = 1;
  std::int64_t period = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges = {};  ///< [begin, end), ascending
};

/// Byte layout of a part: codes (nf4: two per byte, the first in the upper half), then the scales of the blocks that
/// the part touches, in element order, then the scales of the whole tensor's scales.
class QuantizedLayout {
 public:
  /// For a matrix [rows, columns] that is dequantized to `type`.
  QuantizedLayout(QuantizedFormat format, std::int64_t rows, std::int64_t columns, QuantizedPart part,
                  at::ScalarType type);

  const QuantizedFormat& format() const { return format_; }
  const QuantizedPart& part() const { return part_; }
  at::ScalarType type() const { return type_; }
  std::int64_t whole() const { return whole_; }  ///< elements in the whole tensor
  std::int64_t block() const { return block_; }  ///< elements per scale
  std::int64_t blocks() const { return (whole_ + block_ - 1) / block_; }
  std::int64_t elements() const { return elements_; }  ///< in the part
  std::int64_t scales() const { return scales_; }      ///< in the part; a split block has one in each of its ranges
  /// Byte offsets of the scales, and of the scales of scales: the common offset of all scales, then one float per 256
  /// blocks of the whole tensor.
  std::int64_t scales_at() const { return scales_at_; }
  std::int64_t outer_at() const { return outer_at_; }
  std::int64_t bytes() const { return bytes_; }

  /// Consecutive elements of the part that belong to one block.
  struct Piece {
    std::int64_t local;  ///< index of the first in the part
    std::int64_t count;
    std::int64_t block;  ///< index of the block in the whole tensor
    std::int64_t slot;   ///< index of its scale among those of the part
  };
  /// Calls visit(Piece) for pieces that cover elements [first, first + count) of the part, in ascending order.
  template <class Visit>
  void each_piece(std::int64_t first, std::int64_t count, Visit&& visit) const {
    std::int64_t local = 0, slot = 0;
    const auto end = first + count;
    for (std::int64_t repeat = 0; repeat < part_.repeats && local < end; ++repeat)
      for (const auto& range : part_.ranges) {
        const auto begin = repeat * part_.period + range.first, length = range.second - range.first;
        const auto before = slot - begin / block_;  // a block's slot is its number plus this
        for (auto at = local < first ? std::min(begin + first - local, begin + length) : begin;
             at < begin + length && local + at - begin < end;) {
          const auto stop = std::min({(at / block_ + 1) * block_, begin + length, begin + end - local});
          visit(Piece{local + at - begin, stop - at, at / block_, before + at / block_});
          at = stop;
        }
        if (length > 0) slot += (begin + length - 1) / block_ - begin / block_ + 1;
        local += length;
      }
  }

 private:
  QuantizedFormat format_;
  QuantizedPart part_;
  at::ScalarType type_;
  std::int64_t whole_, block_;
  std::int64_t elements_ = 0, scales_ = 0, scales_at_ = 0, outer_at_ = 0, bytes_ = 0;
};

/// Produces the bytes of a part. With double quantization all scales of a tensor influence each other, so every rank
/// measures the whole tensor and every mesh gets the same numbers.
class Quantizer {
 public:
  explicit Quantizer(const QuantizedLayout& layout);
  /// Takes elements [first, first + values.numel()) of the whole tensor, on the CPU; in any order.
  void measure(std::int64_t first, const at::Tensor& values);
  /// Call after the whole tensor was measured. `bytes` has layout.bytes(); codes are left alone.
  void write_scales(std::uint8_t* bytes);
  /// Codes of elements [first, first + values.numel()) of the part, on the CPU; `first` is even.
  void write_codes(std::uint8_t* bytes, std::int64_t first, const at::Tensor& values) const;

 private:
  const QuantizedLayout& layout_;
  std::vector<float> largest_;  ///< largest magnitude in each block
};

/// Dequantizes `bytes` to the layout's type: on the CPU by loops, on GPUs by a kernel or, for float16 and parts whose
/// ranges split blocks, by dense_by_tensors().
at::Tensor dense(const QuantizedLayout& layout, const at::Tensor& bytes);
/// The same with tensor operations.
at::Tensor dense_by_tensors(const QuantizedLayout& layout, const at::Tensor& bytes);

/// The 256 values that 8-bit scales encode: bitsandbytes' dynamic map.
const std::vector<float>& dynamic_numbers();

}  // namespace automodel::ops
