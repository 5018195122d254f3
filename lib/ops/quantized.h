// Weights in 4 or 8 bits, in bitsandbytes' formats: nf4 in blocks of 64 elements with a scale each, which may itself be
// kept in 8 bits, and int8 with a scale a row. Blocks are those of the whole tensor, whatever part of it is here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace automodel::ops {

struct QuantizedFormat {
  int bits = 4;               ///< 4: nf4; 8: int8
  bool small_scales = false;  ///< of nf4: scales in 8 bits, 256 of them with a scale of their own
  bool operator==(const QuantizedFormat&) const = default;
};

/// Which elements of a whole matrix are here, row-major: `ranges` of each of `repeats` stretches of `period` elements.
struct QuantizedPart {
  std::int64_t repeats = 1;
  std::int64_t period = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges = {};  ///< [begin, end), ascending
};

/// How the bytes of a part are laid out: codes (of nf4 two in a byte, the first in its upper half), the scales of the
/// blocks that the part touches, in the order of its elements, and the scales of the whole tensor's scales.
class QuantizedLayout {
 public:
  /// Of a matrix [rows, columns] that is computed with in `type`.
  QuantizedLayout(QuantizedFormat format, std::int64_t rows, std::int64_t columns, QuantizedPart part,
                  at::ScalarType type);

  const QuantizedFormat& format() const { return format_; }
  at::ScalarType type() const { return type_; }
  std::int64_t whole() const { return whole_; }  ///< elements of the whole tensor
  std::int64_t block() const { return block_; }  ///< elements that share a scale
  std::int64_t blocks() const { return (whole_ + block_ - 1) / block_; }
  std::int64_t elements() const { return elements_; }  ///< of the part
  std::int64_t scales() const { return scales_; }      ///< of the part; a block that is cut has one in every piece
  /// Where scales begin, and those of scales: one float for 256 blocks of the whole tensor and their common offset.
  std::int64_t scales_at() const { return scales_at_; }
  std::int64_t outer_at() const { return outer_at_; }
  std::int64_t bytes() const { return bytes_; }

  /// Elements of one block that follow each other in the part.
  struct Piece {
    std::int64_t local;  ///< the first, in the part
    std::int64_t count;
    std::int64_t block;  ///< in the whole tensor
    std::int64_t slot;   ///< place of its scale among those of the part
  };
  /// Calls visit(Piece) for all of elements [first, first + count) of the part, ascending.
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

/// Makes the bytes of a part. The scales of a whole tensor decide about each other, so that every rank measures all of
/// it and every mesh has the same numbers.
class Quantizer {
 public:
  explicit Quantizer(const QuantizedLayout& layout);
  /// Elements [first, first + values.numel()) of the whole tensor, on the CPU; in any order.
  void measure(std::int64_t first, const at::Tensor& values);
  /// After the whole tensor was measured. `bytes` is that of the layout's; codes are left alone.
  void write_scales(std::uint8_t* bytes);
  /// Codes of elements [first, first + values.numel()) of the part, on the CPU; `first` is even.
  void write_codes(std::uint8_t* bytes, std::int64_t first, const at::Tensor& values) const;

 private:
  const QuantizedLayout& layout_;
  std::vector<float> largest_;  ///< magnitude in each block
};

/// The numbers that the bytes stand for, in the layout's type. On the CPU by loops, elsewhere by dense_by_tensors.
at::Tensor dense(const QuantizedLayout& layout, const at::Tensor& bytes);
/// The same by operations of tensors.
at::Tensor dense_by_tensors(const QuantizedLayout& layout, const at::Tensor& bytes);

/// The 256 numbers that small scales stand for: bitsandbytes' dynamic map.
const std::vector<float>& dynamic_numbers();

}  // namespace automodel::ops
