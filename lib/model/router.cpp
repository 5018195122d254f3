#include "model/router.h"

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "base/error.h"
#include "base/expert_number.h"
#include "ops/element_type.h"
#include "ops/graph.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/routing.h"

namespace automodel::model {

using arch::Part;
using arch::RouterScore;

at::Tensor numbers_of_experts(const at::Tensor& stored) {
  return at::where(stored.lt(0), static_cast<double>(kExactIntegers) - stored, stored);
}

Router::Router(const BlockContext& context, int layer)
    : moe_(*context.spec.moe), layer_(layer), eps_(context.spec.norm_eps) {
  const LayerWeights weights(context, layer);
  weight_ = weights.weight(Part::kRouter);
  bias_ = moe_.bias ? weights.bias(Part::kRouter) : nullptr;  // DeepSeek V4's kRouterBias has that name
  correction_ = weights.weight(Part::kRouterBias);
  input_scale_ = weights.weight(Part::kRouterScale);
  expert_scale_ = weights.weight(Part::kExpertScale);
  table_ = weights.weight(Part::kRouterTable);
  AUTOMODEL_CHECK(weight_ != nullptr, "no router in layer " + std::to_string(layer));
}

namespace {

/// x W^T multiplied in `type`. What is kept is x, which experts keep as well; autograd would keep a copy in `type`,
/// 128 MiB in float32 for 16,384 tokens of 2,048 values in each layer.
class WideProduct : public ops::Backward {
 public:
  WideProduct(at::Tensor x, const ops::Parameter& weight, at::ScalarType type)
      : x_(std::move(x)), weight_(weight), type_(type) {}

  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>& needed) override {
    const auto gradient = gradients[0].flatten(0, -2);
    at::Tensor dx, dw;
    if (needed[0]) dx = at::mm(gradient, weight_.dense().to(type_)).to(x_.scalar_type()).view(x_.sizes());
    if (needed[1]) dw = at::mm(gradient.t(), x_.flatten(0, -2).to(type_)).to(weight_.type());
    return {dx, dw};
  }
  void visit_saved(const std::function<void(at::Tensor&)>& visit) override { visit(x_); }
  const char* name() const override { return "wide_product"; }

 private:
  at::Tensor x_;
  const ops::Parameter& weight_;
  at::ScalarType type_;
};

at::Tensor wide_product(const at::Tensor& x, ops::Parameter& weight, at::ScalarType type) {
  const auto used = ops::use(weight, x);
  at::Tensor out;
  {
    ops::NoGraph guard;
    out = at::matmul(x.detach().to(type), used.detach().to(type).t());
  }
  if (ops::records({x, used})) ops::record({out}, {x, used}, std::make_unique<WideProduct>(x.detach(), weight, type));
  return out;
}

}  // namespace

/// The scores by which experts are chosen and, up to normalisation, weighted.
at::Tensor Router::scores(const at::Tensor& logits) const {
  switch (moe_.score) {
    case RouterScore::kSigmoid: return at::sigmoid(logits);
    case RouterScore::kSqrtSoftplus: return at::softplus(logits).sqrt();
    case RouterScore::kSoftmax: return at::softmax(logits, -1);
    case RouterScore::kSoftmaxOfChosen:
    case RouterScore::kSparseMixer: break;
  }
  return logits;
}

/// The experts of each row [n, k], by scores that are not part of the graph.
at::Tensor Router::choose(const at::Tensor& scores) const {
  auto choice = correction_ != nullptr ? scores + correction_->value.reshape({-1}).to(scores.scalar_type()) : scores;
  if (moe_.top_groups < moe_.groups) {
    const auto grouped = choice.view({choice.size(0), moe_.groups, -1});
    const std::int64_t counted = moe_.group_score == arch::GroupScore::kBest ? 1 : 2;
    const auto best = std::get<0>(at::topk(grouped, std::min(counted, grouped.size(2)))).sum(-1);
    const auto kept = at::zeros_like(best, best.options().dtype(at::kBool))
                          .scatter_(1, std::get<1>(at::topk(best, moe_.top_groups)), true);
    choice = grouped.masked_fill(kept.unsqueeze(2).logical_not(), -std::numeric_limits<double>::infinity())
                 .view(choice.sizes());
  }
  return ops::top_k(choice, moe_.top_k);
}

