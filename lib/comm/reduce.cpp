#include "comm/reduce.h"

#include <algorithm>
#include <array>
#include <concepts>
#include <type_traits>

#include <fmt/format.h>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "base/error.h"

namespace automodel::comm {
namespace {

/// Elements that are accumulated at a time: the accumulators stay in the first-level cache.
constexpr std::int64_t kBlock = 2048;

struct Sum {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::same_as<T, bool>)
      return a || b;
    else
      return static_cast<T>(a + b);
  }
};
// The comparisons are false for a NaN in `a`, which then stays; a NaN in `b` is taken by the first test.
struct Max {
  template <class T>
  static T apply(T a, T b) {
    return b != b || a < b ? b : a;
  }
};
struct Min {
  template <class T>
  static T apply(T a, T b) {
    return b != b || b < a ? b : a;
  }
};

template <class T>
using Accumulator = std::conditional_t<std::same_as<T, c10::BFloat16> || std::same_as<T, c10::Half>, float, T>;

template <class T, class Op>
void reduce_block(T* out, std::span<const std::byte* const> inputs, std::int64_t begin, std::int64_t count) {
  std::array<Accumulator<T>, kBlock> sums;
  const T* first = reinterpret_cast<const T*>(inputs[0]) + begin;
  for (std::int64_t i = 0; i < count; ++i) sums[static_cast<std::size_t>(i)] = static_cast<Accumulator<T>>(first[i]);
  for (const std::byte* input : inputs.subspan(1)) {
    const T* values = reinterpret_cast<const T*>(input) + begin;
    for (std::int64_t i = 0; i < count; ++i) {
      auto& sum = sums[static_cast<std::size_t>(i)];
      sum = Op::template apply<Accumulator<T>>(sum, static_cast<Accumulator<T>>(values[i]));
    }
  }
  for (std::int64_t i = 0; i < count; ++i) out[begin + i] = static_cast<T>(sums[static_cast<std::size_t>(i)]);
}

template <class T, class Op>
void reduce(std::byte* out, std::span<const std::byte* const> inputs, std::int64_t count) {
  for (std::int64_t begin = 0; begin < count; begin += kBlock)
    reduce_block<T, Op>(reinterpret_cast<T*>(out), inputs, begin, std::min(kBlock, count - begin));
}

using Reduce = void (*)(std::byte*, std::span<const std::byte* const>, std::int64_t);
/// One row a dtype; columns in the order of ReduceOp.
struct Row {
  c10::ScalarType dtype;
  std::array<Reduce, 3> reduce;
};
template <class T>
constexpr Row row(c10::ScalarType dtype) {
  return {dtype, {reduce<T, Sum>, reduce<T, Max>, reduce<T, Min>}};
}
constexpr std::array kRows = {
    row<float>(c10::ScalarType::Float),
    row<double>(c10::ScalarType::Double),
    row<c10::BFloat16>(c10::ScalarType::BFloat16),
    row<c10::Half>(c10::ScalarType::Half),
    row<std::int64_t>(c10::ScalarType::Long),
    row<std::int32_t>(c10::ScalarType::Int),
    row<std::uint8_t>(c10::ScalarType::Byte),
    row<bool>(c10::ScalarType::Bool),
};

}  // namespace

bool can_reduce(c10::ScalarType dtype) {
  return std::ranges::find(kRows, dtype, &Row::dtype) != kRows.end();
}

void reduce_in_order(c10::ScalarType dtype, ReduceOp op, std::byte* out, std::span<const std::byte* const> inputs,
                     std::int64_t count) {
  const auto* found = std::ranges::find(kRows, dtype, &Row::dtype);
  AUTOMODEL_CHECK(found != kRows.end(), fmt::format("reduction of dtype {}", c10::toString(dtype)));
  found->reduce.at(static_cast<std::size_t>(op))(out, inputs, count);
}

}  // namespace automodel::comm
