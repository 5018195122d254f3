#include "ops/tiled_matmul.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

#include <sys/mman.h>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

namespace automodel::ops {
namespace {

using Bits = c10::BFloat16;

/// Limits, in floats, of what threads pack together, and of what each packs for itself: 8 and 4 MiB.
constexpr std::int64_t kShared = 2 << 20, kOwn = 1 << 20;

/// Memory that grows on demand and is kept, in huge pages where the system offers them.
class Workspace {
 public:
  float* of(std::int64_t floats) {
    if (floats <= size_) return memory_.get();
    const auto bytes = (static_cast<std::size_t>(floats) * sizeof(float) + kStep - 1) / kStep * kStep;
    const auto alignment = bytes >= kHugePage ? kHugePage : std::size_t{64};
    memory_.reset();
    size_ = 0;
    void* memory = std::aligned_alloc(alignment, bytes);
    if (memory == nullptr) throw std::bad_alloc();
    if (bytes >= kHugePage) madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
    memory_.reset(static_cast<float*>(memory));
    size_ = static_cast<std::int64_t>(bytes / sizeof(float));
    return memory_.get();
  }

 private:
  static constexpr std::size_t kStep = 256 << 10, kHugePage = 2 << 20;
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  std::unique_ptr<float, Free> memory_;
  std::int64_t size_ = 0;
};

/// What this thread packs for its parallel regions, and for its own part of one.
float* shared_workspace(std::int64_t floats) {
  thread_local Workspace workspace;
  return workspace.of(floats);
}
float* own_workspace(std::int64_t floats) {
  thread_local Workspace workspace;
  return workspace.of(floats);
}

std::int64_t ceil_div(std::int64_t whole, std::int64_t most) {
  return (whole + most - 1) / most;
}

template <class T>
const MatmulKernels<T>& tiles() {
  if constexpr (std::is_same_v<T, float>)
    return kernels().matmul_float;
  else
    return kernels().matmul_bfloat16;
}

template <class T>
MatrixView<T> from(const MatrixView<T>& x, std::int64_t row, std::int64_t column) {
  return {x.data + (x.transposed ? column * x.stride + row : row * x.stride + column), x.stride, x.transposed};
}

/// A GEMM of at most kMatmulDepth lanes.
template <class T, class Out>
struct Slice {
  const TiledMatmul<T, Out>& run;
  OutputMatrix<Out> out;
  bool fresh;
  MatrixView<T> a, b;
  std::int64_t rows, inner, columns, lanes;
  std::int64_t block = tiles<T>().block, panel = tiles<T>().panel;
  std::int64_t block_floats = tiles<T>().room(lanes), panel_floats = panel * lanes;

  /// Divides columns among threads, which share blocks of all rows.
  void by_columns() const {
    const auto most = std::max<std::int64_t>(1, kShared / block_floats) * block;
    for (std::int64_t row = 0; row < rows; row += most) {
      const auto some = std::min(most, rows - row), blocks = ceil_div(some, block);
      float* const packed = shared_workspace(blocks * block_floats);
      at::parallel_for(0, blocks, 1, [&](std::int64_t begin, std::int64_t end) {
        tiles<T>().pack_rows(from(a, row, 0), some, inner, begin, end, packed);
      });
      at::parallel_for(0, ceil_div(columns, panel), 1, [&](std::int64_t begin, std::int64_t end) {
        const auto last = std::min(columns, end * panel), wide = kOwn / panel_floats * panel;
        for (auto column = begin * panel; column < last; column += wide) {
          const auto count = std::min(wide, last - column);
          run.stream_columns({out.data + row * out.stride + column, out.stride}, fresh, packed, from(b, 0, column),
                             some, inner, count, own_workspace(ceil_div(count, panel) * panel_floats));
        }
      });
    }
  }

