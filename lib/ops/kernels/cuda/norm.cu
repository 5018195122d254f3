// RMSNorm and LayerNorm, fused with the preceding residual addition. Forward: one team of threads per row, a block, or
// a warp where rows are as narrow as the heads that Qwen3 and Gemma 3 norm: a block would leave most of its threads
// idle. Backward: each team loops over several rows and accumulates its share of the parameter gradients, each thread
// those of its own columns.
#include <algorithm>

#include "ops/kernels/cuda/device.h"

namespace automodel::ops::cuda {
namespace {

constexpr std::int64_t kParts = 396;  // three blocks per SM on a GPU with 132 SMs: on an H200 34.6 us for 4,096 rows of
                                      // 2,048, against 41.1 us with 528 parts

/// offset + weight[c], or 1 if there is no weight.
template <class T>
__device__ Compute<T> factor_at(const T* weight, std::int64_t c, Compute<T> offset) {
  return weight != nullptr ? offset + widen(weight[c]) : Compute<T>(1);
}

template <class T, int N, bool centred, int team>
__global__ void forward_row(const T* x, const T* delta, const T* weight, const T* bias, T* sum, T* y, Compute<T>* mean,
                            Compute<T>* rstd, std::int64_t rows, std::int64_t columns, Compute<T> eps,
                            Compute<T> offset) {
  using C = Compute<T>;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kThreads / team) + threadIdx.x / team;
  if (row >= rows) return;
  const int lane = threadIdx.x % team;
  const std::int64_t start = row * columns, first = lane * N, step = team * N;
  const T* in = x + start;
  C part = 0;
  if (delta != nullptr) {
    for (std::int64_t c = first; c < columns; c += step) {
      auto values = read<N>(in + c);
      const auto others = read<N>(delta + start + c);
      for (int i = 0; i < N; ++i) {
        values.at[i] = narrow<T>(widen(values.at[i]) + widen(others.at[i]));
        const C value = widen(values.at[i]);
        part += centred ? value : value * value;
      }
      write<N>(sum + start + c, values);
    }
    in = sum + start;  // each thread reads only what it wrote itself, so no barrier
  } else {
    for (std::int64_t c = first; c < columns; c += step) {
      const auto values = read<N>(in + c);
      for (int i = 0; i < N; ++i) {
        const C value = widen(values.at[i]);
        part += centred ? value : value * value;
      }
    }
  }
  C middle = 0;
  if constexpr (centred) {
    middle = team_sum<team>(part) / static_cast<C>(columns);
    part = 0;
    for (std::int64_t c = first; c < columns; c += step) {
      const auto values = read<N>(in + c);
      for (int i = 0; i < N; ++i) part += (widen(values.at[i]) - middle) * (widen(values.at[i]) - middle);
    }
  }
  const C scale = C(1) / sqrt(team_sum<team>(part) / static_cast<C>(columns) + eps);
  if (lane == 0) {
    rstd[row] = scale;
    if constexpr (centred) mean[row] = middle;
  }
  for (std::int64_t c = first; c < columns; c += step) {
    auto values = read<N>(in + c);
    for (int i = 0; i < N; ++i) {
      C value = (widen(values.at[i]) - middle) * scale * factor_at(weight, c + i, offset);
      if (bias != nullptr) value += widen(bias[c + i]);
      values.at[i] = narrow<T>(value);
    }
    write<N>(y + start + c, values);
  }
}

template <class T>
struct Backward {
  using C = Compute<T>;
  const T *dy, *dsum, *x, *weight;
  const C *mean, *rstd;
  T* dx;
  C* partial;  ///< [blocks, kept, columns]
  std::int64_t rows, columns;
  C offset;
  int kept;
  bool in_shared;  ///< accumulate the block's share in shared memory
};

/// For rows of at most `packs` packs of 16 bytes per thread of a team: the row is read once, and what the parameters'
/// gradients sum up to stays in registers until the last row.
template <class T, int N, bool centred, int team, int packs>
__global__ void backward_held(Backward<T> in) {
  using C = Compute<T>;
  constexpr int kTeams = kThreads / team, kSums = centred ? 2 : 1;  // RMSNorm has no bias
  const int mine = threadIdx.x / team, lane = threadIdx.x % team;
  const std::int64_t columns = in.columns;
  C sums[kSums][packs][N];
  for (int k = 0; k < kSums; ++k)
    for (int p = 0; p < packs; ++p)
      for (int i = 0; i < N; ++i) sums[k][p][i] = 0;
  Pack<T, N> weights[packs];  // read once per thread, and one by one: they need not be aligned
  if (in.weight != nullptr)
    for (int p = 0; p < packs; ++p)
      for (int i = 0; i < N; ++i)
        if (const std::int64_t c = (p * team + lane) * N + i; c < columns) weights[p].at[i] = in.weight[c];
  const auto gain = [&](int p, int i) { return in.weight != nullptr ? in.offset + widen(weights[p].at[i]) : C(1); };
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kTeams + mine; row < in.rows;
       row += static_cast<std::int64_t>(gridDim.x) * kTeams) {
    Pack<T, N> gradients[packs], values[packs], residual[packs];
    for (int p = 0; p < packs; ++p) {
      const std::int64_t c = (p * team + lane) * N, at = row * columns + c;
      if (c >= columns) continue;
      gradients[p] = read<N>(in.dy + at);
      values[p] = read<N>(in.x + at);
      if (in.dsum != nullptr) residual[p] = read<N>(in.dsum + at);
    }
    const C scale = in.rstd[row];
    C middle = 0, total = 0, dot = 0;
    if constexpr (centred) middle = in.mean[row];
    for (int p = 0; p < packs; ++p) {
      const std::int64_t c = (p * team + lane) * N;
      if (c >= columns) continue;
      for (int i = 0; i < N; ++i) {
        const C gradient = widen(gradients[p].at[i]) * gain(p, i);
        total += gradient;
        dot += gradient * (widen(values[p].at[i]) - middle);
      }
    }
    const C factor = team_sum<team>(dot) * scale * scale * scale / static_cast<C>(columns);
    C shift = 0;
    if constexpr (centred) shift = team_sum<team>(total) * scale / static_cast<C>(columns);
    for (int p = 0; p < packs; ++p) {
      const std::int64_t c = (p * team + lane) * N;
      if (c >= columns) continue;
      Pack<T, N> out;
      for (int i = 0; i < N; ++i) {
        const C gradient = widen(gradients[p].at[i]), value = widen(values[p].at[i]) - middle;
        C result = gradient * gain(p, i) * scale - value * factor - shift;
        if (in.dsum != nullptr) result += widen(residual[p].at[i]);
        out.at[i] = narrow<T>(result);
        sums[0][p][i] += gradient * value * scale;
        if constexpr (centred) sums[1][p][i] += gradient;
      }
      write<N>(in.dx + row * columns + c, out);
    }
  }
  C* partial = in.partial + blockIdx.x * in.kept * columns;
  C* own = kTeams == 1 ? partial : dynamic_shared<C>() + mine * in.kept * columns;
  for (int k = 0; k < kSums; ++k)
    for (int p = 0; p < packs; ++p)
      for (int i = 0; i < N; ++i) {
        const std::int64_t c = (p * team + lane) * N + i;
        if (k < in.kept && c < columns) own[k * columns + c] = sums[k][p][i];
      }
  if constexpr (kTeams > 1) {
    __syncthreads();
    const C* all = dynamic_shared<C>();
    for (std::int64_t c = threadIdx.x; c < in.kept * columns; c += kThreads) {
      C sum = all[c];
      for (int other = 1; other < kTeams; ++other) sum += all[other * in.kept * columns + c];
      partial[c] = sum;
    }
  }
}