/// The experts of each token, from a table of all tokens.
at::Tensor Router::looked_up(const at::Tensor& ids) const {
  return numbers_of_experts(table_->value.index_select(0, ids.flatten()).to(at::kFloat)).to(at::kLong);
}

/// SparseMixer weights: each expert, best first, gets its probability in a softmax over only those logits that are
/// close to its own, earlier choices excluded.
at::Tensor Router::weigh_in_turn(const at::Tensor& logits, const at::Tensor& experts) const {
  constexpr double kOut = -std::numeric_limits<double>::infinity();
  at::Tensor left_out;
  std::vector<at::Tensor> weights;
  for (std::int64_t turn = 0; turn < experts.size(1); ++turn) {
    const auto chosen = experts.narrow(1, turn, 1);
    {
      const ops::NoGraph guard;
      const auto plain = logits.detach(), best = plain.gather(1, chosen);
      auto far = (best - plain).div(at::maximum(plain.abs(), best)).gt(2 * moe_.jitter);
      if (turn > 0) far = far.scatter(1, experts.narrow(1, 0, turn), true);
      left_out = far;
    }
    weights.push_back(at::softmax(logits.masked_fill(left_out, kOut), -1).gather(1, chosen));
  }
  return at::cat(weights, 1);
}

at::Tensor Router::weigh(const at::Tensor& logits, const at::Tensor& experts) const {
  if (moe_.score == RouterScore::kSparseMixer) return weigh_in_turn(logits, experts);
  if (moe_.score == RouterScore::kSoftmaxOfChosen) return at::softmax(logits.gather(1, experts), -1);
  auto out = scores(logits).gather(1, experts);
  if (moe_.normalize_top_k) {
    auto sum = out.sum(-1, true) + moe_.normalize_added;
    if (moe_.normalize_least > 0) sum = at::clamp_min(sum, moe_.normalize_least);
    out = out / sum;
  }
  if (expert_scale_ != nullptr)
    out =
        out *
        ops::use(*expert_scale_, logits).to(out.scalar_type()).index_select(0, experts.flatten()).view(experts.sizes());
  return moe_.scaling == 1 ? out : out * moe_.scaling;
}

Routing Router::route(const at::Tensor& input, const at::Tensor& real, const Microbatch& microbatch) const {
  auto x = input;
  if (input_scale_ != nullptr)
    x = ops::scaled_by(unit_rms(x, eps_), *input_scale_) * (1 / std::sqrt(static_cast<double>(x.size(-1))));
  const auto& statistics = microbatch.routers;
  const auto type = ops::compute_type(x.scalar_type());
  at::Tensor logits;
  if (moe_.float_router)
    logits = wide_product(x, *weight_, type);
  else
    logits = ops::linear(x, {weight_}, {bias_}).to(type);
  if (moe_.logit_softcap > 0) logits = at::tanh(logits / moe_.logit_softcap) * moe_.logit_softcap;
  Routing out;
  {
    ops::NoGraph guard;
    out.experts = table_ != nullptr ? looked_up(microbatch.ids) : choose(scores(logits.detach()));
  }
  if (microbatch.loads && table_ == nullptr) microbatch.loads->put(layer_, moe_.experts, out.experts, real);
  // The auxiliary loss counts what the logits alone would choose, as in transformers.
  const bool biased = correction_ != nullptr;
  if (statistics)
    logits = balanced(logits, biased ? ops::top_k(logits.detach(), moe_.top_k) : out.experts, real, layer_, statistics);
  out.weights = weigh(logits, out.experts);
  return out;
}

}  // namespace automodel::model
