// Matrices rounded to 8-bit types with dynamic scales, in two passes over the matrix: the largest magnitudes, and the
// cast, which writes rows or, for operands that the GEMM reads by columns, the transposed matrix.
#include <numeric>

#include "ops/kernels/cuda/device.h"

namespace automodel::ops::cuda {
namespace {

constexpr std::int64_t kMatrixParts = 1056;  // eight blocks per SM on a GPU with 132 SMs
constexpr std::int64_t kColumnParts = 64;
constexpr int kTile = 64;       // rows and columns of a block of the transposed cast
constexpr int kTilePitch = 80;  // bytes from column to column in shared memory: a multiple of 16, and no power of two
constexpr int kStored = 16;     // bytes that a thread stores at once

__device__ inline float magnitude(float x) {
  return x < 0 ? -x : x;
}
__device__ inline float larger(float a, float b) {
  return a > b ? a : b;
}
__device__ inline float warp_largest(float x) {
  for (int apart = kLanes / 2; apart > 0; apart /= 2) x = larger(x, __shfl_xor_sync(kAllLanes, x, apart));
  return x;
}
/// Returned to all of the block's threads.
__device__ inline float block_largest(float x) {
  __shared__ float part[kWarps];
  x = warp_largest(x);
  if (threadIdx.x % kLanes == 0) part[threadIdx.x / kLanes] = x;
  __syncthreads();
  x = part[0];
  for (int warp = 1; warp < kWarps; ++warp) x = larger(x, part[warp]);
  return x;
}

/// The scale that maps `top` to the largest number of the type.
__device__ inline float factor_of(float top, bool wide_range, bool power_of_two) {
  constexpr double kLeast = 1e-12;  // so that zeros have a scale
  const double largest = wide_range ? 57344 : 448;
  const double bounded = static_cast<double>(top) > kLeast ? static_cast<double>(top) : kLeast;
  double factor = 1 / bounded * largest;
  if (power_of_two) factor = exp2(floor(log2(factor)));
  return static_cast<float>(factor);
}

/// Where scales and 1 / them go, and how they follow from the largest magnitudes.
struct Factors {
  float *factors, *inverse;
  bool wide_range, power_of_two;
  __device__ void set(std::int64_t which, float top) const {
    const float factor = factor_of(top, wide_range, power_of_two);
    factors[which] = factor;
    inverse[which] = 1 / factor;
  }
};

/// Largest magnitudes: of a row per block, or of kThreads packs at a time of the whole matrix, taken by blocks in turn.
template <class T, int N>
__global__ void largest_of_rows(const T* x, std::int64_t columns, std::int64_t pitch, Factors out) {
  const T* row = x + blockIdx.x * pitch;
  float top = 0;
  for (std::int64_t c = threadIdx.x * N; c < columns; c += kThreads * N) {
    const auto values = read<N>(row + c);
    for (int i = 0; i < N; ++i) top = larger(top, magnitude(static_cast<float>(widen(values.at[i]))));
  }
  top = block_largest(top);
  if (threadIdx.x == 0) out.set(blockIdx.x, top);
}

template <class T, int N>
__global__ void largest_of_parts(const T* x, std::int64_t count, std::int64_t columns, std::int64_t pitch,
                                 float* partial) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads * N;
  float top = 0;
  for (std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N; at < count; at += step) {
    const auto values = read<N>(x + (pitch == columns ? at : at / columns * pitch + at % columns));
    for (int i = 0; i < N; ++i) top = larger(top, magnitude(static_cast<float>(widen(values.at[i]))));
  }
  top = block_largest(top);
  if (threadIdx.x == 0) partial[blockIdx.x] = top;
}

/// partial[part, c]: over every kColumnParts-th row. One thread per column.
template <class T>
__global__ void largest_of_columns(const T* x, std::int64_t rows, std::int64_t columns, std::int64_t pitch,
                                   std::int64_t tiles, float* partial) {
  const std::int64_t part = blockIdx.x / tiles, c = blockIdx.x % tiles * kThreads + threadIdx.x;
  if (c >= columns) return;
  float top = 0;
  for (std::int64_t row = part; row < rows; row += kColumnParts)
    top = larger(top, magnitude(static_cast<float>(widen(x[row * pitch + c]))));
  partial[part * columns + c] = top;
}

/// Scale i from partial[part, i] of all parts; one warp per scale.
__global__ void join_parts(const float* partial, std::int64_t parts, std::int64_t count, Factors out) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kLanes;
  if (i >= count) return;  // uniform over the warp
  float top = 0;
  for (std::int64_t part = threadIdx.x % kLanes; part < parts; part += kLanes)
    top = larger(top, partial[part * count + i]);
  top = warp_largest(top);
  if (threadIdx.x % kLanes == 0) out.set(i, top);
}

struct Cast {
  const float* factors;
  std::int64_t rows, columns, pitch;
  ScaleOf scale;
  bool wide_range;
};

