// The CPU kernels on several threads.
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>

#include "ops/activation.h"
#include "ops/attention.h"
#include "ops/cross_entropy.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "torch_catch.h"

namespace automodel::ops {
namespace {

constexpr std::int64_t kTokens = 192, kWidth = 256, kVocabulary = 320;

Parameter parameter(std::vector<std::int64_t> shape, at::ScalarType type) {
  Parameter out{.name = "p", .shape = shape, .value = (at::randn(shape) * 0.1).to(type)};
  out.grad = at::randn(shape);
  return out;
}

/// A decoder layer, head and loss on `threads` threads: the loss, the input's gradient and those of the weights.
std::vector<at::Tensor> step(int threads, at::ScalarType type) {
  at::set_num_threads(threads);
  at::manual_seed(3);
  auto norm = parameter({kWidth}, type), qkv = parameter({2 * kWidth, kWidth}, type);
  auto out = parameter({kWidth, kWidth}, type), up = parameter({4 * kWidth, kWidth}, type);
  auto down = parameter({kWidth, 2 * kWidth}, type), head = parameter({kVocabulary, kWidth}, type);
  const auto x = at::randn({2, kTokens, kWidth}).to(type).requires_grad_(true);
  const auto angles = at::randn({kTokens, 16});
  const JoinedHeads heads{
      8, 4, 32, angles.cos(), angles.sin(), false, at::arange(kTokens, at::kLong).expand({2, kTokens}).contiguous()};
  const auto a = rope_attention(linear(rms_norm(x, norm, 1e-6), {&qkv}), heads, {.scale = 0.2});
  const auto h = x + linear(a, {&out});
  const auto y = h + linear(gated(linear(rms_norm(h, norm, 1e-6), {&up}), Gate::kSilu), {&down});
  const auto labels = at::arange(2 * kTokens, at::kLong).remainder(kVocabulary).view({2, kTokens});
  const auto loss = cross_entropy(linear(y, {&head}), labels, 0.01);
  loss.backward();
  std::vector<at::Tensor> results = {loss.detach(), x.grad()};
  for (const auto* each : {&norm, &qkv, &out, &up, &down, &head}) results.push_back(each->grad);
  return results;
}

/// Norms, gate and loss alone: kernels of this program on every processor.
std::vector<at::Tensor> step_without_matmuls(int threads, at::ScalarType type) {
  at::set_num_threads(threads);
  at::manual_seed(4);
  auto norm = parameter({kWidth}, type), second = parameter({kWidth}, type);
  const auto x = at::randn({2, kTokens, kWidth}).to(type).requires_grad_(true);
  const auto delta = at::randn({2, kTokens, kWidth}).to(type).requires_grad_(true);
  const auto labels = at::arange(2 * kTokens, at::kLong).remainder(kWidth / 2).view({2, kTokens});
  const auto [sum, y] = add_rms_norm(rms_norm(x, norm, 1e-6), delta, second, 1e-6);
  const auto loss = cross_entropy(gated(sum + y, Gate::kSilu), labels, 0.01);
  loss.backward();
  return {loss.detach(), sum.detach(), y.detach(), x.grad(), delta.grad(), norm.grad, second.grad};
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  const auto x = a.to(at::kDouble), y = b.to(at::kDouble);
  return ((x - y).abs().max() / x.abs().max()).item<double>();
}

using Step = std::vector<at::Tensor> (*)(int threads, at::ScalarType type);
using Same = bool (*)(const at::Tensor& one, const at::Tensor& several, at::ScalarType type);

void compare_threads(Step run, Same same) {
  const int before = at::get_num_threads();
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const auto one = run(1, type);
    for (const int threads : {2, 3}) {
      const auto several = run(threads, type);
      for (std::size_t i = 0; i < one.size(); ++i) {
        INFO(type << ", " << threads << " threads, result " << i << ", difference " << difference(one[i], several[i]));
        CHECK(same(one[i], several[i], type));
      }
    }
  }
  at::set_num_threads(before);
}

}  // namespace

TEST_CASE("sums over rows have the same bits on one thread and on several", "[ops]") {
  compare_threads(step_without_matmuls,
                  [](const at::Tensor& one, const at::Tensor& several, at::ScalarType) { return one.equal(several); });
}

TEST_CASE("a layer on several threads computes what it computes on one", "[ops]") {
  // A library's matmul may add in another order; this program's own does not.
  compare_threads(step, [](const at::Tensor& one, const at::Tensor& several, at::ScalarType type) {
    return difference(one, several) < (type == at::kFloat ? 1e-5 : 3e-2);
  });
}

}  // namespace automodel::ops
