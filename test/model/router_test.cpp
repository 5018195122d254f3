// Weights of the chosen experts.
#include "model/router.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sin.h>

#include "model/small_model.h"
#include "torch_catch.h"

namespace automodel::model {
namespace {

/// The sum of the weights of each of four tokens; all logits are `shift` less than they would be.
at::Tensor sums(const std::function<void(arch::MixtureOfExperts&)>& change, double shift = 0) {
  test::SmallModel model(
      R"(, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 4, "norm_topk_prob": true)",
      "qwen3_moe");
  change(*model.spec.moe);
  const auto stage = model.stage(model.all());
  const Router router({.spec = model.spec,
                       .layout = model.layout,
                       .weights = stage->weights(),
                       .seams = {},
                       .rope = nullptr,
                       .sliding_rope = nullptr},
                      1);
  auto x = at::sin(at::arange(4 * 8, at::kDouble)).view({4, 8});
  auto& weight = stage->weights().find("model.layers.1.mlp.gate.weight")->parameter.value;
  // One column that shifts the logits of all experts alike.
  weight.select(1, 0).fill_(1);
  x.select(1, 0).fill_(-shift);
  const auto routing = router.route(x, at::ones({4}, at::kBool), {});
  return routing.weights.sum(1);
}

}  // namespace

TEST_CASE("weights of chosen experts sum to one, or to less where their divisor has a lower bound") {
  const auto whole = sums([](auto&) {});
  CHECK((whole - 1).abs().max().item<double>() < 1e-12);
  const auto scores = sums([](auto& moe) { moe.normalize_top_k = false; });
  CHECK(scores.max().item<double>() < 0.99);
  const auto bounded = sums([](auto& moe) { moe.normalize_least = 4; });
  CHECK((bounded - scores / 4).abs().max().item<double>() < 1e-12);
  const auto added = sums([](auto& moe) { moe.normalize_added = 1; });
  CHECK((added - scores / (scores + 1)).abs().max().item<double>() < 1e-12);
  const auto scaled = sums([](auto& moe) { moe.scaling = 2.5; });
  CHECK((scaled - 2.5).abs().max().item<double>() < 1e-12);
}

TEST_CASE("a lower bound keeps the weights of experts finite where all scores are zero") {
  const auto sigmoid = [](double least) {
    return sums(
        [=](auto& moe) {
          moe.score = arch::RouterScore::kSigmoid;
          moe.normalize_least = least;
        },
        1000);  // exp(1000) is infinite, so scores are exactly 0
  };
  CHECK(sigmoid(1e-12).abs().max().item<double>() == 0);
  CHECK(sigmoid(0).isnan().all().item<bool>());
}

}  // namespace automodel::model