__device__ inline std::uint8_t cast_of(const Cast& in, float x, std::int64_t row, std::int64_t column) {
  const std::int64_t which = in.scale == ScaleOf::kRow ? row : in.scale == ScaleOf::kColumn ? column : 0;
  return __nv_cvt_float_to_fp8(x * in.factors[which], __NV_SATFINITE, in.wide_range ? __NV_E5M2 : __NV_E4M3);
}

template <class T, int N>
__global__ void cast_rows(const T* x, std::uint8_t* out, Cast in) {
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  if (at >= in.rows * in.columns) return;
  const std::int64_t row = at / in.columns, column = at - row * in.columns;
  const auto values = read<N>(x + row * in.pitch + column);
  Pack<std::uint8_t, N> bytes;
  for (int i = 0; i < N; ++i) bytes.at[i] = cast_of(in, static_cast<float>(widen(values.at[i])), row, column + i);
  write<N>(out + at, bytes);
}

/// out [columns, rows]. `whole`: the rows of `out` begin at multiples of kStored bytes.
template <class T, int N>
__global__ void cast_transposed(const T* x, std::uint8_t* out, std::int64_t tiles, bool whole, Cast in) {
  __shared__ __align__(16) std::uint8_t tile[kTile * kTilePitch];
  const std::int64_t first_row = blockIdx.x / tiles * kTile, first_column = blockIdx.x % tiles * kTile;
  constexpr int kAcross = kTile / N;  // threads side by side
  for (int r = threadIdx.x / kAcross; r < kTile; r += kThreads / kAcross) {
    const int c = threadIdx.x % kAcross * N;
    const std::int64_t row = first_row + r, column = first_column + c;
    if (row >= in.rows || column >= in.columns) continue;
    const auto values = read<N>(x + row * in.pitch + column);
    for (int i = 0; i < N; ++i)
      tile[(c + i) * kTilePitch + r] = cast_of(in, static_cast<float>(widen(values.at[i])), row, column + i);
  }
  __syncthreads();
  const int c = threadIdx.x / (kTile / kStored), r = threadIdx.x % (kTile / kStored) * kStored;
  const std::int64_t column = first_column + c, row = first_row + r;
  if (column >= in.columns || row >= in.rows) return;
  const std::uint8_t* from = tile + c * kTilePitch + r;
  std::uint8_t* to = out + column * in.rows + row;
  if (whole) {
    write<kStored>(to, read<kStored>(from));
  } else {
    for (int i = 0; i < kStored && row + i < in.rows; ++i) to[i] = from[i];
  }
}
static_assert(kThreads * kStored == kTile * kTile);

}  // namespace

std::int64_t float8_parts(ScaleOf scale) {
  return scale == ScaleOf::kMatrix ? kMatrixParts : scale == ScaleOf::kColumn ? kColumnParts : 0;
}

void float8_cast(Element element, const Float8Cast& cast, Stream stream) {
  if (cast.rows * cast.columns == 0) return;
  for_element(element, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const T* x = static_cast<const T*>(cast.x);
    const auto count = cast.rows * cast.columns, tiles = divided_up(cast.columns, kTile);
    const Cast in{cast.factors, cast.rows, cast.columns, cast.pitch, cast.scale, cast.wide_range};
    const Factors factors{cast.factors, cast.inverse, cast.wide_range, cast.power_of_two};
    // Packs that begin at a row's multiples begin at multiples in memory if rows are multiples apart.
    const auto apart = std::gcd(cast.columns, cast.pitch);
    for_width<T>(apart, {cast.x, cast.out}, [&](auto width) {
      constexpr int N = decltype(width)::value;
      if (cast.scale == ScaleOf::kRow)
        launch(largest_of_rows<T, N>, cast.rows, 0, stream, x, cast.columns, cast.pitch, factors);
      if (cast.scale == ScaleOf::kMatrix)
        launch(largest_of_parts<T, N>, kMatrixParts, 0, stream, x, count, cast.columns, cast.pitch, cast.partial);
    });
    if (cast.scale == ScaleOf::kColumn) {
      const auto across = divided_up(cast.columns, kThreads);
      launch(largest_of_columns<T>, kColumnParts * across, 0, stream, x, cast.rows, cast.columns, cast.pitch, across,
             cast.partial);
    }
    if (cast.scale != ScaleOf::kRow) {
      const auto scales = cast.scale == ScaleOf::kMatrix ? 1 : cast.columns;
      launch(join_parts, divided_up(scales, kWarps), 0, stream, static_cast<const float*>(cast.partial),
             float8_parts(cast.scale), scales, factors);
    }
    for_width<T>(apart, {cast.x, cast.out}, [&](auto width) {
      constexpr int N = decltype(width)::value;
      if (cast.transposed)
        launch(cast_transposed<T, N>, divided_up(cast.rows, kTile) * tiles, 0, stream, x, cast.out, tiles,
               cast.rows % kStored == 0, in);
      else
        launch(cast_rows<T, N>, divided_up(count, kThreads * N), 0, stream, x, cast.out, in);
    });
  });
}

}  // namespace automodel::ops::cuda
