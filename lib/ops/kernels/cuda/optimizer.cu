// Adam and sums of squares over many tensors per launch: the table of pieces is passed as a kernel argument.
#include <algorithm>
#include <cmath>

#include "ops/kernels/cuda/device.h"

namespace automodel::ops::cuda {
namespace {

constexpr int kPieces = 24;                  // per launch: kernel arguments are limited to 4 KiB
constexpr std::int64_t kPerBlock = 1 << 14;  // elements per block in Adam
constexpr std::int64_t kSquaresPerBlock = 1 << 16;

/// Pieces, and the first block of each; the blocks of a piece are consecutive.
template <class Piece>
struct Table {
  Piece piece[kPieces];
  std::int64_t first_block[kPieces + 1];
  int count;
};

template <class Piece>
__device__ int piece_of_block(const Table<Piece>& table) {
  int piece = 0;
  while (static_cast<std::int64_t>(blockIdx.x) >= table.first_block[piece + 1]) ++piece;
  return piece;
}

struct Rates {
  double beta1, beta2, eps, correction1, correction2, scale;
  bool decoupled;
};

template <class T, class G, int N>
__device__ void adam_elements(const AdamPiece& piece, const Rates& rates, std::int64_t begin, std::int64_t end) {
  const T beta1 = static_cast<T>(rates.beta1), beta2 = static_cast<T>(rates.beta2);
  const T rest1 = static_cast<T>(1 - rates.beta1), rest2 = static_cast<T>(1 - rates.beta2);
  const T scale = static_cast<T>(rates.scale);
  const T shrink = static_cast<T>(rates.decoupled ? 1 - piece.lr * piece.weight_decay : 1);
  const T penalty = static_cast<T>(rates.decoupled ? 0 : piece.weight_decay);
  const T rate = static_cast<T>(piece.lr / rates.correction1);
  const T root = static_cast<T>(1 / sqrt(rates.correction2));
  const T eps = static_cast<T>(rates.eps);
  T* values = static_cast<T*>(piece.value);
  T* means = static_cast<T*>(piece.mean);
  T* squares = static_cast<T*>(piece.square);
  T* largest = static_cast<T*>(piece.max_square);
  auto* copy = static_cast<__nv_bfloat16*>(piece.copy);
  const G* gradients = static_cast<const G*>(piece.gradient);
  for (std::int64_t at = begin + threadIdx.x * N; at < end; at += kThreads * N) {
    auto value = read<N>(values + at), mean = read<N>(means + at), square = read<N>(squares + at);
    const auto gradient = read<N>(gradients + at);
    Pack<T, N> bound = square;
    if (largest != nullptr) bound = read<N>(largest + at);
    Pack<__nv_bfloat16, N> rounded;
    for (int i = 0; i < N; ++i) {
      const T g = static_cast<T>(widen(gradient.at[i])) * scale + penalty * value.at[i];
      mean.at[i] = beta1 * mean.at[i] + rest1 * g;
      square.at[i] = beta2 * square.at[i] + rest2 * g * g;
      if (largest == nullptr || square.at[i] > bound.at[i]) bound.at[i] = square.at[i];
      value.at[i] = value.at[i] * shrink - rate * mean.at[i] / (sqrt(bound.at[i]) * root + eps);
      rounded.at[i] = __float2bfloat16(static_cast<float>(value.at[i]));
    }
    write<N>(values + at, value);
    write<N>(means + at, mean);
    write<N>(squares + at, square);
    if (largest != nullptr) write<N>(largest + at, bound);
    if (copy != nullptr) write<N>(copy + at, rounded);
  }
}

__device__ inline bool aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 32 == 0;
}

template <class T, class G>
__global__ void adam_pieces(Table<AdamPiece> table, Rates rates) {
  const int index = piece_of_block(table);
  const AdamPiece& piece = table.piece[index];
  const std::int64_t begin = (blockIdx.x - table.first_block[index]) * kPerBlock;
  const std::int64_t end = begin + kPerBlock < piece.count ? begin + kPerBlock : piece.count;
  const bool whole = aligned(piece.value) && aligned(piece.gradient) && aligned(piece.mean) && aligned(piece.square) &&
                     aligned(piece.max_square) && aligned(piece.copy);
  const std::int64_t packed = whole ? begin + (end - begin) / 4 * 4 : begin;  // the rest goes element by element
  adam_elements<T, G, 4>(piece, rates, begin, packed);
  adam_elements<T, G, 1>(piece, rates, packed, end);
}

template <class T>
__global__ void squares_of_pieces(Table<SquaresPiece> table, double* partial) {
  using C = Compute<T>;
  constexpr int kWide = 16 / sizeof(T);
  const int index = piece_of_block(table);
  const SquaresPiece& piece = table.piece[index];
  const T* x = static_cast<const T*>(piece.x);
  const std::int64_t begin = (blockIdx.x - table.first_block[index]) * kSquaresPerBlock;
  const std::int64_t end = begin + kSquaresPerBlock < piece.count ? begin + kSquaresPerBlock : piece.count;
  const std::int64_t packed = aligned(x) ? begin + (end - begin) / kWide * kWide : begin;
  C sum = 0;
  for (std::int64_t at = begin + threadIdx.x * kWide; at < packed; at += kThreads * kWide) {
    const auto values = read<kWide>(x + at);
    for (int i = 0; i < kWide; ++i) sum += widen(values.at[i]) * widen(values.at[i]);
  }
  for (std::int64_t at = packed + threadIdx.x; at < end; at += kThreads) sum += widen(x[at]) * widen(x[at]);
  const double total = block_sum(static_cast<double>(sum));
  if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

__global__ void sum_partials(const double* partial, std::int64_t count, double* out) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) sum += partial[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *out = sum;
}

/// Calls run(table, blocks) for as many tables as it takes to hold all pieces.
template <class Piece, class Run>
void for_tables(std::span<const Piece> pieces, std::int64_t per_block, const Run& run) {
  for (std::size_t done = 0; done < pieces.size();) {
    Table<Piece> table = {};
    while (done < pieces.size() && table.count < kPieces) {
      table.piece[table.count] = pieces[done];
      table.first_block[table.count + 1] = table.first_block[table.count] + divided_up(pieces[done].count, per_block);
      ++table.count;
      ++done;
    }
    run(table, table.first_block[table.count]);
  }
}

}  // namespace

