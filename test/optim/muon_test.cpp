// Muon against torch.optim.Muon of PyTorch 2.11, updates of sharded matrices as a whole, and factors of groups.
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include "comm/loopback/loopback.h"
#include "golden_file.h"
#include "optim/optimizer.h"
#include "plan/optimizer_choice.h"
#include "torch_catch.h"

namespace automodel::optim {
namespace {

using nlohmann::json;

/// The initial values of the recorded runs: multiples of 1/64 between -2 and 2.
at::Tensor numbers(std::int64_t seed, std::int64_t count) {
  auto out = at::empty({count}, at::kFloat);
  for (std::int64_t i = 0; i < count; ++i) {
    seed = (seed * 1103515245 + 12345) % (std::int64_t{1} << 31);
    out.mutable_data_ptr<float>()[i] = static_cast<float>((seed >> 16) % 257 - 128) / 64;
  }
  return out;
}

config::MuonConfig config_of(const json& setting, double lr) {
  config::MuonConfig out;
  out.lr = lr;
  if (setting.contains("momentum")) out.momentum = setting["momentum"].get<double>();
  if (setting.contains("nesterov")) out.nesterov = setting["nesterov"].get<bool>();
  if (setting.contains("ns_steps")) out.ns_steps = setting["ns_steps"].get<int>();
  if (setting.contains("ns_coefficients"))
    out.ns_coefficients = setting["ns_coefficients"].get<std::array<double, 3>>();
  if (setting.contains("weight_decay")) out.weight_decay = setting["weight_decay"].get<double>();
  if (setting.contains("adjust_lr_fn"))
    out.adjust_lr_fn =
        setting["adjust_lr_fn"] == "original" ? config::MuonScale::kOriginal : config::MuonScale::kMatchRmsAdamW;
  return out;
}

double difference(const at::Tensor& ours, const json& expected) {
  double worst = 0;
  const auto flat = ours.contiguous();
  for (std::size_t i = 0; i < expected.size(); ++i)
    worst = std::max(worst, std::abs(flat.const_data_ptr<float>()[i] - expected[i].get<double>()));
  return worst;
}

}  // namespace

TEST_CASE("Muon has PyTorch's defaults", "[optim]") {
  const auto theirs = golden::load("torch/muon.json")["defaults"];
  const config::MuonConfig ours;
  CHECK(ours.lr() == theirs["lr"]);
  CHECK(ours.weight_decay() == theirs["weight_decay"]);
  CHECK(ours.momentum() == theirs["momentum"]);
  CHECK(ours.nesterov() == theirs["nesterov"]);
  CHECK(ours.ns_coefficients() == theirs["ns_coefficients"].get<std::array<double, 3>>());
  CHECK(ours.eps() == theirs["eps"]);
  CHECK(ours.ns_steps() == theirs["ns_steps"]);
  CHECK((!ours.adjust_lr_fn() && theirs["adjust_lr_fn"].is_null()));
}

TEST_CASE("Muon updates of matrices equal PyTorch's", "[optim][golden]") {
  const auto recorded = golden::load("torch/muon.json");
  const double lr = recorded["lr"];
  int compared = 0;
  for (const auto& row : recorded["rows"]) {
    INFO(row["shape"].dump() << " " << row["setting"].dump());
    const std::vector<std::int64_t> shape = row["shape"];
    const auto count = shape[0] * shape[1];
    Target target{.value = numbers(7, count)};
    auto gradient = at::zeros({count}, at::kFloat);
    target.gradient = [&] { return gradient; };
    target.ranges.push_back({.name = "w", .length = count, .matrix = 0});
    target.matrices.push_back({.name = "w", .shape = shape, .offset = 0, .length = count});
    const auto config = config_of(row["setting"], lr);
    Optimizer optimizer(plan::plan_optimizer(config), {target});
    CHECK(optimizer.state_bytes() == 4 * count);
    const int steps = recorded["steps"];
    for (int step = 0; step < steps; ++step) {
      gradient = numbers(100 + step, count) * 4;
      optimizer.step(lr, config.weight_decay(), 0.25);
    }
    // The elements of an update are below 1.2 times the factor; several matmuls in sequence round to 8 bits.
    const double rows = static_cast<double>(shape[0]), columns = static_cast<double>(shape[1]);
    const double factor = config.adjust_lr_fn() == config::MuonScale::kMatchRmsAdamW
                              ? 0.2 * std::sqrt(std::max(rows, columns))
                              : std::sqrt(std::max(1.0, rows / columns));
    CHECK(difference(target.value, row["value"]) < steps * lr * factor * 6 / 256);
    const auto states = optimizer.states(0);
    REQUIRE(states.size() == 2);  // the same tensor would hold the first moment of other parameters
    CHECK(states[0].name == "momentum_buffer");
    CHECK(states[0].belongs_to(true));
    CHECK_FALSE(states[0].belongs_to(false));
    CHECK(difference(states[0].tensor, row["momentum_buffer"]) < 1e-4);
    ++compared;
  }
  CHECK(compared == 18);
}

TEST_CASE("dion.Muon updates of matrices equal those of dion", "[optim][golden]") {
  const auto recorded = golden::load("torch/dion_muon.json");
  const double lr = recorded["lr"];
  const int steps = recorded["steps"];
  for (const auto& row : recorded["rows"]) {
    INFO(row["shape"].dump() << " " << row["setting"].dump());
    const std::vector<std::int64_t> shape = row["shape"];
    const auto& setting = row["setting"];
    const auto count = shape[0] * shape[1];
    config::DionMuonConfig config;
    if (setting.contains("mu")) config.mu = setting["mu"].get<double>();
    if (setting.contains("epsilon")) config.epsilon = setting["epsilon"].get<double>();
    if (setting.contains("nesterov")) config.nesterov = setting["nesterov"].get<bool>();
    if (setting.contains("weight_decay")) config.weight_decay = setting["weight_decay"].get<double>();
    if (setting.contains("adjust_lr")) {
      config.adjust_lr = std::nullopt;
      if (!setting["adjust_lr"].is_null()) config.adjust_lr = config::DionScale::kRmsNorm;
    }
    Target target{.value = numbers(7, count)};
    auto gradient = at::zeros({count}, at::kFloat);
    target.gradient = [&] { return gradient; };
    target.ranges.push_back({.name = "w", .length = count, .matrix = 0});
    target.matrices.push_back({.name = "w", .shape = shape, .offset = 0, .length = count});
    Optimizer optimizer(plan::plan_optimizer(config), {target});
    for (int step = 0; step < steps; ++step) {
      gradient = numbers(100 + step, count) * 4;
      optimizer.step(lr, config.weight_decay(), 0.25);
    }
    // As for Muon above.
    const double rows = static_cast<double>(shape[0]), columns = static_cast<double>(shape[1]);
    const double factor = !config.adjust_lr() ? 1
                          : *config.adjust_lr() == config::DionScale::kRmsNorm
                              ? 0.2 * std::sqrt(std::max(rows, columns))
                              : std::sqrt(rows / columns);
    CHECK(difference(target.value, row["value"]) < steps * lr * factor * 6 / 256);
    CHECK(difference(optimizer.states(0)[0].tensor, row["momentum_buffer"]) < 1e-5);
  }
  CHECK(recorded["rows"].size() == 24);
}

TEST_CASE("dion.Muon does not decay embeddings and head, and scales the head's rate by width", "[optim]") {
  config::DionMuonConfig config;
  config.lr = 0.1;
  config.embed_lr = 0.03;
  const auto rule = std::get<plan::MuonRule>(plan::plan_optimizer(config, 64).rule);
  CHECK(rule.rest_factor == 1);
  CHECK(rule.embedding_factor == Approx(0.3));
  CHECK(rule.head_factor == Approx(0.125));
  constexpr std::int64_t kEach = 4;
  const auto gradient = at::zeros({3 * kEach}, at::kFloat);
  Target target{.value = numbers(7, 3 * kEach), .gradient = [&] { return gradient; }};
  target.ranges = {{.name = "norm", .length = kEach},
                   {.name = "table", .offset = kEach, .length = kEach, .place = Place::kEmbedding},
                   {.name = "head", .offset = 2 * kEach, .length = kEach, .place = Place::kHead}};
  const auto before = target.value.clone();
  Optimizer optimizer(plan::plan_optimizer(config, 64), {target});
  optimizer.step(0.1, 0.5, 1);  // with zero gradients only weight decay acts
  CHECK(at::allclose(target.value.narrow(0, 0, kEach), before.narrow(0, 0, kEach) * 0.95));
  CHECK(at::equal(target.value.narrow(0, kEach, 2 * kEach), before.narrow(0, kEach, 2 * kEach)));
}

TEST_CASE("Muon updates parameters other than layer matrices with AdamW at their own rates", "[optim]") {
  config::MuonConfig muon;
  muon.lr = 0.1;
  muon.scalar_lr = 0.02;
  muon.lm_head_lr = 0.03;
  muon.scalar_betas = {0.8, 0.9};
  constexpr std::int64_t kMatrix = 12, kVector = 5;
  const auto gradient = numbers(3, kMatrix + 2 * kVector);
  Target target{.value = numbers(7, kMatrix + 2 * kVector), .gradient = [&] { return gradient; }};
  target.ranges = {{.name = "matrix", .length = kMatrix, .matrix = 0},
                   {.name = "norm", .offset = kMatrix, .length = kVector},
                   {.name = "head", .offset = kMatrix + kVector, .length = kVector, .place = Place::kHead}};
  target.matrices = {{.name = "matrix", .shape = {3, 4}, .length = kMatrix}};
  const auto before = target.value.clone();
  Optimizer optimizer(plan::plan_optimizer(muon), {target});
  CHECK(optimizer.state_bytes() == 4 * (kMatrix + 4 * kVector));
  for (const double rate : {0.02, 0.03}) {
    const auto at = rate == 0.02 ? kMatrix : kMatrix + kVector;
    config::AdamWConfig adamw;
    adamw.betas = {0.8, 0.9};
    Target alone{.value = before.narrow(0, at, kVector).clone(),
                 .gradient = [&, at] { return gradient.narrow(0, at, kVector); }};
    alone.ranges = {{.name = "v", .length = kVector}};
    Optimizer reference(plan::plan_optimizer(adamw), {alone});
    for (int i = 0; i < 3; ++i) reference.step(rate, 0.01, 1);
    if (rate == 0.02)
      for (int i = 0; i < 3; ++i) optimizer.step(0.1, 0.01, 1);
    CHECK(at::allclose(target.value.narrow(0, at, kVector), alone.value, 1e-6, 1e-7));
  }
}

TEST_CASE("factors of groups multiply the rate and the decay of the parameters that match, and of no others",
          "[optim]") {
  constexpr std::int64_t kEach = 6;
  // Neighbours differ in one factor. Powers of two, so that results are those of a parameter alone to the last bit.
  const std::vector<plan::RateGroup> groups = {{"slow", 0.5, 1}, {"decays", 0.5, 2}, {"fast", 2, 2}, {"still", 2, 0}};
  const std::vector<std::string> names = {"plain", "slow", "decays", "fast", "still"};
  const auto count = kEach * static_cast<std::int64_t>(names.size());
  for (const auto& plan : {plan::plan_optimizer(config::AdamWConfig()), plan::plan_optimizer(config::SgdConfig()),
                           plan::plan_optimizer(config::MuonConfig())})
    for (const bool matrices : {false, true}) {
      if (matrices && !plan.takes_matrices()) continue;
      INFO(plan.name << ", matrices " << matrices);
      const auto gradient = numbers(3, count);
      const auto updated = [&](std::size_t first, std::size_t end, double lr, double decay, bool grouped) {
        const auto begin = static_cast<std::int64_t>(first) * kEach;
        const auto length = static_cast<std::int64_t>(end - first) * kEach;
        Target target{.value = numbers(7, count).narrow(0, begin, length).clone(),
                      .gradient = [=] { return gradient.narrow(0, begin, length); }};
        for (auto i = first; i < end; ++i) {
          const auto offset = static_cast<std::int64_t>(i - first) * kEach;
          target.ranges.push_back({.name = names[i], .offset = offset, .length = kEach});
          if (!matrices) continue;
          target.ranges.back().matrix = static_cast<int>(i - first);
          target.matrices.push_back({.name = names[i], .shape = {2, 3}, .offset = offset, .length = kEach});
        }
        auto chosen = plan;
        if (grouped) chosen.groups = groups;
        Optimizer optimizer(chosen, {target});
        for (int step = 0; step < 2; ++step) optimizer.step(lr, decay, 1);
        return target.value;
      };
      const auto together = updated(0, names.size(), 0.125, 0.25, true);
      const auto factors = std::vector<plan::Factors>{{1, 1}, {0.5, 1}, {0.5, 2}, {2, 2}, {2, 0}};
      for (std::size_t i = 0; i < names.size(); ++i) {
        INFO(names[i]);
        const auto alone = updated(i, i + 1, 0.125 * factors[i].lr, 0.25 * factors[i].weight_decay, false);
        CHECK(at::equal(together.narrow(0, static_cast<std::int64_t>(i) * kEach, kEach), alone));
      }
    }
}

TEST_CASE("Muon updates a sharded matrix as a whole", "[optim]") {
  // Four ranks: two shards of the unit times two slices of the first matrix, which is cut in two places; the second
  // matrix is whole on all ranks, the third is a stack.
  constexpr std::int64_t kRows = 6, kColumns = 8;
  const auto value_of = [](std::int64_t seed, std::int64_t count) { return numbers(seed, count).to(at::kBFloat16); };
  const auto whole = value_of(1, kRows * kColumns), other = value_of(2, 20), stack = value_of(3, 24);
  // The result depends on the element and on the whole matrix.
  const auto change = [](const at::Tensor& m) { return (m * 2 + m.sum()).to(at::kBFloat16); };
  const std::vector<model::Slice> slices = {{.dim = 0, .ranges = {{0, 1}, {4, 6}}}, {.dim = 0, .ranges = {{1, 4}}}};
  const auto outcome = comm::run_ranks(4, [&](comm::World& world) {
    const int shard = world.rank() / 2, tensor = world.rank() % 2;
    const auto group = [&](std::vector<int> ranks, const char* name) { return world.group(std::move(ranks), name); };
    const auto shards = group({tensor, tensor + 2}, "shard"), tensors = group({2 * shard, 2 * shard + 1}, "tensor");
    const auto& slice = slices[static_cast<std::size_t>(tensor)];
    const auto part_of = [&](const at::Tensor& full) {
      std::vector<at::Tensor> rows;
      for (const auto& [begin, end] : slice.ranges) rows.push_back(full.view({kRows, kColumns}).slice(0, begin, end));
      return at::cat(rows).reshape(-1);
    };
    const auto unit = at::cat({part_of(whole), other, stack});  // 24 + 20 + 24
    const std::int64_t length = unit.numel() / 2;
    for (const bool sharded : {true, false}) {
      MatrixGroups groups{.shard = shards, .sharded = sharded, .length = sharded ? length : 2 * length};
      groups.begin = sharded ? shard * length : 0;
      groups.tensor = tensors;
      groups.tensor_members = {0, 1};
      const MatrixExchange exchange({{.shape = {kRows, kColumns}, .offset = 0, .length = 24, .slices = slices},
                                     {.shape = {4, 5}, .offset = 24, .length = 20},
                                     {.shape = {2, 3, 4}, .offset = 44, .length = 24}},
                                    groups);
      const auto mine = unit.narrow(0, groups.begin, groups.length).clone();
      exchange.run(mine, change);
      const auto stacked = stack.view({2, 3, 4});
      const auto expected =
          at::cat({part_of(change(whole.view({kRows, kColumns})).reshape(-1)), change(other.view({4, 5})).reshape(-1),
                   change(stacked.select(0, 0)).reshape(-1), change(stacked.select(0, 1)).reshape(-1)})
              .narrow(0, groups.begin, groups.length);
      if (!at::equal(mine, expected))
        throw std::runtime_error(fmt::format("rank {}, {}", world.rank(), sharded ? "sharded" : "whole"));
      // The work is distributed: no rank does all of it.
      if (exchange.own_elements() >= 48 + 20 + 24) throw std::runtime_error("one rank works alone");
    }
  });
  INFO(outcome.text);
  CHECK(outcome.ok());
}

}  // namespace automodel::optim
