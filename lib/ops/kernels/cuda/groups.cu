// Weight gradients of groups, as a grouped GEMM returns them, added to a gradient buffer: one thread per pack.
#include "ops/kernels/cuda/device.h"

namespace automodel::ops::cuda {
namespace {

constexpr std::int64_t kPacks = 4;  // per thread, kThreads apart

template <class G, int N>
__global__ void add_group(const __nv_bfloat16* product, G* gradient, const std::int32_t* ends, std::int64_t blocks,
                          std::int64_t first_group, std::int64_t count, std::int64_t product_distance,
                          std::int64_t gradient_distance, bool fresh) {
  const std::int64_t group = blockIdx.x / blocks, known = first_group + group;
  const bool empty = ends[known] == (known > 0 ? ends[known - 1] : 0);
  if (empty && !fresh) return;
  const __nv_bfloat16* from = product + group * product_distance;
  G* to = gradient + group * gradient_distance;
  const std::int64_t begin = blockIdx.x % blocks * kPacks * kThreads + threadIdx.x;
  for (std::int64_t p = 0; p < kPacks; ++p) {
    const std::int64_t c = (begin + p * kThreads) * N;
    if (c >= count) return;
    Pack<G, N> sum = {};
    if (!fresh) sum = read<N>(to + c);
    if (!empty) {
      const auto more = read<N>(from + c);
      for (int i = 0; i < N; ++i) sum.at[i] = narrow<G>(widen(sum.at[i]) + static_cast<Compute<G>>(widen(more.at[i])));
    }
    write<N>(to + c, sum);
  }
}

}  // namespace

void add_groups(Element element, const GroupGradients& in, Stream stream) {
  for_element(element, [&](auto* tag) {
    using G = std::remove_pointer_t<decltype(tag)>;
    constexpr int kWide = 8;  // bfloat16 in 16 bytes; the gradient's pack of float is then 32
    const bool wide = in.count % kWide == 0 && in.product_distance % kWide == 0 && in.gradient_distance % kWide == 0 &&
                      begins_at_multiple(in.product, 16) && begins_at_multiple(in.gradient, kWide * sizeof(G));
    const auto add = wide ? add_group<G, kWide> : add_group<G, 1>;
    const auto blocks = divided_up(in.count, (wide ? kWide : 1) * kPacks * kThreads);
    launch(add, in.groups * blocks, 0, stream, static_cast<const __nv_bfloat16*>(in.product),
           static_cast<G*>(in.gradient), in.ends, blocks, in.first_group, in.count, in.product_distance,
           in.gradient_distance, in.fresh);
  });
}

}  // namespace automodel::ops::cuda
