// Expert matmuls whose row counts are known only on the device, against those with row counts on the host and against
// float64: outputs and all gradients in bfloat16, with odd row counts and groups without rows.
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_grouped_mm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "ops/against_autograd.h"
#include "ops/cuda/emulated_groups.h"
#include "ops/grouped_linear.h"

namespace automodel::ops {
namespace {

using Counts = std::vector<std::int64_t>;
constexpr std::int64_t kIn = 24, kOut = 16;
const std::vector<Counts> kCounts = {{5, 0, 1, 7, 0}, {0, 0, 0, 0, 13}, {3, 3, 3, 3, 1}, {0, 9, 0, 0, 0}};

at::Tensor bfloat(const std::vector<std::int64_t>& shape, double scale = 1) {
  return (at::randn(shape) * scale).to(at::kBFloat16);
}

/// Expert weights as in a rank's storage: one buffer, with other data between the groups, and a float32 gradient buffer
/// of the same layout.
struct Storage {
  std::vector<std::unique_ptr<Parameter>> parameters = {};
  GroupedLinear layer = {};
  at::Tensor values = {}, grads = {};

  Parameter& add(const std::vector<std::int64_t>& shape, std::int64_t first) {
    auto& p = *parameters.emplace_back(std::make_unique<Parameter>());
    p.name = "p" + std::to_string(parameters.size());
    p.shape = shape;
    p.value = values.narrow(0, first, p.numel()).view(shape);
    p.grad = grads.narrow(0, first, p.numel()).view(shape);
    return p;
  }
  void make(std::int64_t elements) {
    values = bfloat({elements}, 0.3);
    grads = at::full({elements}, std::numeric_limits<float>::quiet_NaN());  // a fresh gradient must not be read
  }
  void restart() {
    for (auto& p : parameters) p->fresh = true;
    grads.fill_(std::numeric_limits<float>::quiet_NaN());
  }
};

enum class Layout { kJoined, kApart, kFarApart, kStacked };
const std::vector<Layout> kLayouts = {Layout::kJoined, Layout::kApart, Layout::kFarApart, Layout::kStacked};

/// Two matrices per group, adjacent or with a third between them, or one stacked matrix for all groups.
Storage stored(Layout layout, std::int64_t groups) {
  Storage out;
  const std::int64_t each = kOut / 2 * kIn, gap = layout == Layout::kFarApart ? 40 : 0;
  if (layout == Layout::kStacked) {
    out.make(groups * kIn * kOut + groups * kOut);
    out.layer.stacked = &out.add({groups, kIn, kOut}, 0);
    out.layer.bias = &out.add({groups, kOut}, groups * kIn * kOut);
    return out;
  }
  const auto distance = 3 * each + 8 + gap;
  out.make(groups * distance);
  const auto second = layout == Layout::kJoined ? each : 2 * each + gap;
  for (std::int64_t g = 0; g < groups; ++g)
    out.layer.each.push_back({.weights = {&out.add({kOut / 2, kIn}, g * distance + 8),
                                          &out.add({kOut / 2, kIn}, g * distance + 8 + second)}});
  return out;
}

struct Results {
  at::Tensor y = {}, dx = {}, dw = {};
};

/// Runs two microbatches through the layer. `queued`: weight gradients are deferred.
Results run(Storage& storage, const GroupRows& rows, const at::Tensor& x, const at::Tensor& dy, bool queued) {
  storage.restart();
  Results out;
  WeightGradients queue;
  for (int microbatch = 0; microbatch < 2; ++microbatch) {
    const auto in = leaf(microbatch == 0 ? x : x.neg() * 0.5);
    out.y = grouped_linear(in, storage.layer, rows);
    {
      std::unique_ptr<WeightGradients::Scope> scope;
      if (queued) scope = std::make_unique<WeightGradients::Scope>(&queue);
      run_backward(Origin(out.y), dy);
    }
    if (queued) {
      CHECK_FALSE(queue.empty());
      queue.drain();
    }
    out.y = out.y.detach();
    out.dx = in.grad();
  }
  std::vector<at::Tensor> all;
  for (const auto& p : storage.parameters)  // a gradient that nothing was added to counts as zero
    all.push_back((p->fresh ? at::zeros(p->shape) : p->grad.to(at::kFloat)).reshape({-1}));
  out.dw = at::cat(all);
  return out;
}

/// The same in float64 with plain matmuls.
Results exact(const Storage& storage, const Counts& counts, const at::Tensor& x, const at::Tensor& dy) {
  Results out;
  const auto& layer = storage.layer;
  std::vector<at::Tensor> y, dx, dw, db;
  std::int64_t first = 0;
  const auto weight = [&](std::int64_t g) {
    if (layer.stacked != nullptr) return layer.stacked->value.select(0, g).to(at::kDouble).t();
    const auto& parts = layer.each[static_cast<std::size_t>(g)].weights;
    return at::cat({parts[0]->value, parts[1]->value}, 0).to(at::kDouble);
  };
  const auto groups = static_cast<std::int64_t>(counts.size());
  for (std::int64_t g = 0; g < groups; first += counts[static_cast<std::size_t>(g++)]) {
    const auto count = counts[static_cast<std::size_t>(g)];
    const auto in = x.narrow(0, first, count).to(at::kDouble), gradient = dy.narrow(0, first, count).to(at::kDouble);
    const auto last = in * -0.5;  // the second microbatch's
    auto result = at::matmul(last, weight(g).t());
    if (layer.bias != nullptr) result = result + layer.bias->value.select(0, g).to(at::kDouble);
    y.push_back(result);
    dx.push_back(at::matmul(gradient, weight(g)));
    const auto both = at::matmul(gradient.t(), in + last);
    dw.push_back(layer.stacked != nullptr ? both.t().reshape({-1}) : both.reshape({-1}));
    db.push_back(gradient.sum(0) * 2);
  }
  if (layer.bias != nullptr) dw.insert(dw.end(), db.begin(), db.end());
  out.y = at::cat(y);
  out.dx = at::cat(dx);
  out.dw = at::cat(dw);
  return out;
}

/// The largest error from rounding outputs and each microbatch's gradients to bfloat16, relative to the largest value.
constexpr double kRounded = 1.0 / 128;

}  // namespace

TEST_CASE("expert matmuls with row counts on the device equal those with row counts on the host", "[device]") {
  for (const auto layout : kLayouts)
    for (const auto& counts : kCounts)
      for (const bool queued : {false, true}) {
        const auto groups = static_cast<std::int64_t>(counts.size());
        const auto n = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
        INFO("layout " << static_cast<int>(layout) << ", queued " << queued << ", last group " << counts.back());
        auto storage = stored(layout, groups);
        REQUIRE_FALSE(needs_counts(storage.layer));
        const auto x = bfloat({n, kIn}), dy = bfloat({n, kOut});
        const auto before = grouped_calls();
        const auto device = run(storage, rows_on_device(at::tensor(counts)), x, dy, queued);
        const int products = layout == Layout::kApart || layout == Layout::kFarApart ? 2 : 1;
        const int of_bias = storage.layer.bias != nullptr ? 1 : 0;
        CHECK(grouped_calls() - before == 2 * (2 * products + 1 + of_bias));
        const auto host = run(storage, {counts}, x, dy, queued);
        const auto plain = exact(storage, counts, x, dy);
        for (const auto* each : {&device, &host}) {
          CHECK(distance(each->y, plain.y) < kRounded);
          CHECK(distance(each->dx, plain.dx) < kRounded);
          CHECK(distance(each->dw, plain.dw) < kRounded);
        }
        CHECK(device.y.scalar_type() == at::kBFloat16);
        CHECK(device.dx.scalar_type() == at::kBFloat16);
      }
}

TEST_CASE("expert matmuls work with frozen experts and with gradients in separate buffers", "[device]") {
  const Counts counts = {5, 0, 1, 7, 0};
  const auto x = bfloat({13, kIn}), dy = bfloat({13, kOut});
  auto storage = stored(Layout::kJoined, 5);
  const auto expected = run(storage, rows_on_device(at::tensor(counts)), x, dy, false);
  const auto plain = exact(storage, counts, x, dy);
  // The gradient of one weight is in another buffer.
  auto& moved = *storage.parameters[3];
  moved.grad = at::full(moved.shape, std::numeric_limits<float>::quiet_NaN());
  CHECK(distance(run(storage, rows_on_device(at::tensor(counts)), x, dy, false).dw, expected.dw) == 0);
  // All experts are frozen.
  for (auto& p : storage.parameters) {
    p->grad = at::Tensor();
    p->frozen = true;
  }
  const auto in = leaf(x);
  const auto y = grouped_linear(in, storage.layer, rows_on_device(at::tensor(counts)));
  run_backward(Origin(y), dy);
  CHECK(distance(in.grad(), plain.dx) < kRounded);
}

TEST_CASE("expert matmuls without any rows give empty outputs and zero weight gradients", "[device]") {
  for (const auto layout : kLayouts) {
    auto storage = stored(layout, 5);
    const auto out = run(storage, rows_on_device(at::zeros({5}, at::TensorOptions().dtype(at::kLong))),
                         at::empty({0, kIn}, at::kBFloat16), at::empty({0, kOut}, at::kBFloat16), false);
    CHECK(out.y.sizes() == at::IntArrayRef({0, kOut}));
    CHECK(out.dx.sizes() == at::IntArrayRef({0, kIn}));
    CHECK(out.dw.abs().max().item<float>() == 0);
  }
}

TEST_CASE("layers that the grouped GEMM does not support need row counts on the host", "[device]") {
  const auto needs = [](const std::function<void(Storage&)>& change, Layout layout = Layout::kJoined) {
    auto storage = stored(layout, 3);
    REQUIRE_FALSE(needs_counts(storage.layer));
    change(storage);
    return needs_counts(storage.layer);
  };
  const auto each_in = [](at::ScalarType type) {
    return [type](Storage& s) {
      for (auto& p : s.parameters) p->value = p->value.to(type);
    };
  };
  CHECK(needs(each_in(at::kFloat)));
  CHECK(needs(each_in(at::kDouble)));
  CHECK(needs(each_in(at::kHalf), Layout::kStacked));
  CHECK(needs([](Storage& s) { s.parameters[0]->fused_accumulation = true; }));
  CHECK(needs([](Storage& s) { s.parameters[1]->matmul_type = at::kFloat; }));
  CHECK_FALSE(needs([](Storage& s) { s.parameters[1]->matmul_type = at::kBFloat16; }));
  CHECK(needs([](Storage& s) { s.parameters[2]->float8 = plan::Float8Plan{}; }));
  CHECK(needs([](Storage& s) { s.parameters[2]->value = s.parameters[2]->value.clone(); }));  // in another buffer
  CHECK(needs([](Storage& s) { s.layer.each[1].adapters.resize(2); }));
  CHECK(needs([](Storage& s) {  // not aligned to 16 bytes
    const auto moved = at::cat({at::zeros({4}, at::kBFloat16), s.values});
    for (auto& p : s.parameters) p->value = moved.narrow(0, 4 + p->value.storage_offset(), p->numel()).view(p->shape);
  }));
  for (const auto& shape : std::vector<Counts>{{3, 16, 12}, {3, 12, 16}}) {  // rows are not a multiple of 16 bytes
    Parameter narrow{.name = "p", .shape = shape, .value = bfloat(shape)};
    CHECK(needs_counts({.stacked = &narrow}));
  }
  CHECK(needs([](Storage&) { grouped_product_on_host_with(nullptr); }));  // a device without a grouped GEMM
  grouped_product_on_host_with(emulated_groups());
}

TEST_CASE("the emulated grouped GEMM equals LibTorch's, except for NaN in groups without rows", "[device]") {
  const auto product = emulated_groups();
  for (const auto& counts : kCounts) {
    const auto ends = rows_on_device(at::tensor(counts)).ends;
    const auto n = ends[-1].item<std::int64_t>();
    const auto x = bfloat({n, kIn}), dy = bfloat({n, kOut}), weights = bfloat({5, kOut, kIn});
    for (const auto& weight : {weights.transpose(1, 2), bfloat({5, kIn, kOut})})
      CHECK(distance(product(x, weight, ends), at::_grouped_mm(x, weight, ends)) < kRounded);
    const auto ours = product(dy.t(), x, ends), theirs = at::_grouped_mm(dy.t(), x, ends);
    for (std::size_t g = 0; g < counts.size(); ++g) {
      const auto i = static_cast<std::int64_t>(g);
      if (counts[g] > 0) {
        CHECK(distance(ours.select(0, i), theirs.select(0, i)) < kRounded);
      } else {
        CHECK(theirs.select(0, i).abs().max().item<float>() == 0);
        CHECK(std::isnan(ours.select(0, i).sum().item<float>()));
      }
    }
  }
}

}  // namespace automodel::ops
