// The embedding's gradient: a block for each place in the sorted list of ids; the first of equal ones adds up the rows
// of all, in their order.
#include "ops/kernels/cuda/device.h"

namespace automodel::ops::cuda {
namespace {

template <class T, class G>
__global__ void add_rows(const T* gradient, const std::int64_t* sorted, const std::int64_t* order, std::int64_t count,
                         std::int64_t width, std::int64_t table_rows, std::int64_t padding, G* table) {
  const std::int64_t place = blockIdx.x, id = sorted[place];
  if (id < 0 || id >= table_rows || id == padding) return;
  if (place > 0 && sorted[place - 1] == id) return;
  for (std::int64_t c = threadIdx.x; c < width; c += kThreads) {
    Compute<G> sum = widen(table[id * width + c]);
    for (std::int64_t next = place; next < count && sorted[next] == id; ++next)
      sum += static_cast<Compute<G>>(widen(gradient[order[next] * width + c]));
    table[id * width + c] = narrow<G>(sum);
  }
}

}  // namespace

void embedding_backward(Element element, Element table, const EmbeddingRows& rows, Stream stream) {
  for_element(element, [&](auto* of_gradient) {
    using T = std::remove_pointer_t<decltype(of_gradient)>;
    for_element(table, [&](auto* of_table) {
      using G = std::remove_pointer_t<decltype(of_table)>;
      launch(add_rows<T, G>, rows.count, 0, stream, static_cast<const T*>(rows.gradient), rows.sorted, rows.order,
             rows.count, rows.width, rows.table_rows, rows.padding, static_cast<G*>(rows.table));
    });
  });
}

}  // namespace automodel::ops::cuda
