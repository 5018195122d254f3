// Gradient of the embedding. Each position in the sorted list of ids has blocks, one per range of columns; those of the
// first of equal ids sum the rows of all of them in order, the others exit.
#include "ops/kernels/cuda/device.h"

namespace automodel::ops::cuda {
namespace {

constexpr int kAhead = 8;  // rows loaded before the first of them is added, to hide latency: a frequent id has
                           // thousands

/// One past the last of the ids that equal the one at `place`.
__device__ inline std::int64_t end_of_run(const std::int64_t* sorted, std::int64_t place, std::int64_t count) {
  std::int64_t low = place + 1, high = count;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (sorted[middle] == sorted[place])
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

template <class T, class G>
__global__ void add_rows(const T* gradient, const std::int64_t* sorted, const std::int64_t* order, std::int64_t count,
                         std::int64_t width, std::int64_t parts, std::int64_t table_rows, std::int64_t padding,
                         G* table) {
  const std::int64_t place = blockIdx.x / parts, id = sorted[place];
  if (id < 0 || id >= table_rows || id == padding) return;
  if (place > 0 && sorted[place - 1] == id) return;
  const std::int64_t c = blockIdx.x % parts * kThreads + threadIdx.x;
  if (c >= width) return;
  const std::int64_t end = end_of_run(sorted, place, count);
  Compute<G> sum = widen(table[id * width + c]);
  std::int64_t next = place;
  for (; next + kAhead <= end; next += kAhead) {
    T ahead[kAhead];
    for (int i = 0; i < kAhead; ++i) ahead[i] = gradient[order[next + i] * width + c];
    for (int i = 0; i < kAhead; ++i) sum += static_cast<Compute<G>>(widen(ahead[i]));
  }
  for (; next < end; ++next) sum += static_cast<Compute<G>>(widen(gradient[order[next] * width + c]));
  table[id * width + c] = narrow<G>(sum);
}

}  // namespace

void embedding_backward(Element element, Element table, const EmbeddingRows& rows, Stream stream) {
  for_element(element, [&](auto* of_gradient) {
    using T = std::remove_pointer_t<decltype(of_gradient)>;
    for_element(table, [&](auto* of_table) {
      using G = std::remove_pointer_t<decltype(of_table)>;
      const auto parts = divided_up(rows.width, kThreads);
      launch(add_rows<T, G>, rows.count * parts, 0, stream, static_cast<const T*>(rows.gradient), rows.sorted,
             rows.order, rows.count, rows.width, parts, rows.table_rows, rows.padding, static_cast<G*>(rows.table));
    });
  });
}

}  // namespace automodel::ops::cuda
