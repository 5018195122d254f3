// Weights in 4 or 8 bits made dense: one thread per eight adjacent elements, whose codes it reads at once.
#include "ops/kernels/cuda/device.h"

namespace automodel::ops::cuda {
namespace {

constexpr int kAdjacent = 8;         // 16 bytes of bfloat16, made of 4 bytes of nf4 codes
constexpr std::int64_t kBlock = 64;  // elements of nf4 that share a scale

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

/// The piece that element `local` of the part belongs to: QuantizedLayout::each_piece, for one element. Index: an
/// unsigned type that holds every element's index in the whole tensor; 32 bits where they suffice, because a division
/// of 64 bits takes a hundred instructions.
template <class Index>
__device__ inline Piece piece_of(const Quantized& in, Index local) {
  const auto stretch = static_cast<Index>(in.ranges.begin[in.ranges.count]), in_block = static_cast<Index>(in.block);
  const Index repeat = local / stretch, within = local - repeat * stretch;
  int range = 0;
  while (within >= static_cast<Index>(in.ranges.begin[range + 1])) ++range;
  const Index at = repeat * static_cast<Index>(in.period) + static_cast<Index>(in.ranges.first[range]) + within -
                   static_cast<Index>(in.ranges.begin[range]);
  const Index block = at / in_block;
  const Index slot = in.aligned ? local / in_block : block - static_cast<Index>(in.ranges.first[0]) / in_block;
  const auto whole = [](Index index) { return static_cast<std::int64_t>(index); };
  return {whole(local) + (whole(block) + 1) * in.block - whole(at), scale_of(in, whole(block), whole(slot))};
}

/// `simple`: the part begins where the tensor does, without gaps, and its blocks have kBlock elements. Then a thread's
/// elements have one scale, found without divisions: the general case takes 2.5 times the instructions, by count.
template <class T, class Index, bool simple>
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
      if (local == piece.end) piece = piece_of(in, static_cast<Index>(local));
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
    const auto stretches = divided_up(in.elements, in.ranges.begin[in.ranges.count]);
    const bool simple =
        in.block == kBlock && in.aligned && stretches == 1 && in.ranges.count == 1 && in.ranges.first[0] == 0;
    if (simple)
      launch(unpack<T, std::uint32_t, true>, blocks, 0, stream, in, static_cast<T*>(out));
    else if (stretches * in.period <= std::numeric_limits<std::uint32_t>::max())
      launch(unpack<T, std::uint32_t, false>, blocks, 0, stream, in, static_cast<T*>(out));
    else
      launch(unpack<T, std::uint64_t, false>, blocks, 0, stream, in, static_cast<T*>(out));
  });
}

}  // namespace automodel::ops::cuda