template <class T, int N, bool centred>
__global__ void backward_rows(Backward<T> in) {
  using C = Compute<T>;
  const std::int64_t columns = in.columns, first = threadIdx.x * N, step = kThreads * N;
  C* mine = in.partial + blockIdx.x * in.kept * columns;
  C* sums = in.in_shared ? dynamic_shared<C>() : mine;
  // In shared memory the elements of a pack are spread out, so that adjacent threads access different banks.
  const std::int64_t apart = in.in_shared ? columns / N : 1, along = in.in_shared ? N : 1;
  for (std::int64_t c = first; c < columns; c += step)
    for (int k = 0; k < in.kept; ++k)
      for (int i = 0; i < N; ++i) sums[k * columns + c / along + i * apart] = 0;
  for (std::int64_t row = blockIdx.x; row < in.rows; row += gridDim.x) {
    const T* dy = in.dy + row * columns;
    const T* x = in.x + row * columns;
    const C scale = in.rstd[row];
    C middle = 0, total = 0, dot = 0;
    if constexpr (centred) middle = in.mean[row];
    for (std::int64_t c = first; c < columns; c += step) {
      const auto gradients = read<N>(dy + c), values = read<N>(x + c);
      for (int i = 0; i < N; ++i) {
        const C gradient = widen(gradients.at[i]) * factor_at(in.weight, c + i, in.offset);
        total += gradient;
        dot += gradient * (widen(values.at[i]) - middle);
      }
    }
    const C factor = block_sum(dot) * scale * scale * scale / static_cast<C>(columns);
    C shift = 0;
    if constexpr (centred) shift = block_sum(total) * scale / static_cast<C>(columns);
    for (std::int64_t c = first; c < columns; c += step) {
      const auto gradients = read<N>(dy + c), values = read<N>(x + c);
      Pack<T, N> residual = {};
      if (in.dsum != nullptr) residual = read<N>(in.dsum + row * columns + c);
      Pack<T, N> out;
      for (int i = 0; i < N; ++i) {
        const C gradient = widen(gradients.at[i]), value = widen(values.at[i]) - middle;
        C result = gradient * factor_at(in.weight, c + i, in.offset) * scale - value * factor - shift;
        if (in.dsum != nullptr) result += widen(residual.at[i]);
        out.at[i] = narrow<T>(result);
        C* sum = sums + c / along + i * apart;
        if (in.kept > 0) sum[0] += gradient * value * scale;
        if (in.kept > 1) sum[columns] += gradient;
      }
      write<N>(in.dx + row * columns + c, out);
    }
  }
  if (!in.in_shared) return;
  for (std::int64_t c = first; c < columns; c += step)
    for (int k = 0; k < in.kept; ++k)
      for (int i = 0; i < N; ++i) mine[k * columns + c + i] = sums[k * columns + c / along + i * apart];
}

