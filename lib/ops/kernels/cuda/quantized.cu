// Weights in 4 or 8 bits made dense: one thread per eight adjacent elements, whose codes it reads at once.
#include "ops/kernels/cuda/device.h"

namespace automodel::ops::cuda {
namespace {

constexpr int kAdjacent = 8;  // 16 bytes of bfloat16, made of 4 bytes of nf4 codes

/// Consecutive elements of the part that share a scale. A range ends with a block, or with the part.
struct Piece {
  std::int64_t end;  ///< index in the part of the first element after them, or beyond the part's end
  float scale;
};

/// The scale of a block of the whole tensor, stored in `slot`.
__device__ inline float scale_of(const Quantized& in, std::int64_t block, std::int64_t slot) {
  float scale = 0;
  if (in.small_scales) {
    const auto* outer = reinterpret_cast<const float*>(in.bytes + in.outer_at);
    // Rounded twice, as bitsandbytes does: not contracted to a fused multiply-add.
    scale = __fadd_rn(__fmul_rn(in.dynamic[in.bytes[in.scales_at + slot]], outer[1 + block / kScaleBlock]), outer[0]);
  } else {
    scale = reinterpret_cast<const float*>(in.bytes + in.scales_at)[slot];
  }
  return in.bits == 8 ? scale * in.unit : scale;
}

/// The piece that element `local` of the part belongs to: QuantizedLayout::each_piece, for one element.
__device__ inline Piece piece_of(const Quantized& in, std::int64_t local) {
  const std::int64_t stretch = in.ranges.begin[in.ranges.count];
  const std::int64_t repeat = local / stretch, within = local - repeat * stretch;
  int range = 0;
  while (within >= in.ranges.begin[range + 1]) ++range;
  const std::int64_t at = repeat * in.period + in.ranges.first[range] + within - in.ranges.begin[range];
  const std::int64_t block = at / in.block;
  const std::int64_t slot = in.aligned ? local / in.block : block - in.ranges.first[0] / in.block;
  return {local + (block + 1) * in.block - at, scale_of(in, block, slot)};
}

/// `simple`: the part begins where the tensor does, without gaps, and its blocks have kBlock elements. Then a thread's
/// elements have one scale, found without a division.
template <class T, bool simple>
__global__ void unpack(Quantized in, T* out) {
  __shared__ float numbers[16];
  if (threadIdx.x < 16) numbers[threadIdx.x] = in.normal[threadIdx.x];
  __syncthreads();
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kAdjacent;
  const std::int64_t end = first + kAdjacent < in.elements ? first + kAdjacent : in.elements;
  Piece piece = {first, 0};
  if constexpr (simple)
    if (first < end) piece = {end, scale_of(in, first / kBlock, first / kBlock)};
  const bool whole = end - first == kAdjacent;
  Pack<std::uint8_t, 4> codes[kAdjacent / 4] = {};
  const std::int64_t code = first * in.bits / 8;
  for (int i = 0; i < kAdjacent; i += 4) {  // constant, so that codes are in registers
    if (i >= kAdjacent * in.bits / 8) break;
    if (whole)
      codes[i / 4] = read<4>(in.bytes + code + i);
    else
      for (int j = 0; j < 4; ++j)
        if (code + i + j < (end * in.bits + 7) / 8) codes[i / 4].at[j] = in.bytes[code + i + j];
  }
  constexpr int kWide = 16 / sizeof(T);
  Pack<T, kWide> packs[kAdjacent / kWide];
  for (int i = 0; i < kAdjacent; ++i) {
    const std::int64_t local = first + i;
    if (local >= end) break;
    if constexpr (!simple)
      if (local == piece.end) piece = piece_of(in, local);
    float number = 0;
    if (in.bits == 8) {
      number = static_cast<float>(static_cast<std::int8_t>(codes[i / 4].at[i % 4]));
    } else {
      const unsigned both = codes[0].at[i / 2];
      number = numbers[i % 2 == 0 ? both >> 4U : both & 15U];
    }
    packs[i / kWide].at[i % kWide] = narrow<T>(static_cast<Compute<T>>(number * piece.scale));
  }
  if (whole) {
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
    const auto blocks = divided_up(in.elements, kThreads * kAdjacent);
    const auto& ranges = in.ranges;
    const bool simple = in.block == kBlock && in.aligned && ranges.count == 1 && ranges.first[0] == 0 &&
                        in.elements <= ranges.begin[1];  // one repeat
    launch(simple ? unpack<T, true> : unpack<T, false>, blocks, 0, stream, in, static_cast<T*>(out));
  });
}

}  // namespace automodel::ops::cuda
