// The modules of a stage: what it computes alone and in parts, and what it tells the storage of its weights.
#include "model/stage_model.h"

#include <map>
#include <vector>

#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>

#include "model/small_model.h"
#include "ops/graph.h"
#include "torch_catch.h"

namespace automodel::model {
namespace {

using test::kLayers;
using test::SmallModel;

using Gradients = std::map<std::string, at::Tensor>;

Gradients gradients_of(StageModel& stage) {
  Gradients out;
  for (const auto& weight : stage.weights().all()) out[weight->info.fqn] = weight->parameter.grad;
  return out;
}

at::Tensor one() {
  return at::ones({}, at::kDouble);
}

/// Loss of a microbatch through all stages, and their gradients.
std::pair<double, Gradients> run(const std::vector<StageModel*>& stages, const Microbatch& data,
                                 const ForwardOptions& options = {}) {
  const c10::AutoGradMode grad(true);
  std::vector<at::Tensor> inputs, outputs;
  for (auto* stage : stages) {
    inputs.push_back(outputs.empty() ? at::Tensor() : ops::leaf(outputs.back().detach()));
    outputs.push_back(stage->forward(data, inputs.back(), options));
  }
  auto gradient = one();
  for (std::size_t i = stages.size(); i-- > 0;) {
    ops::run_backward(ops::Origin(outputs[i]), gradient);
    if (i > 0) gradient = inputs[i].grad();
  }
  Gradients all;
  for (auto* stage : stages) all.merge(gradients_of(*stage));
  return {outputs.back().item<double>(), all};
}

void check_same(const Gradients& got, const Gradients& wanted, double tolerance) {
  REQUIRE(got.size() == wanted.size());
  for (const auto& [name, gradient] : wanted) {
    INFO(name);
    CHECK((got.at(name) - gradient).abs().max().item<double>() <= tolerance);
    CHECK(gradient.abs().sum().item<double>() > 0);
  }
}

/// "f0 F0 b0 B0": units as the observer is called before and after forward and backward.
class Record : public UnitObserver {
 public:
  void before_forward(int unit) override { add("f", unit); }
  void after_forward(int unit) override { add("F", unit); }
  void before_backward(int unit) override { add("b", unit); }
  void after_backward(int unit) override { add("B", unit); }
  void before_gradients(int unit) override { add("g", unit); }
  std::string text = {};

 private:
  void add(const char* what, int unit) { text += (text.empty() ? "" : " ") + (what + std::to_string(unit)); }
};

}  // namespace

TEST_CASE("stages that hand over hidden states and gradients compute what one stage computes") {
  const SmallModel model;
  const auto whole = model.stage(model.all());
  const auto wanted = run({whole.get()}, test::sequence(1));
  for (const auto& cuts : std::vector<std::vector<int>>{{0, 1, 3}, {0, 2, 3}, {0, 1, 2, 3}}) {
    std::vector<std::unique_ptr<StageModel>> parts;
    std::vector<StageModel*> stages;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i)
      stages.push_back(parts.emplace_back(model.stage(SmallModel::part(cuts[i], cuts[i + 1]))).get());
    const auto got = run(stages, test::sequence(1));
    // Within a stage the last sum of the residual stream is fused with the next norm.
    CHECK(got.first == Approx(wanted.first).epsilon(1e-13));
    check_same(got.second, wanted.second, 1e-13);
  }
}

TEST_CASE("layers that are recomputed give the same loss and gradients") {
  const SmallModel model;
  const auto whole = model.stage(model.all());
  const auto wanted = run({whole.get()}, test::sequence(1));
  for (const auto recompute : {plan::Recompute::kFull, plan::Recompute::kSelective}) {
    const auto stage = model.stage(model.all());
    const auto got = run({stage.get()}, test::sequence(1), {.recompute = recompute});
    CHECK(got.first == wanted.first);
    check_same(got.second, wanted.second, 0);
  }
}