  /// Divides rows among threads, which share panels of all columns.
  void by_rows() const {
    const auto most = std::max<std::int64_t>(1, kShared / panel_floats) * panel;
    for (std::int64_t column = 0; column < columns; column += most) {
      const auto some = std::min(most, columns - column), panels = ceil_div(some, panel);
      float* const packed = shared_workspace(panels * panel_floats);
      at::parallel_for(0, panels, 1, [&](std::int64_t begin, std::int64_t end) {
        tiles<T>().pack_columns(from(b, 0, column), some, inner, begin, end, packed);
      });
      constexpr std::int64_t kPiece = 32;  // rows
      at::parallel_for(0, ceil_div(rows, kPiece), 1, [&](std::int64_t begin, std::int64_t end) {
        const auto last = std::min(rows, end * kPiece), high = kOwn / block_floats * block;
        for (auto row = begin * kPiece; row < last; row += high) {
          const auto count = std::min(high, last - row);
          run.stream_rows({out.data + row * out.stride + column, out.stride}, fresh, from(a, row, 0), packed, count,
                          inner, some, own_workspace(ceil_div(count, block) * block_floats));
        }
      });
    }
  }
};

template <class T, class Out>
void divided(const TiledMatmul<T, Out>& run, OutputMatrix<Out> out, bool fresh, const MatrixView<T>& a,
             const MatrixView<T>& b, std::int64_t rows, std::int64_t inner, std::int64_t columns) {
  const auto numbers = tiles<T>().numbers, steps = ceil_div(inner, numbers), depths = ceil_div(steps, kMatmulDepth);
  for (std::int64_t d = 0; d < depths; ++d) {
    const auto first = steps * d / depths, lanes = steps * (d + 1) / depths - first, begin = first * numbers;
    const Slice<T, Out> slice{run,
                              out,
                              fresh && d == 0,
                              from(a, 0, begin),
                              from(b, begin, 0),
                              rows,
                              std::min(inner - begin, lanes * numbers),
                              columns,
                              lanes};
    if (a.transposed)  // a weight gradient: `out` is the large operand
      slice.by_rows();
    else
      slice.by_columns();
  }
}

}  // namespace

template <class T>
bool has_tiles() {
  return tiles<T>().pack_rows != nullptr;
}

template <class T>
void tiled_matmul(OutputMatrix<float> out, bool fresh, const MatrixView<T>& a, const MatrixView<T>& b,
                  std::int64_t rows, std::int64_t inner, std::int64_t columns) {
  divided(tiles<T>().sum, out, fresh, a, b, rows, inner, columns);
}

void tiled_matmul(OutputMatrix<Bits> out, const MatrixView<Bits>& a, const MatrixView<Bits>& b, std::int64_t rows,
                  std::int64_t inner, std::int64_t columns) {
  if (inner <= deepest_rounded()) {
    divided(tiles<Bits>().rounded, out, true, a, b, rows, inner, columns);
    return;
  }
  // Strips of rows, of at most 16 MiB of sums where columns allow: as many sums as logits would double their memory.
  const auto strip = std::min(rows, std::max<std::int64_t>(64, (4 << 20) / columns));
  const at::Tensor memory = at::empty({strip, columns}, at::kFloat);
  auto* const sums = memory.mutable_data_ptr<float>();
  for (std::int64_t first = 0; first < rows; first += strip) {
    const auto some = std::min(strip, rows - first);
    divided(tiles<Bits>().sum, OutputMatrix<float>{sums, columns}, true, from(a, first, 0), b, some, inner, columns);
    at::parallel_for(0, some, 16, [&](std::int64_t begin, std::int64_t end) {
      for (auto row = begin; row < end; ++row)
        kernels().attention_bfloat16.narrow(sums + row * columns, 1, out.data + (first + row) * out.stride, columns);
    });
  }
}

std::int64_t deepest_rounded() {
  return tiles<Bits>().numbers * kMatmulDepth;
}

template bool has_tiles<float>();
template bool has_tiles<Bits>();
template void tiled_matmul(OutputMatrix<float>, bool, const MatrixView<float>&, const MatrixView<float>&, std::int64_t,
                           std::int64_t, std::int64_t);
template void tiled_matmul(OutputMatrix<float>, bool, const MatrixView<Bits>&, const MatrixView<Bits>&, std::int64_t,
                           std::int64_t, std::int64_t);

}  // namespace automodel::ops
