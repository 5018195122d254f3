// Dropout whose mask is a function of seed, step, token and feature: the random numbers of base/random.h, generated
// where they are used. Each thread handles four columns of a row, which fall into one or two blocks of Philox (Salmon
// et al. 2011).
#include "ops/kernels/cuda/device.h"

namespace automodel::ops::cuda {
namespace {

constexpr int kColumns = 4;  // per thread

struct Words {
  std::uint32_t word[4];
};

__device__ Words philox(std::uint64_t counter, std::uint64_t stream, std::uint64_t seed) {
  Words c = {{static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32),
              static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)}};
  std::uint32_t key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53U} * c.word[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57U} * c.word[2];
    c = {{static_cast<std::uint32_t>(product1 >> 32) ^ c.word[1] ^ key0, static_cast<std::uint32_t>(product1),
          static_cast<std::uint32_t>(product0 >> 32) ^ c.word[3] ^ key1, static_cast<std::uint32_t>(product0)}};
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  return c;
}

/// The word at `place`. An array that is indexed at run time would be in local memory.
__device__ std::uint32_t word_of(const Words& words, unsigned place) {
  const std::uint32_t low = place % 2 == 0 ? words.word[0] : words.word[1];
  const std::uint32_t high = place % 2 == 0 ? words.word[2] : words.word[3];
  return place < 2 ? low : high;
}

template <class T>
struct Rows {
  const T* x;
  T* out;
  std::int64_t rows, columns, width;
  const std::int64_t* tokens;
  std::uint64_t seed, stream;
  float share;
  Compute<T> kept;
  int runs;
  std::int64_t first[FeatureRuns::kMost], begin[FeatureRuns::kMost + 1];
};

template <class T>
__global__ void drop(Rows<T> in) {
  const std::int64_t each = (in.columns + kColumns - 1) / kColumns;
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= in.rows * each) return;
  const std::int64_t row = index / each, column = index % each * kColumns;
  const auto start = static_cast<std::uint64_t>(in.tokens[row] * in.width);
  std::uint64_t known = ~std::uint64_t{0};  // the Philox block that `words` holds
  Words words = {};
  int run = 0;
  for (std::int64_t c = column; c < column + kColumns && c < in.columns; ++c) {
    while (run < in.runs && c >= in.begin[run + 1]) ++run;
    Compute<T> factor = 0;
    if (run < in.runs) {
      const std::uint64_t element = start + static_cast<std::uint64_t>(in.first[run] + c - in.begin[run]);
      if (element / 4 != known) {
        known = element / 4;
        words = philox(known, in.stream, in.seed);
      }
      const float uniform =
          static_cast<float>(word_of(words, static_cast<unsigned>(element % 4)) >> 8) * 5.9604644775390625e-8F;
      factor = uniform >= in.share ? in.kept : Compute<T>(0);
    }
    const std::int64_t at = row * in.columns + c;
    in.out[at] = narrow<T>(widen(in.x[at]) * factor);
  }
}

/// The scale of kept elements as in the CPU's mask: computed in float, then rounded to the element type.
template <class T>
Compute<T> kept_factor(double share) {
  const auto kept = static_cast<float>(1 / (1 - share));
  if constexpr (std::is_same_v<T, __nv_bfloat16>) return __bfloat162float(__float2bfloat16(kept));
  return kept;
}

}  // namespace

void dropout(Element element, const Dropout& dropout, Stream stream) {
  for_element(element, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    Rows<T> rows = {.x = static_cast<const T*>(dropout.x),
                    .out = static_cast<T*>(dropout.out),
                    .rows = dropout.rows,
                    .columns = dropout.columns,
                    .width = dropout.width,
                    .tokens = dropout.tokens,
                    .seed = dropout.seed,
                    .stream = dropout.stream,
                    .share = static_cast<float>(dropout.share),
                    .kept = kept_factor<T>(dropout.share),
                    .runs = dropout.features.count,
                    .first = {},
                    .begin = {}};
    for (int i = 0; i < FeatureRuns::kMost; ++i) rows.first[i] = dropout.features.first[static_cast<std::size_t>(i)];
    for (int i = 0; i <= FeatureRuns::kMost; ++i) rows.begin[i] = dropout.features.begin[static_cast<std::size_t>(i)];
    launch(drop<T>, divided_up(dropout.rows * divided_up(dropout.columns, kColumns), kThreads), 0, stream, rows);
  });
}

}  // namespace automodel::ops::cuda
