// Cross-entropy that overwrites the logits: one block per row, which makes one pass for the largest logit and the sum
// of exponentials together (Milakov and Gimelshein 2018), and another one for the gradient.
#include "ops/kernels/cuda/device.h"

namespace automodel::ops::cuda {
namespace {

template <class C>
struct Softmax {
  C largest, sum;  ///< largest x, and the sum of exp(x - largest); {-inf, 0} if empty
};

template <class C>
__device__ Softmax<C> joined(const Softmax<C>& a, const Softmax<C>& b) {
  const C top = a.largest > b.largest ? a.largest : b.largest;
  C sum = 0;
  if (a.sum != C(0)) sum += a.sum * exp(a.largest - top);
  if (b.sum != C(0)) sum += b.sum * exp(b.largest - top);
  return {top, sum};
}

/// cap tanh(x / cap), or x if cap is 0.
template <class C>
__device__ C capped(C x, C cap) {
  return cap > C(0) ? cap * tanh(x / cap) : x;
}

/// Softmax statistics of the block's row, returned to every thread.
template <class T, int N>
__device__ Softmax<Compute<T>> softmax_of_row(const T* row, std::int64_t columns, Compute<T> cap) {
  using C = Compute<T>;
  constexpr C kNothing = -std::numeric_limits<C>::infinity();
  __shared__ C largest[kWarps], sums[kWarps];
  Softmax<C> mine = {kNothing, 0};
  for (std::int64_t c = threadIdx.x * N; c < columns; c += kThreads * N) {
    const auto values = read<N>(row + c);
    C logits[N];
    C top = mine.largest;
    for (int i = 0; i < N; ++i) {
      logits[i] = capped(widen(values.at[i]), cap);
      top = logits[i] > top ? logits[i] : top;
    }
    C sum = mine.sum != C(0) ? mine.sum * exp(mine.largest - top) : C(0);
    for (int i = 0; i < N; ++i) sum += logits[i] == kNothing ? C(0) : exp(logits[i] - top);
    mine = {top, sum};
  }
  for (int apart = kLanes / 2; apart > 0; apart /= 2) {
    const Softmax<C> other = {__shfl_xor_sync(kAllLanes, mine.largest, apart),
                              __shfl_xor_sync(kAllLanes, mine.sum, apart)};
    mine = joined(mine, other);
  }
  if (threadIdx.x % kLanes == 0) {
    largest[threadIdx.x / kLanes] = mine.largest;
    sums[threadIdx.x / kLanes] = mine.sum;
  }
  __syncthreads();
  mine = {largest[0], sums[0]};
  for (int warp = 1; warp < kWarps; ++warp) mine = joined(mine, {largest[warp], sums[warp]});
  return mine;
}

template <class T, int N>
__device__ void fill_zero(T* row, std::int64_t columns) {
  Pack<T, N> zero;
  for (int i = 0; i < N; ++i) zero.at[i] = narrow<T>(0);
  for (std::int64_t c = threadIdx.x * N; c < columns; c += kThreads * N) write<N>(row + c, zero);
}

/// Overwrites the row with exp(x - largest) * factor - scale * onehot(label), times the slope of the cap.
template <class T, int N>
__device__ void gradient_of_row(T* row, std::int64_t columns, std::int64_t label, Compute<T> largest, Compute<T> factor,
                                Compute<T> scale, Compute<T> cap) {
  using C = Compute<T>;
  for (std::int64_t c = threadIdx.x * N; c < columns; c += kThreads * N) {
    auto values = read<N>(row + c);
    for (int i = 0; i < N; ++i) {
      const C logit = capped(widen(values.at[i]), cap);
      C gradient = exp(logit - largest) * factor;
      if (c + i == label) gradient -= scale;
      if (cap > C(0)) gradient *= C(1) - (logit / cap) * (logit / cap);
      values.at[i] = narrow<T>(gradient);
    }
    write<N>(row + c, values);
  }
}

template <class T, int N>
__global__ void whole_row(T* logits, std::int64_t stride, std::int64_t columns, const std::int64_t* labels,
                          double* losses, std::int64_t ignore, double scale, const double* factor, Compute<T> cap,
                          bool gradient) {
  using C = Compute<T>;
  T* row = logits + blockIdx.x * stride;
  const std::int64_t label = labels[blockIdx.x];
  if (label == ignore) {
    if (threadIdx.x == 0) losses[blockIdx.x] = 0;
    if (gradient) fill_zero<T, N>(row, columns);
    return;
  }
  const C chosen = threadIdx.x == 0 ? capped(widen(row[label]), cap) : C(0);  // read before the gradient overwrites
                                                                              // it
  const auto all = softmax_of_row<T, N>(row, columns, cap);
  if (threadIdx.x == 0)
    losses[blockIdx.x] =
        static_cast<double>(all.largest) - static_cast<double>(chosen) + log(static_cast<double>(all.sum));
  const C times = static_cast<C>(factor != nullptr ? scale * *factor : scale);
  if (gradient) gradient_of_row<T, N>(row, columns, label, all.largest, times / all.sum, times, cap);
}

template <class T, int N>
__global__ void statistics_of_row(const T* logits, std::int64_t stride, std::int64_t columns,
                                  const std::int64_t* labels, std::int64_t first, Compute<T>* out, Compute<T> cap) {
  const T* row = logits + blockIdx.x * stride;
  const auto all = softmax_of_row<T, N>(row, columns, cap);
  if (threadIdx.x != 0) return;
  const std::int64_t label = labels[blockIdx.x] - first;
  Compute<T>* to = out + 3 * static_cast<std::int64_t>(blockIdx.x);
  to[0] = all.largest;
  to[1] = all.sum;
  to[2] = label >= 0 && label < columns ? capped(widen(row[label]), cap) : Compute<T>(0);
}

template <class T, int N>
__global__ void gradient_of_part(T* logits, std::int64_t stride, std::int64_t columns, const std::int64_t* labels,
                                 std::int64_t first, const Compute<T>* shares, Compute<T> scale, Compute<T> cap) {
  using C = Compute<T>;
  T* row = logits + blockIdx.x * stride;
  const C largest = shares[2 * static_cast<std::int64_t>(blockIdx.x)];
  const C factor = shares[2 * static_cast<std::int64_t>(blockIdx.x) + 1];
  if (factor == C(0))
    fill_zero<T, N>(row, columns);
  else
    gradient_of_row<T, N>(row, columns, labels[blockIdx.x] - first, largest, factor, scale, cap);
  for (std::int64_t c = columns + threadIdx.x; c < stride; c += kThreads) row[c] = narrow<T>(0);
}

/// Packs only if every row starts at a multiple of the pack size.
template <class T, class Run>
void for_row_width(const Logits& in, const Run& run) {
  for_width<T>(in.stride % 16 == 0 ? in.columns : 1, {in.logits}, run);
}

}  // namespace

void cross_entropy(Element element, const Logits& in, double* losses, std::int64_t ignore, double scale,
                   const double* factor, bool gradient, Stream stream) {
  for_element(element, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    for_row_width<T>(in, [&](auto width) {
      launch(whole_row<T, decltype(width)::value>, in.rows, 0, stream, static_cast<T*>(in.logits), in.stride,
             in.columns, in.labels, losses, ignore, scale, factor, static_cast<Compute<T>>(in.cap), gradient);
    });
  });
}

void logit_statistics(Element element, const Logits& in, void* out, Stream stream) {
  for_element(element, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    for_row_width<T>(in, [&](auto width) {
      launch(statistics_of_row<T, decltype(width)::value>, in.rows, 0, stream, static_cast<const T*>(in.logits),
             in.stride, in.columns, in.labels, in.first, static_cast<Compute<T>*>(out),
             static_cast<Compute<T>>(in.cap));
    });
  });
}

void logit_gradient(Element element, const Logits& in, const void* shares, double scale, Stream stream) {
  for_element(element, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    for_row_width<T>(in, [&](auto width) {
      launch(gradient_of_part<T, decltype(width)::value>, in.rows, 0, stream, static_cast<T*>(in.logits), in.stride,
             in.columns, in.labels, in.first, static_cast<const Compute<T>*>(shares), static_cast<Compute<T>>(scale),
             static_cast<Compute<T>>(in.cap));
    });
  });
}

}  // namespace automodel::ops::cuda