TEST_CASE("a tied embedding serves as head, and its gradient is the sum of what both contribute") {
  const bool autocast = GENERATE(false, true);
  plan::Execution execution;
  if (autocast) execution.precision.autocast = DType::kBFloat16;
  const SmallModel apart;
  const auto stage = apart.stage(apart.all(), execution);
  const auto table = stage->weights().parameter("model.embed_tokens.weight")->value;
  stage->weights().parameter("lm_head.weight")->value = table;
  const auto wanted = run({stage.get()}, test::sequence(2));
  const SmallModel tied(R"(, "tie_word_embeddings": true)");
  auto config = tied;
  config.spec.tied_embeddings = true;
  config.layout = arch::layout_of(config.spec);
  const auto both = config.stage(config.all(), execution);
  const auto got = run({both.get()}, test::sequence(2));
  CHECK(got.first == wanted.first);
  const auto sum = wanted.second.at("model.embed_tokens.weight") + wanted.second.at("lm_head.weight");
  CHECK((got.second.at("model.embed_tokens.weight") - sum).abs().max().item<double>() < 1e-12);
}

TEST_CASE("the loss is the scaled sum over labels that are counted") {
  const SmallModel model;
  const auto loss = [&](const Microbatch& data, double scale) {
    const ops::NoGraph guard;
    return model.stage(model.all())->forward(data, {}, {.loss_scale = scale}).item<double>();
  };
  auto data = test::sequence(3);
  const double all = loss(data, 1);
  CHECK(loss(data, 0.25) == Approx(all / 4).epsilon(1e-12));
  double parts = 0;
  for (std::int64_t token = 0; token < data.length; ++token) {
    auto one_label = data;
    one_label.labels = at::full_like(data.labels, -100);
    one_label.labels.select(1, token).copy_(data.labels.select(1, token));
    parts += loss(one_label, 1);
  }
  CHECK(parts == Approx(all).epsilon(1e-12));
}

TEST_CASE("labels that a batch leaves out do not count, whatever other label the recipe leaves out") {
  const SmallModel model;
  auto data = test::sequence(3);
  data.labels.select(1, 2).fill_(-100);
  const auto loss = [&](const plan::LossPlan& plan) {
    const ops::NoGraph guard;
    return model.stage(model.all(), {.loss = plan})->forward(data, {}, {}).item<double>();
  };
  for (const std::optional<std::int64_t> chunk : {std::optional<std::int64_t>(), std::optional<std::int64_t>(4)})
    CHECK(loss({.ignore_label = 1, .loss_chunk = chunk}) == Approx(loss({})).epsilon(1e-12));
}

TEST_CASE("a token's logits do not depend on later tokens, and are those of a cache of earlier ones") {
  const SmallModel model;
  const auto stage = model.stage(model.all());
  const ops::NoGraph guard;
  const auto data = test::sequence(4);
  const auto whole = stage->logits(data, {});
  REQUIRE(stage->keeps_keys());
  auto cache = std::make_shared<KeyValueCache>();
  for (std::int64_t token = 0; token < data.length; ++token) {
    const Microbatch next{.ids = data.ids.narrow(1, token, 1),
                          .positions = data.positions.narrow(1, token, 1),
                          .length = 1,
                          .extent = token + 1,
                          .cache = cache};
    const auto from_cache = stage->logits(next, {}).select(1, 0);
    cache->set_tokens(token + 1);
    CHECK((from_cache - whole.select(1, token)).abs().max().item<double>() < 1e-12);
    const auto early = stage->logits(test::sequence(4, token + 1), {}, token).select(1, 0);
    CHECK((early - whole.select(1, token)).abs().max().item<double>() < 1e-12);
  }
}

TEST_CASE("units are announced before and after each use, the other way round in the backward pass") {
  const SmallModel model;
  const auto stage = model.stage(model.all());
  // The embedding, three layers, norm and head.
  REQUIRE(stage->weights().units().size() == 5);
  Record record;
  stage->set_observer(&record);
  run({stage.get()}, test::sequence(1));
  CHECK(record.text == "f0 F0 f1 F1 f2 F2 f3 F3 f4 F4 b4 B4 b3 B3 b2 B2 b1 B1 b0 B0");
}

}  // namespace automodel::model
