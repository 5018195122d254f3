// Weights in 4 or 8 bits made dense: one thread per eight adjacent elements.
#include "ops/kernels/cuda/device.h"

namespace automodel::ops::cuda {
namespace {

constexpr int kAdjacent = 8;  // 16 bytes of bfloat16, made of 4 bytes of nf4 codes

/// Consecutive elements of the part that share a scale. A range ends with a block, or with the part.
struct Piece {
  std::int64_t end;  ///< index in the part of the first element after them, or beyond the part's end
  float scale;
};

/// The piece that element `local` of the part belongs to: QuantizedLayout::each_piece, for one element.
__device__ inline Piece piece_of(const Quantized& in, std::int64_t local) {
  const std::int64_t stretch = in.ranges.begin[in.ranges.count];
  const std::int64_t repeat = local / stretch, within = local - repeat * stretch;
  int range = 0;
  while (within >= in.ranges.begin[range + 1]) ++range;
  const std::int64_t at = repeat * in.period + in.ranges.first[range] + within - in.ranges.begin[range];
  const std::int64_t block = at / in.block;
  const std::int64_t slot = in.aligned ? local / in.block : block - in.ranges.first[0] / in.block;
  float scale = 0;
  if (in.small_scales) {
    const auto* outer = reinterpret_cast<const float*>(in.bytes + in.outer_at);
    // Rounded twice, as bitsandbytes does: not contracted to a fused multiply-add.
    scale = __fadd_rn(__fmul_rn(in.dynamic[in.bytes[in.scales_at + slot]], outer[1 + block / kScaleBlock]), outer[0]);
  } else {
    scale = reinterpret_cast<const float*>(in.bytes + in.scales_at)[slot];
  }
  if (in.bits == 8) scale *= in.unit;
  return {local + (block + 1) * in.block - at, scale};
}

template <class T>
__global__ void unpack(Quantized in, T* out) {
  __shared__ float numbers[16];
  if (threadIdx.x < 16) numbers[threadIdx.x] = in.normal[threadIdx.x];
  __syncthreads();
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kAdjacent;
  const std::int64_t end = first + kAdjacent < in.elements ? first + kAdjacent : in.elements;
  Piece piece = {first, 0};
  constexpr int kWide = 16 / sizeof(T);
  Pack<T, kWide> packs[kAdjacent / kWide];
  for (int i = 0; i < kAdjacent; ++i) {
    const std::int64_t local = first + i;
    if (local >= end) break;
    if (local == piece.end) piece = piece_of(in, local);
    float number = 0;
    if (in.bits == 8) {
      number = static_cast<float>(static_cast<std::int8_t>(in.bytes[local]));
    } else {
      const unsigned both = in.bytes[local / 2];
      number = numbers[i % 2 == 0 ? both >> 4U : both & 15U];
    }
    packs[i / kWide].at[i % kWide] = narrow<T>(static_cast<Compute<T>>(number * piece.scale));
  }
  if (end - first == kAdjacent) {
    for (int p = 0; p < kAdjacent / kWide; ++p) write<kWide>(out + first + p * kWide, packs[p]);
  } else {
    for (int i = 0; i < kAdjacent; ++i)
      if (first + i < end) out[first + i] = packs[i / kWide].at[i % kWide];
  }
}

}  // namespace

void dequantize(Element element, const Quantized& in, void* out, Stream stream) {
  for_element(element, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    launch(unpack<T>, divided_up(in.elements, kThreads * kAdjacent), 0, stream, in, static_cast<T*>(out));
  });
}

}  // namespace automodel::ops::cuda
