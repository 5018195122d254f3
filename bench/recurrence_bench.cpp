// Time of the recurrent operations at the sizes of published layers, one sequence at a time. For example
//
//   OMP_NUM_THREADS=2 recurrence_bench [--tokens 2048] [--chunk 64] [--dtype float32] [--clock cpu]
//
// One row per operation: milliseconds of the forward pass and of forward plus backward (the best of several), the cost
// of the same recurrence token by token, and that of ATen's operations where a kernel of this project replaces them.
#include <algorithm>
#include <chrono>
#include <ctime>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>

#include "base/text_table.h"
#include "ops/decayed_scan.h"
#include "ops/delta_rule.h"
#include "ops/gated_norm.h"
#include "ops/graph.h"
#include "ops/short_conv.h"

namespace automodel {
namespace {

bool cpu_clock = false;

double now() {
  if (cpu_clock) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double best_of(int times, const std::function<void()>& run) {
  double best = 1e9;
  for (int i = 0; i < times; ++i) {
    const auto begin = now();
    run();
    best = std::min(best, now() - begin);
  }
  return best;
}

struct Bench {
  std::int64_t tokens, chunk;
  at::ScalarType type;
  TextTable table = TextTable({"operation", "forward ms", "with backward ms", "token by token ms", "ATen ms"});

  at::Tensor random(const std::vector<std::int64_t>& shape) const { return ops::leaf(at::randn(shape, type) * 0.5); }

  void row(const std::string& name, const std::function<at::Tensor()>& operation,
           const std::function<void()>& step = {}, const std::function<at::Tensor()>& plain = {}) {
    const auto both = [](const std::function<at::Tensor()>& run) {
      return best_of(5, [&] {
        const auto y = run();
        ops::run_backward(ops::Origin(y), y.detach());
      });
    };
    const double forward = best_of(5, [&] {
      const ops::NoGraph guard;
      operation();
    });
    table.add({name, fmt::format("{:.1f}", forward * 1e3), fmt::format("{:.1f}", both(operation) * 1e3),
               step ? fmt::format("{:.1f}", best_of(2, step) * 1e3) : "",
               plain ? fmt::format("{:.1f}", both(plain) * 1e3) : ""});
  }

  void scan(const std::string& name, std::int64_t heads, std::int64_t groups, std::int64_t width, std::int64_t value) {
    const auto q = random({1, tokens, groups, width}), k = random({1, tokens, groups, width}),
               v = random({1, tokens, heads, value});
    const auto decay = ops::leaf(-at::rand({1, tokens, heads}, at::kFloat));
    row(
        name,
        [&] {
          return ops::decayed_scan({q, k, v, decay, {}}, {.chunk = chunk});
        },
        [&] {
          const ops::NoGraph guard;
          auto state = at::zeros({heads, width, value}, at::kFloat);
          for (std::int64_t t = 0; t < tokens; ++t) {
            state.mul_(decay[0][t].exp().view({heads, 1, 1}));
            const auto key = k[0][t].repeat_interleave(heads / groups, 0),
                       query = q[0][t].repeat_interleave(heads / groups, 0);
            state.addcmul_(key.unsqueeze(2), v[0][t].unsqueeze(1));
            (query.unsqueeze(1).matmul(state)).squeeze(1);
          }
        });
  }

  void delta(const std::string& name, std::int64_t heads, std::int64_t groups, std::int64_t width, bool channels) {
    const auto q = random({1, tokens, groups, width}), k = random({1, tokens, groups, width}),
               v = random({1, tokens, heads, width});
    const auto decay = ops::leaf(channels ? -at::rand({1, tokens, heads, width}, at::kFloat)
                                          : -at::rand({1, tokens, heads}, at::kFloat));
    const auto rate = ops::leaf(at::rand({1, tokens, heads}, at::kFloat));
    row(name, [&] { return ops::delta_rule({q, k, v, decay, rate}, 1e-6, {.chunk = chunk}); });
  }

  void conv(std::int64_t channels) {
    ops::Parameter weight{.name = "weight", .shape = {channels, 1, 4}, .value = at::randn({channels, 1, 4}, type)};
    weight.grad = at::zeros({channels, 1, 4}, type);
    const auto x = random({1, tokens, channels});
    row(
        fmt::format("short convolution, {} channels", channels),
        [&] { return ops::short_conv(x, {.weights = {{&weight}}}, {}); }, {},
        [&] {
          const auto taps = ops::leaf(weight.value);
          at::Tensor sum;
          for (std::int64_t back = 0; back < 4; ++back) {
            const auto part = at::constant_pad_nd(x.narrow(1, 0, tokens - back), {0, 0, back, 0}) *
                              taps.select(1, 0).select(1, 3 - back);
            sum = sum.defined() ? sum + part : part;
          }
          return at::silu(sum);
        });
  }

  void norm(std::int64_t groups, std::int64_t width) {
    ops::Parameter weight{.name = "weight", .shape = {width}, .value = at::randn({width}, type)};
    weight.grad = at::zeros({width}, type);
    const auto x = random({1, tokens, groups, width}), gate = random({1, tokens, groups, width});
    row(fmt::format("gated norm, {} x {}", groups, width),
        [&] { return ops::gated_norm(x, gate, {.weight = {&weight}}); });
  }
};

void run(int argc, char** argv) {
  std::map<std::string, std::string> given = {
      {"--tokens", "2048"}, {"--chunk", "64"}, {"--dtype", "float32"}, {"--clock", ""}};
  for (int i = 1; i + 1 < argc; i += 2) given[argv[i]] = argv[i + 1];
  cpu_clock = given["--clock"] == "cpu";  // CPU time of all threads, for a machine that is not idle
  Bench bench{std::stol(given["--tokens"]), std::stol(given["--chunk"]),
              given["--dtype"] == "bfloat16" ? at::kBFloat16 : at::kFloat};
  bench.scan("Mamba-2, 64 heads of 64 in 8 groups, state 128", 64, 8, 128, 64);
  bench.scan("lightning, 16 heads of 128", 16, 16, 128, 128);
  bench.delta("gated delta, 32 heads of 128, 16 key heads", 32, 16, 128, false);
  bench.delta("delta with a decay a channel, 16 heads of 128", 16, 16, 128, true);
  bench.conv(8192);
  bench.norm(32, 128);
  fmt::print("{}", bench.table.text());
}

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  automodel::run(argc, argv);
}