/// out[c] = sum over parts of partial[part, c]; each block handles kLanes columns, each warp every kWarps-th part.
template <class C>
__global__ void sum_parts(const C* partial, std::int64_t parts, std::int64_t columns, C* out) {
  __shared__ C sums[kWarps][kLanes];
  const int lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kLanes + lane;
  C sum = 0;
  if (column < columns)
    for (std::int64_t part = warp; part < parts; part += kWarps) sum += partial[part * columns + column];
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= columns) return;
  for (int other = 1; other < kWarps; ++other) sum += sums[other][lane];
  out[column] = sum;
}

template <class T, bool centred>
void forward_with(const NormShape& shape, const NormForward& data, Stream stream) {
  using C = Compute<T>;
  for_width<T>(shape.columns, {data.x, data.delta, data.sum, data.y}, [&](auto width) {
    constexpr int N = decltype(width)::value;
    const bool narrow = shape.columns <= 2 * kLanes * N;
    launch(narrow ? forward_row<T, N, centred, kLanes> : forward_row<T, N, centred, kThreads>,
           narrow ? divided_up(shape.rows, kWarps) : shape.rows, 0, stream, static_cast<const T*>(data.x),
           static_cast<const T*>(data.delta), static_cast<const T*>(data.weight), static_cast<const T*>(data.bias),
           static_cast<T*>(data.sum), static_cast<T*>(data.y), static_cast<C*>(data.mean), static_cast<C*>(data.rstd),
           shape.rows, shape.columns, static_cast<C>(shape.eps), static_cast<C>(shape.offset));
  });
}

template <class T, bool centred>
void backward_with(const NormShape& shape, const NormBackward& data, Stream stream) {
  using C = Compute<T>;
  const auto parts = norm_parts(shape.rows);
  const int kept = data.dparameters != nullptr ? data.kept : 0;
  const auto bytes = static_cast<std::size_t>(kept * shape.columns) * sizeof(C);
  const bool in_shared = bytes <= kSharedBytes;
  const Backward<T> in{.dy = static_cast<const T*>(data.dy),
                       .dsum = static_cast<const T*>(data.dsum),
                       .x = static_cast<const T*>(data.x),
                       .weight = static_cast<const T*>(data.weight),
                       .mean = static_cast<const C*>(data.mean),
                       .rstd = static_cast<const C*>(data.rstd),
                       .dx = static_cast<T*>(data.dx),
                       .partial = static_cast<C*>(data.partial),
                       .rows = shape.rows,
                       .columns = shape.columns,
                       .offset = static_cast<C>(shape.offset),
                       .kept = kept,
                       .in_shared = in_shared};
  for_width<T>(shape.columns, {data.dy, data.dsum, data.x, data.dx}, [&](auto width) {
    constexpr int N = decltype(width)::value;
    if constexpr (N > 1) {
      if (shape.columns <= kLanes * N)
        return launch(backward_held<T, N, centred, kLanes, 1>, parts, kWarps * bytes, stream, in);
      if (shape.columns <= kThreads * N) return launch(backward_held<T, N, centred, kThreads, 1>, parts, 0, stream, in);
      if constexpr (!centred)  // the bias's sums would leave registers for only one block per SM
        if (shape.columns <= 2 * kThreads * N)
          return launch(backward_held<T, N, centred, kThreads, 2>, parts, 0, stream, in);
    }
    launch(backward_rows<T, N, centred>, parts, in_shared ? bytes : 0, stream, in);
  });
  if (kept > 0)
    launch(sum_parts<C>, divided_up(kept * shape.columns, kLanes), 0, stream, static_cast<const C*>(data.partial),
           parts, kept * shape.columns, static_cast<C*>(data.dparameters));
}

}  // namespace

std::int64_t norm_parts(std::int64_t rows) {
  return std::min(rows, kParts);
}

void norm_forward(Element element, const NormShape& shape, const NormForward& data, Stream stream) {
  for_element(element, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    shape.centred ? forward_with<T, true>(shape, data, stream) : forward_with<T, false>(shape, data, stream);
  });
}

void norm_backward(Element element, const NormShape& shape, const NormBackward& data, Stream stream) {
  for_element(element, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    shape.centred ? backward_with<T, true>(shape, data, stream) : backward_with<T, false>(shape, data, stream);
  });
}

}  // namespace automodel::ops::cuda
