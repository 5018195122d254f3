// Bytes per second of our GPU kernels at the shapes of published models, and their share of what a copy on the device
// reaches. In a build with the preset cuda: the target kernel_bench. Or, with nvcc and nothing else:
//
//   nvcc -O3 -std=c++20 -arch=sm_90 --expt-relaxed-constexpr -I lib -o kernel_bench bench/kernel_bench.cu
//     lib/ops/kernels/cuda/*.cu
//   ./kernel_bench [TOKENS]        4,096 tokens by default
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include <cuda_runtime.h>

#include "ops/kernels/cuda/kernels.h"

using namespace automodel::ops;
using cuda::Element;

void cuda::started(int code) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(static_cast<cudaError_t>(code)));
  std::exit(1);
}

namespace {

/// Device memory filled with zeros.
void* memory(std::size_t bytes) {
  void* out = nullptr;
  cuda::started(cudaMalloc(&out, bytes));
  cuda::started(cudaMemset(out, 0, bytes));
  return out;
}

template <class T>
T* uploaded(const std::vector<T>& values) {
  void* out = memory(values.size() * sizeof(T));
  cuda::started(cudaMemcpy(out, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return static_cast<T*>(out);
}

double seconds_of(const std::function<void()>& run) {
  constexpr int kWarm = 3, kRuns = 20;
  cudaEvent_t begin, end;
  cuda::started(cudaEventCreate(&begin));
  cuda::started(cudaEventCreate(&end));
  for (int i = 0; i < kWarm; ++i) run();
  cuda::started(cudaEventRecord(begin));
  for (int i = 0; i < kRuns; ++i) run();
  cuda::started(cudaEventRecord(end));
  cuda::started(cudaEventSynchronize(end));
  float milliseconds = 0;
  cuda::started(cudaEventElapsedTime(&milliseconds, begin, end));
  return milliseconds / 1e3 / kRuns;
}

double copy_rate = 0;  ///< bytes per second, reads and writes counted

void report(const char* kernel, const char* shape, double bytes, const std::function<void()>& run) {
  const double seconds = seconds_of(run), rate = bytes / seconds;
  std::printf("| %-16s | %-34s | %8.1f | %6.2f | %4.0f %% |\n", kernel, shape, seconds * 1e6, rate / 1e12,
              100 * rate / copy_rate);
}

void norms(const char* shape, std::int64_t rows, std::int64_t columns, bool added) {
  const auto bytes = static_cast<std::size_t>(rows * columns) * 2;
  const cuda::NormShape size{rows, columns, false, 1e-5, 0};
  void *x = memory(bytes), *delta = memory(bytes), *sum = memory(bytes), *y = memory(bytes),
       *weight = memory(2 * columns), *rstd = memory(4 * rows), *partial = memory(4 * cuda::norm_parts(rows) * columns),
       *gradient = memory(4 * columns);
  const double wide = static_cast<double>(bytes);
  report("norm_forward", shape, (added ? 4 : 2) * wide, [&] {
    cuda::norm_forward(Element::kBFloat16, size,
                       {x, added ? delta : nullptr, weight, nullptr, added ? sum : nullptr, y, nullptr, rstd}, nullptr);
  });
  report("norm_backward", shape, (added ? 4 : 3) * wide, [&] {
    cuda::norm_backward(Element::kBFloat16, size,
                        {x, added ? delta : nullptr, sum, weight, nullptr, rstd, y, partial, gradient, 1}, nullptr);
  });
  for (void* each : {x, delta, sum, y, weight, rstd, partial, gradient}) cudaFree(each);
}

void ropes(const char* shape, std::int64_t rows, std::int64_t heads, std::int64_t width, std::int64_t stride) {
  void *x = memory(static_cast<std::size_t>(rows * stride) * 2),
       *angles = memory(static_cast<std::size_t>(rows * width) * 4);
  std::vector<std::int64_t> positions(static_cast<std::size_t>(rows));
  for (std::int64_t i = 0; i < rows; ++i) positions[static_cast<std::size_t>(i)] = i;
  auto* position = uploaded(positions);
  report("rope", shape, 4.0 * rows * heads * width, [&] {
    cuda::rope(Element::kBFloat16, {x, stride, width, rows, heads, width, angles, angles, position, 1, false}, nullptr);
  });
  for (void* each : {x, angles, static_cast<void*>(position)}) cudaFree(each);
}

void gates(const char* shape, std::int64_t rows, std::int64_t columns) {
  const auto bytes = static_cast<std::size_t>(rows * columns) * 2;
  void *x = memory(2 * bytes), *out = memory(bytes), *dx = memory(2 * bytes);
  report("gate_forward", shape, 3.0 * bytes,
         [&] { cuda::gate_forward(Element::kBFloat16, x, out, rows, columns, Gate::kSilu, nullptr); });
  report("gate_backward", shape, 5.0 * bytes,
         [&] { cuda::gate_backward(Element::kBFloat16, out, x, dx, rows, columns, Gate::kSilu, nullptr); });
  for (void* each : {x, out, dx}) cudaFree(each);
}

void losses(const char* shape, std::int64_t rows, std::int64_t columns) {
  void* logits = memory(static_cast<std::size_t>(rows * columns) * 2);
  auto* labels = uploaded(std::vector<std::int64_t>(static_cast<std::size_t>(rows), 7));
  auto* out = static_cast<double*>(memory(static_cast<std::size_t>(rows) * 8));
  report("cross_entropy", shape, 6.0 * rows * columns, [&] {
    cuda::cross_entropy(Element::kBFloat16, {logits, columns, rows, columns, 0, labels, 0}, out, -100, 1e-3, nullptr,
                        true, nullptr);
  });
  for (void* each : {logits, static_cast<void*>(labels), static_cast<void*>(out)}) cudaFree(each);
}

void optimizer(const char* shape, std::int64_t count) {
  const auto bytes = static_cast<std::size_t>(count) * 4;
  void *value = memory(bytes), *gradient = memory(bytes), *mean = memory(bytes), *square = memory(bytes),
       *copy = memory(bytes / 2);
  const std::vector<cuda::AdamPiece> pieces = {{value, gradient, mean, square, nullptr, copy, count, 1e-3, 0.1}};
  const AdamStep step{1e-3, 0.9, 0.95, 1e-8, 0.1, 0.1, 0.05, 1, true, false};
  report("adam", shape, 30.0 * count, [&] { cuda::adam(Element::kFloat, Element::kFloat, pieces, step, nullptr); });
  const std::vector<cuda::SquaresPiece> squares = {{gradient, count}};
  auto* partial = static_cast<double*>(memory(static_cast<std::size_t>(cuda::square_parts(squares)) * 8));
  auto* out = static_cast<double*>(memory(8));
  report("sum_of_squares", shape, 4.0 * count,
         [&] { cuda::sum_of_squares(Element::kFloat, squares, partial, out, nullptr); });
  for (void* each : {value, gradient, mean, square, copy, static_cast<void*>(partial), static_cast<void*>(out)})
    cudaFree(each);
}

void groups(const char* shape, std::int64_t experts, std::int64_t elements) {
  void *product = memory(static_cast<std::size_t>(experts * elements) * 2),
       *gradient = memory(static_cast<std::size_t>(experts * elements) * 4);
  std::vector<std::int32_t> ends;
  for (std::int64_t e = 0; e < experts; ++e) ends.push_back(static_cast<std::int32_t>(256 * (e + 1)));
  auto* end = uploaded(ends);
  for (const bool fresh : {false, true})
    report(fresh ? "add_groups, new" : "add_groups", shape, (fresh ? 6.0 : 10.0) * experts * elements, [&] {
      cuda::add_groups(Element::kFloat, {product, gradient, end, 0, experts, elements, elements, elements, fresh},
                       nullptr);
    });
  for (void* each : {product, gradient, static_cast<void*>(end)}) cudaFree(each);
}

void quantized(const char* shape, std::int64_t elements) {
  constexpr std::int64_t kBlock = 64;
  cuda::Quantized in{};
  in.elements = in.period = elements;
  in.block = kBlock;
  in.bits = 4;
  in.aligned = true;
  in.scales_at = elements / 2;
  in.ranges.count = 1;
  in.ranges.begin[1] = elements;
  void* bytes = memory(static_cast<std::size_t>(elements / 2 + elements / kBlock * 4));
  void* out = memory(static_cast<std::size_t>(elements) * 2);
  in.bytes = static_cast<const std::uint8_t*>(bytes);
  report("dequantize", shape, 2.5 * elements + 4.0 * elements / kBlock,
         [&] { cuda::dequantize(Element::kBFloat16, in, out, nullptr); });
  for (void* each : {bytes, out}) cudaFree(each);
}

void float8(const char* shape, std::int64_t rows, std::int64_t columns) {
  const auto count = static_cast<std::size_t>(rows * columns);
  void *x = memory(2 * count), *out = memory(count), *partial = memory(1 << 24), *factors = memory(1 << 20);
  for (const bool transposed : {false, true})
    report(transposed ? "float8, transp." : "float8", shape, 5.0 * rows * columns, [&] {
      cuda::float8_cast(
          Element::kBFloat16,
          {x, rows, columns, columns, ScaleOf::kMatrix, false, false, transposed, static_cast<float*>(partial),
           static_cast<float*>(factors), static_cast<float*>(factors) + columns, static_cast<std::uint8_t*>(out)},
          nullptr);
    });
  for (void* each : {x, out, partial, factors}) cudaFree(each);
}

void routing(const char* shape, std::int64_t tokens, std::int64_t experts, std::int64_t k) {
  std::vector<float> scores(static_cast<std::size_t>(tokens * experts));
  for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = static_cast<float>((i * 2654435761U) % 1000003U);
  std::vector<std::int64_t> chosen(static_cast<std::size_t>(tokens * k));
  for (std::size_t i = 0; i < chosen.size(); ++i)
    chosen[i] = static_cast<std::int64_t>((i * 2654435761U) % static_cast<std::uint64_t>(experts));
  auto* score = uploaded(scores);
  auto *choice = uploaded(chosen), *from = uploaded(chosen), *place = uploaded(chosen);
  auto* counts = uploaded(std::vector<std::int64_t>(static_cast<std::size_t>(experts)));
  report("top_k", shape, 4.0 * tokens * experts + 8.0 * tokens * k,
         [&] { cuda::top_k(Element::kFloat, score, tokens, experts, k, choice, nullptr); });
  report("sort_choices", shape, 24.0 * tokens * k,
         [&] { cuda::sort_choices(choice, tokens * k, k, experts, from, place, counts, nullptr); });
  for (void* each : {static_cast<void*>(score), static_cast<void*>(choice), static_cast<void*>(from),
                     static_cast<void*>(place), static_cast<void*>(counts)})
    cudaFree(each);
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t tokens = argc > 1 ? std::atoll(argv[1]) : 4096;
  if (tokens < 1) {
    std::fprintf(stderr, "usage: kernel_bench [TOKENS], at least 1\n");
    return 2;
  }
  cudaDeviceProp device;
  cuda::started(cudaGetDeviceProperties(&device, 0));
  constexpr std::size_t kCopied = std::size_t{1} << 31;
  void *from = memory(kCopied), *to = memory(kCopied);
  copy_rate = 2.0 * kCopied / seconds_of([&] { cudaMemcpyAsync(to, from, kCopied, cudaMemcpyDeviceToDevice); });
  cudaFree(from);
  cudaFree(to);
  std::printf("%s, %lld tokens, bfloat16; a copy reads and writes %.2f TB/s\n\n", device.name,
              static_cast<long long>(tokens), copy_rate / 1e12);
  std::printf("| kernel | shape | us | TB/s | of a copy |\n| --- | --- | --- | --- | --- |\n");
  norms("hidden 2048", tokens, 2048, true);
  norms("hidden 4096", tokens, 4096, true);
  norms("hidden 8192", tokens, 8192, true);
  norms("32 heads of 128 (Qwen3)", 32 * tokens, 128, false);
  norms("4 heads of 128 (Qwen3)", 4 * tokens, 128, false);
  norms("8 heads of 256 (Gemma 3)", 8 * tokens, 256, false);
  ropes("32 heads of 64, of 3,072", tokens, 32, 64, 3072);
  ropes("32 heads of 128, of 6,144", tokens, 32, 128, 6144);
  ropes("8 heads of 128, of 6,144", tokens, 8, 128, 6144);
  gates("8192", tokens, 8192);
  gates("14336", tokens, 14336);
  losses("2,048 rows, vocabulary 128,256", 2048, 128256);
  optimizer("256 M weights", std::int64_t{1} << 28);
  groups("128 experts, 2048 x 1536", 128, 2048 * 1536);
  routing("128 experts, 8 each", tokens, 128, 8);
  quantized("nf4, 4096 x 14336", std::int64_t{4096} * 14336);
  float8("8192 columns", tokens, 8192);
  cuda::started(cudaDeviceSynchronize());
  return 0;
}
