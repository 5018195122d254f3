// Bytes per second of the loops between matmuls, beside what memory gives to plain loops. For example
//
//   loop_bench [--megabytes 64] [--rounds 7]
//
// One thread, CPU time, the best of alternating rounds. A loop counts the bytes that it must read and write once; every
// array has the given size, so that none stays in a core's own caches.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <c10/util/BFloat16.h>

#include "base/text_table.h"
#include "ops/kernels/kernels.h"

namespace automodel {
namespace {

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Loop {
  std::string name;
  double bytes;
  std::function<void()> run;
  double best = 1e9;
};

constexpr std::int64_t kColumns = 2048;

/// Arrays of one type, and the loops over them.
template <class T>
class Arrays {
 public:
  explicit Arrays(std::int64_t bytes)
      : rows_(std::max<std::int64_t>(2, bytes / static_cast<std::int64_t>(sizeof(T)) / kColumns / 2 * 2)),
        arrays_(5, std::vector<T>(static_cast<std::size_t>(rows_ * kColumns))),
        weight_(kColumns, T(1)),
        sums_(kColumns),
        rstd_(static_cast<std::size_t>(rows_)),
        labels_(static_cast<std::size_t>(rows_), 7) {
    for (std::size_t a = 0; a < arrays_.size(); ++a)
      for (std::size_t i = 0; i < arrays_[a].size(); ++i)
        arrays_[a][i] = static_cast<T>(0.01F * static_cast<float>((i * 7 + a) % 101) - 0.5F);
  }
  T* at(std::size_t i) { return arrays_[i].data(); }
  /// Bytes of `count` arrays.
  double bytes(double count) const { return count * static_cast<double>(rows_ * kColumns) * sizeof(T); }

  void add_norm(std::vector<Loop>& loops, const std::string& type, const ops::NormKernels<T>& kernel) {
    loops.push_back({"norm and residual, " + type, bytes(4), [this, &kernel] {
                       kernel.forward(at(0), at(1), weight_.data(), at(2), at(3), rstd_.data(), rows_, kColumns, 1e-5,
                                      0);
                     }});
    loops.push_back({"their gradient, " + type, bytes(4), [this, &kernel] {
                       kernel.backward(at(0), at(1), at(2), weight_.data(), rstd_.data(), at(3), sums_.data(), rows_,
                                       kColumns, 0);
                     }});
  }
  void add_gate(std::vector<Loop>& loops, const std::string& type, const ops::GateKernels<T>& kernel) {
    // x has half as many rows as an array of its width would have.
    loops.push_back({"SwiGLU, " + type, bytes(1.5),
                     [this, &kernel] { kernel.forward(at(0), at(1), rows_ / 2, kColumns, ops::Gate::kSilu); }});
    loops.push_back({"its gradient, " + type, bytes(2.5),
                     [this, &kernel] { kernel.backward(at(1), at(0), at(2), rows_ / 2, kColumns, ops::Gate::kSilu); }});
  }
  void add_loss(std::vector<Loop>& loops, const std::string& type, const ops::CrossEntropyKernels<T>& kernel) {
    loops.push_back({"cross-entropy and gradient, " + type, bytes(2),
                     [this, &kernel] { kernel.run(at(4), labels_.data(), rows_, kColumns, -100, 1, true); }});
  }

 private:
  using C = typename ops::Compute<T>::type;
  std::int64_t rows_;
  std::vector<std::vector<T>> arrays_;
  std::vector<T> weight_;
  std::vector<C> sums_, rstd_;
  std::vector<std::int64_t> labels_;
};

void run(std::int64_t bytes, int rounds) {
  const auto& kernels = ops::kernels();
  Arrays<float> wide(bytes);
  Arrays<c10::BFloat16> low(bytes);
  const auto n = static_cast<std::int64_t>(wide.bytes(1) / sizeof(float));
  std::vector<Loop> loops;
  loops.push_back({"y = a x + y", wide.bytes(3), [&] {
                     const float* x = wide.at(0);
                     float* y = wide.at(1);
                     for (std::int64_t i = 0; i < n; ++i) y[i] = 0.5F * x[i] + y[i];
                   }});
  const ops::AdamStep step{.lr = 1e-4,
                           .beta1 = 0.9,
                           .beta2 = 0.95,
                           .eps = 1e-8,
                           .weight_decay = 0.1,
                           .correction1 = 0.1,
                           .correction2 = 0.1,
                           .gradient_scale = 1,
                           .decoupled = true,
                           .maximize = false};
  std::vector<float> square(static_cast<std::size_t>(n), 0.25F);
  loops.push_back({"AdamW", wide.bytes(7), [&] {
                     kernels.optimizer_float.adam(wide.at(0), wide.at(1), wide.at(2), square.data(), nullptr, n, step);
                   }});
  volatile double norm = 0;
  loops.push_back(
      {"gradient norm", wide.bytes(1), [&] { norm = kernels.optimizer_float.sum_of_squares(wide.at(1), n); }});
  wide.add_norm(loops, "float32", kernels.norm_float);
  low.add_norm(loops, "bfloat16", kernels.norm_bfloat16);
  wide.add_gate(loops, "float32", kernels.gate_float);
  low.add_gate(loops, "bfloat16", kernels.gate_bfloat16);
  wide.add_loss(loops, "float32", kernels.cross_entropy_float);
  low.add_loss(loops, "bfloat16", kernels.cross_entropy_bfloat16);
  for (int round = 0; round <= rounds; ++round)
    for (auto& loop : loops) {
      const auto begin = cpu_seconds();
      loop.run();
      if (round > 0) loop.best = std::min(loop.best, cpu_seconds() - begin);
    }
  const auto rate = [](const Loop& loop) { return loop.bytes / loop.best / 1e9; };
  TextTable table({"loop", "GB/s", "of memory %"});
  for (const auto& loop : loops)
    table.add({loop.name, fmt::format("{:.1f}", rate(loop)), fmt::format("{:.0f}", 100 * rate(loop) / rate(loops[0]))});
  fmt::print("{}, {} MB an array, one thread\n{}", kernels.instruction_set, bytes >> 20, table.text());
}

}  // namespace
}  // namespace automodel

int main(int count, char** arguments) {
  std::int64_t megabytes = 64;
  int rounds = 7;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string_view name = arguments[i];
    if (name == "--megabytes") megabytes = std::atoll(arguments[i + 1]);
    if (name == "--rounds") rounds = std::atoi(arguments[i + 1]);
  }
  automodel::run(megabytes << 20, rounds);
}
