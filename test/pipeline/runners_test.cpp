// A real stage behind the executor's interface: what microbatches contribute, and captured work beside eager work.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros_like.h>

#include "base/error.h"
#include "model/small_model.h"
#include "pipeline/pipeline.h"
#include "schedule/generators.h"
#include "schedule/pipeline_schedule.h"
#include "torch_catch.h"

namespace automodel::pipeline {
namespace {

using test::kLayers;
using test::SmallModel;
using Gradients = std::map<std::string, at::Tensor>;

/// Runs work eagerly, as every capture does before it captures (test/train/captured_test.cpp has captures).
class WarmUps : public ops::WorkCapture {
 public:
  void run(const std::function<void()>& work) override { work(); }
  std::unique_ptr<ops::CapturedWork> capture(const std::function<void()>&) override {
    throw InternalError("more microbatches than warm-ups");
  }
};

/// All stages of a small model on one rank.
struct OneRank {
  SmallModel model;
  std::vector<std::unique_ptr<model::StageModel>> models = {};
  std::vector<std::unique_ptr<Stage>> stages = {};
  std::unique_ptr<Pipeline> pipeline = {};

  OneRank(const char* schedule, int count, int microbatches, bool captured = false) {
    const schedule::Request request{.ranks = 1, .stages_per_rank = count, .microbatches = microbatches};
    const auto made = schedule::make_schedule(*schedule::find_generator(schedule), request);
    REQUIRE(made.ok());
    std::vector<Stage*> pointers;
    for (int i = 0; i < count; ++i) {
      models.push_back(model.stage(SmallModel::part(i * kLayers / count, (i + 1) * kLayers / count)));
      stages.push_back(std::make_unique<Stage>(schedule::Stage{i}, *models.back(), nullptr));
      pointers.push_back(stages.back().get());
    }
    pipeline = std::make_unique<Pipeline>(Table{made.training, made.placement, made.shape},
                                          Table{made.evaluation, made.placement, made.shape}, 0, nullptr, pointers,
                                          at::kCPU, captured ? std::make_unique<WarmUps>() : nullptr);
  }
  /// Gradients since the last call.
  Gradients take_gradients() {
    Gradients out;
    for (const auto& each : models)
      for (const auto& weight : each->weights().all()) {
        out[weight->info.fqn] = weight->parameter.grad.clone();
        weight->parameter.grad.zero_();
      }
    return out;
  }
};

std::vector<model::Microbatch> sequences(int count) {
  std::vector<model::Microbatch> out;
  for (int i = 0; i < count; ++i) out.push_back(test::sequence(1 + 2 * i));
  return out;
}

/// Loss and gradients of one microbatch alone.
std::pair<double, Gradients> alone(const model::Microbatch& data) {
  OneRank rank("1F1B", 1, 1);
  const double loss = rank.pipeline->run({data}, {.loss_scales = {1}}).value();
  return {loss, rank.take_gradients()};
}

bool close(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>() < 1e-12;
}

}  // namespace

TEST_CASE("every microbatch has its own loss scale, in the loss and in the gradients") {
  const std::vector<double> scales = {0.5, 3, 0.25, 2};
  const auto data = sequences(4);
  double loss = 0;
  Gradients wanted;
  for (std::size_t i = 0; i < data.size(); ++i) {
    const auto [own, gradients] = alone(data[i]);
    loss += scales[i] * own;
    for (const auto& [name, gradient] : gradients)
      wanted[name] = (wanted.contains(name) ? wanted[name] : at::zeros_like(gradient)) + gradient * scales[i];
  }
  for (const auto& [schedule, stages] : std::vector<std::pair<const char*, int>>{
           {"GPipe", 1}, {"LoopedBFS", 3}, {"Interleaved1F1B", 3}, {"InterleavedZeroBubble", 3}}) {
    INFO(schedule);
    OneRank rank(schedule, stages, 4);
    CHECK(rank.pipeline->run(data, {.loss_scales = scales}).value() == Approx(loss).epsilon(1e-12));
    for (const auto& [name, gradient] : rank.take_gradients()) {
      INFO(name);
      CHECK(close(gradient, wanted.at(name)));
    }
    CHECK(rank.pipeline->evaluate(data, scales).value() == Approx(loss).epsilon(1e-12));
    for (const auto& [name, gradient] : rank.take_gradients()) CHECK_FALSE(gradient.any().item<bool>());
  }
}

TEST_CASE("backward passes start from the given gradient of the loss") {
  OneRank rank("Interleaved1F1B", 3, 2);
  rank.pipeline->run(sequences(2), {.loss_scales = {1, 1}});
  const auto plain = rank.take_gradients();
  rank.pipeline->run(sequences(2), {.loss_scales = {1, 1}, .seed = 8});
  for (const auto& [name, gradient] : rank.take_gradients()) CHECK(close(gradient, plain.at(name) * 8));
}

TEST_CASE("delayed weight gradients and recomputed layers change nothing") {
  OneRank rank("Interleaved1F1B", 3, 2);
  rank.pipeline->run(sequences(2), {.loss_scales = {1, 1}});
  const auto plain = rank.take_gradients();
  std::vector<int> forwards;
  const auto recompute = [&](int forward) {
    forwards.push_back(forward);
    return forward % 2 == 0 ? plan::Recompute::kFull : plan::Recompute::kSelective;
  };
  rank.pipeline->run(sequences(2), {.loss_scales = {1, 1}, .recompute = recompute, .delay_weight_gradients = true});
  for (const auto& [name, gradient] : rank.take_gradients()) CHECK(at::equal(gradient, plain.at(name)));
  CHECK(forwards == std::vector<int>{0, 1, 2, 3, 4, 5});
}

TEST_CASE("a captured stage runs both passes of a microbatch together, or leaves it to the usual passes") {
  OneRank eager("1F1B", 1, 2), captured("1F1B", 1, 2, true);
  REQUIRE(captured.pipeline->captured() != nullptr);
  CHECK(eager.pipeline->captured() == nullptr);
  // Microbatches with documents of their own depend on the host.
  auto packed = sequences(2);
  for (auto& each : packed) each.segments = at::zeros_like(each.ids);
  for (const auto& data : {sequences(2), packed}) {
    const RunOptions options{.loss_scales = {0.5, 3}, .seed = 2};
    // Factors that only the device knows are applied in another order.
    CHECK(captured.pipeline->run(data, options).value() ==
          Approx(eager.pipeline->run(data, options).value()).epsilon(1e-13));
    const auto wanted = eager.take_gradients();
    for (const auto& [name, gradient] : captured.take_gradients()) CHECK(close(gradient, wanted.at(name)));
  }
  const auto& counts = captured.pipeline->captured()->counts();
  CHECK((counts.usual == 2 && counts.warm_ups == 2 && counts.captures == 0));
}

TEST_CASE("logits of a token come from the last stage, whatever the number of stages") {
  OneRank one("1F1B", 1, 4), three("Interleaved1F1B", 3, 3);
  const auto data = test::sequence(2);
  const auto wanted = one.pipeline->logits(data, 4);
  CHECK(wanted.sizes() == at::IntArrayRef({1, 1, test::kVocab}));
  CHECK(at::equal(three.pipeline->logits(data, 4), wanted));
  CHECK_FALSE(at::equal(three.pipeline->logits(data, 3), wanted));
}

TEST_CASE("a run has at most the microbatches of its table, and a scale for each") {
  OneRank rank("1F1B", 1, 2);
  OneRank exact("1F1B", 1, 1);
  CHECK(rank.pipeline->run(sequences(1), {.loss_scales = {1}}).value() ==
        exact.pipeline->run(sequences(1), {.loss_scales = {1}}).value());
  const auto wanted = exact.take_gradients();
  for (const auto& [name, gradient] : rank.take_gradients()) CHECK(at::equal(gradient, wanted.at(name)));
  CHECK_THROWS_AS(rank.pipeline->run(sequences(3), {.loss_scales = {1, 1, 1}}), InternalError);
  CHECK_THROWS_AS(rank.pipeline->run(sequences(2), {.loss_scales = {1}}), InternalError);
  CHECK_THROWS_AS(rank.pipeline->evaluate(sequences(3), {1, 1, 1}), InternalError);
  CHECK_THROWS_AS(OneRank("LoopedBFS", 3, 2, true), InternalError);
}

}  // namespace automodel::pipeline
