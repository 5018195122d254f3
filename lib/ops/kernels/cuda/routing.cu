// The router's choice (one warp per token), the sorting of choices by expert (one block per expert), and what comes
// back from the experts summed by token (one block per token), with its gradient (one warp per choice).
#include <stdexcept>

#include "ops/kernels/cuda/device.h"

namespace automodel::ops::cuda {
namespace {

constexpr std::int64_t kMostColumns = 1024;  // each lane tracks which of its columns were chosen in the bits of one
                                             // word

template <class T>
__global__ void choose_rows(const T* scores, std::int64_t rows, std::int64_t columns, std::int64_t k,
                            std::int64_t* chosen) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kLanes;
  if (row >= rows) return;  // uniform over the warp
  const int lane = threadIdx.x % kLanes;
  const T* from = scores + row * columns;
  unsigned given = 0;
  for (std::int64_t turn = 0; turn < k; ++turn) {
    T best = 0;
    int place = -1;
    for (int i = 0; lane + i * kLanes < columns; ++i) {
      const T score = from[lane + i * kLanes];
      if ((given >> i & 1U) == 0 && (place < 0 || score > best)) {
        best = score;
        place = lane + i * kLanes;
      }
    }
    for (int apart = kLanes / 2; apart > 0; apart /= 2) {
      const T other = __shfl_xor_sync(kAllLanes, best, apart);
      const int where = __shfl_xor_sync(kAllLanes, place, apart);
      if (where >= 0 && (place < 0 || other > best || (other == best && where < place))) {
        best = other;
        place = where;
      }
    }
    place = __shfl_sync(kAllLanes, place, 0);  // lanes may disagree if scores are NaN
    if (place % kLanes == lane) given |= 1U << (place / kLanes);
    if (lane == 0) chosen[row * k + turn] = place;
  }
}

/// Counting sort for this block's expert: one pass over all choices counts those of lower experts, which come first,
/// and its own; a second pass places its own in order.
__global__ void place_choices(const std::int64_t* choices, std::int64_t count, std::int64_t k, std::int64_t* from,
                              std::int64_t* place, std::int64_t* counts) {
  __shared__ int of_warp[kWarps];
  const std::int64_t expert = blockIdx.x;
  const int lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
  double before = 0, own = 0;  // exact below 2^53
  for (std::int64_t c = threadIdx.x; c < count; c += kThreads) {
    before += choices[c] < expert ? 1 : 0;
    own += choices[c] == expert ? 1 : 0;
  }
  auto next = static_cast<std::int64_t>(block_sum(before));
  own = block_sum(own);
  if (threadIdx.x == 0) counts[expert] = static_cast<std::int64_t>(own);
  for (std::int64_t start = 0; start < count; start += kThreads) {
    const std::int64_t c = start + threadIdx.x;
    const bool here = c < count && choices[c] == expert;
    const unsigned lanes = __ballot_sync(kAllLanes, here);
    if (lane == 0) of_warp[warp] = __popc(lanes);
    __syncthreads();
    int ahead = __popc(lanes & ((1U << lane) - 1U)), all = 0;
    for (int other = 0; other < kWarps; ++other) {
      if (other < warp) ahead += of_warp[other];
      all += of_warp[other];
    }
    if (here) {
      from[next + ahead] = c / k;
      place[c] = next + ahead;
    }
    next += all;
    __syncthreads();  // of_warp is overwritten in the next iteration
  }
}

template <class T, int N>
__global__ void sum_of_row(const T* rows, const T* weights, const std::int64_t* places, T* out, std::int64_t k,
                           std::int64_t width) {
  using C = Compute<T>;
  const std::int64_t token = blockIdx.x;
  for (std::int64_t c = threadIdx.x * N; c < width; c += kThreads * N) {
    C sums[N];
    for (int i = 0; i < N; ++i) sums[i] = 0;
    for (std::int64_t j = token * k; j < (token + 1) * k; ++j) {
      const auto values = read<N>(rows + places[j] * width + c);
      const C weight = weights != nullptr ? widen(weights[j]) : C(1);
      for (int i = 0; i < N; ++i) sums[i] += weight * widen(values.at[i]);
    }
    Pack<T, N> sum;
    for (int i = 0; i < N; ++i) sum.at[i] = narrow<T>(sums[i]);
    write<N>(out + token * width + c, sum);
  }
}

template <class T, int N>
__global__ void gradient_of_choice(const T* dout, const T* rows, const T* weights, const std::int64_t* places, T* drows,
                                   T* dweights, std::int64_t choices, std::int64_t k, std::int64_t width) {
  using C = Compute<T>;
  const std::int64_t choice = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kLanes;
  if (choice >= choices) return;  // uniform over the warp
  const int lane = threadIdx.x % kLanes;
  const T* from = dout + choice / k * width;
  const std::int64_t at = places[choice] * width;
  const C weight = widen(weights[choice]);
  C dot = 0;
  for (std::int64_t c = lane * N; c < width; c += kLanes * N) {
    auto gradients = read<N>(from + c);
    const auto values = read<N>(rows + at + c);
    for (int i = 0; i < N; ++i) {
      const C gradient = widen(gradients.at[i]);
      dot += gradient * widen(values.at[i]);
      gradients.at[i] = narrow<T>(weight * gradient);
    }
    write<N>(drows + at + c, gradients);
  }
  dot = warp_sum(dot);
  if (lane == 0) dweights[choice] = narrow<T>(dot);
}

}  // namespace

void top_k(Element element, const void* scores, std::int64_t rows, std::int64_t columns, std::int64_t k,
           std::int64_t* chosen, Stream stream) {
  if (columns > kMostColumns || k > columns) throw std::invalid_argument("top_k of too many columns");
  const auto blocks = divided_up(rows, kWarps);
  if (element == Element::kDouble)
    launch(choose_rows<double>, blocks, 0, stream, static_cast<const double*>(scores), rows, columns, k, chosen);
  else if (element == Element::kFloat)
    launch(choose_rows<float>, blocks, 0, stream, static_cast<const float*>(scores), rows, columns, k, chosen);
  else
    throw std::invalid_argument("top_k of scores that are neither float nor double");
}

void sort_choices(const std::int64_t* choices, std::int64_t count, std::int64_t k, std::int64_t experts,
                  std::int64_t* from, std::int64_t* place, std::int64_t* counts, Stream stream) {
  launch(place_choices, experts, 0, stream, choices, count, k, from, place, counts);
}

void sum_rows(Element element, const RowSums& in, Stream stream) {
  for_element(element, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    for_width<T>(in.width, {in.rows, in.out}, [&](auto wide) {
      launch(sum_of_row<T, decltype(wide)::value>, in.tokens, 0, stream, static_cast<const T*>(in.rows),
             static_cast<const T*>(in.weights), in.places, static_cast<T*>(in.out), in.k, in.width);
    });
  });
}

void sum_rows_backward(Element element, const RowSums& in, const RowSumGradients& out, Stream stream) {
  for_element(element, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    for_width<T>(in.width, {in.rows, out.dout, out.drows}, [&](auto wide) {
      launch(gradient_of_choice<T, decltype(wide)::value>, divided_up(in.tokens * in.k, kWarps), 0, stream,
             static_cast<const T*>(out.dout), static_cast<const T*>(in.rows), static_cast<const T*>(in.weights),
             in.places, static_cast<T*>(out.drows), static_cast<T*>(out.dweights), in.tokens * in.k, in.k, in.width);
    });
  });
}

}  // namespace automodel::ops::cuda