void adam(Element element, Element gradient, std::span<const AdamPiece> pieces, const AdamStep& step, Stream stream) {
  const Rates rates{.beta1 = step.beta1,
                    .beta2 = step.beta2,
                    .eps = step.eps,
                    .correction1 = step.correction1,
                    .correction2 = step.correction2,
                    .scale = step.maximize ? -step.gradient_scale : step.gradient_scale,
                    .decoupled = step.decoupled};
  for_tables(pieces, kPerBlock, [&](const Table<AdamPiece>& table, std::int64_t blocks) {
    for_element(gradient, [&](auto* tag) {
      using G = std::remove_pointer_t<decltype(tag)>;
      launch(element == Element::kDouble ? adam_pieces<double, G> : adam_pieces<float, G>, blocks, 0, stream, table,
             rates);
    });
  });
}

std::int64_t square_parts(std::span<const SquaresPiece> pieces) {
  std::int64_t blocks = 0;
  for (const auto& each : pieces) blocks += divided_up(each.count, kSquaresPerBlock);
  return blocks;
}

void sum_of_squares(Element element, std::span<const SquaresPiece> pieces, double* partial, double* out,
                    Stream stream) {
  std::int64_t done = 0;
  for_tables(pieces, kSquaresPerBlock, [&](const Table<SquaresPiece>& table, std::int64_t blocks) {
    for_element(element, [&](auto* tag) {
      using T = std::remove_pointer_t<decltype(tag)>;
      launch(squares_of_pieces<T>, blocks, 0, stream, table, partial + done);
    });
    done += blocks;
  });
  launch(sum_partials, 1, 0, stream, static_cast<const double*>(partial), done, out);
}

}  // namespace automodel::ops::cuda
