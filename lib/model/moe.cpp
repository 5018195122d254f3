// Mixture-of-experts feed-forward block: every token goes to the experts that its router chose; no token is dropped.
#include <optional>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>

#include "base/error.h"
#include "model/blocks.h"
#include "model/experts.h"
#include "model/router.h"
#include "ops/graph.h"
#include "ops/routing.h"
#include "ops/row_copies.h"
#include "ops/split.h"

namespace automodel::model {
namespace {

/// The experts' weight gradients of one backward pass, deferred until the gradient of their input has been sent.
struct LateGradients {
  ops::WeightGradients queue = {};
  std::optional<ops::WeightGradients::Scope> scope = {};
  void begin() {
    if (ops::WeightGradients::current() == nullptr) scope.emplace(&queue);
  }
  void end() {
    scope.reset();
    queue.drain();
  }
};

/// Part of a microbatch's tokens on its way through the experts.
struct Portion {
  std::int64_t tokens = 0;
  at::Tensor weights = {};      ///< [tokens, k]
  ops::RowCopies choices = {};  ///< of tokens, sorted by expert
  ExpertRoute route = {};
  RowsInFlight rows = {};
};

class Moe : public Block {
 public:
  Moe(const BlockContext& context, int layer)
      : seams_(context.seams), moe_(*context.spec.moe), router_(context, layer), experts_(context, layer) {
    if (moe_.shared_ffn > 0) shared_ = make_shared_experts(context, layer);
    if (moe_.latent > 0) {
      const LayerWeights weights(context, layer);
      latent_in_ = weights.product({arch::Part::kLatentIn});
      latent_out_ = weights.product({arch::Part::kLatentOut});
    }
    if (moe_.beside) {
      const LayerWeights weights(context, layer);
      const auto norm = [&](arch::Part part) { return Norm(context, weights.fqn(part)); };
      shared_norm_ = norm(arch::Part::kSharedNorm);
      shared_out_norm_ = norm(arch::Part::kSharedOutNorm);
      experts_norm_ = norm(arch::Part::kExpertsNorm);
      experts_out_norm_ = norm(arch::Part::kExpertsOutNorm);
    }
    if (moe_.shared_switch) switch_ = LayerWeights(context, layer).product({arch::Part::kSharedSwitch});
  }

  at::Tensor forward(const at::Tensor& y, const Microbatch& microbatch) override {
    // Tensor-parallel ranks would all route the same tokens; instead each takes a share of them.
    const auto mine = seams_.tensor->part(y);
    const auto x = mine.reshape({-1, mine.size(-1)});
    const auto routing = router_.route(x, real_rows(microbatch), microbatch);
    const auto narrow = moe_.latent > 0 ? ops::linear(x, latent_in_) : experts_norm_ ? experts_norm_(x) : x;
    std::vector<Portion> parts;
    const std::int64_t count = seams_.expert->parts();
    for (std::int64_t p = 0; p < count; ++p) {
      const auto begin = x.size(0) * p / count, end = x.size(0) * (p + 1) / count;
      parts.push_back(dispatch(narrow.narrow(0, begin, end - begin), routing.experts.narrow(0, begin, end - begin),
                               routing.weights.narrow(0, begin, end - begin)));
    }
    auto shared = shared_ ? shared_->forward(shared_norm_ ? shared_norm_(y) : y, microbatch) : at::Tensor();
    if (!switch_.weights.empty())
      shared = shared * at::sigmoid(seams_.tensor->tokenwise(y, drawn(switch_, microbatch)));
    for (auto& part : parts) compute(part);
    std::vector<at::Tensor> out;
    for (const auto& part : parts) out.push_back(combine(part));
    auto all = count == 1 ? out[0] : at::cat(out, 0);
    if (moe_.latent > 0) all = ops::linear(all, latent_out_);
    all = all.view(mine.sizes());
    const auto whole = seams_.tensor->whole(all);
    if (moe_.beside) return shared_out_norm_(shared) + experts_out_norm_(whole);
    return shared.defined() ? whole + shared : whole;
  }

 private:
  /// Mask of the tokens that this rank routes, false for padding; undefined without padding, or if nobody needs it.
  at::Tensor real_rows(const Microbatch& microbatch) const {
    if (!(microbatch.routers || microbatch.loads) || !microbatch.real.defined()) return {};
    const ops::NoGraph guard;
    return seams_.tensor->part(seams_.tensor->tokens(microbatch.real.to(at::kFloat).unsqueeze(2))).reshape({-1});
  }

  Portion dispatch(const at::Tensor& x, const at::Tensor& experts, const at::Tensor& weights) const {
    Portion part{.tokens = x.size(0), .weights = weights};
    {
      const ops::NoGraph guard;
      const auto sorted = ops::sort_choices(experts, moe_.experts);
      part.choices = {sorted.from, sorted.place};
      part.route = seams_.expert->size() == 1 && !experts_.needs_counts()
                       ? ExpertRoute{.rows = ops::rows_on_device(sorted.counts)}
                       : seams_.expert->route(sorted.counts);
    }
    part.rows = seams_.expert->send(ops::copied_rows(x, part.choices), part.route, false);
    return part;
  }

  void compute(Portion& part) const {
    const auto late = seams_.expert->late_expert_gradients() ? std::make_shared<LateGradients>() : nullptr;
    auto rows = seams_.expert->arrive(part.rows, late ? [late] { late->end(); } : std::function<void()>());
    if (part.route.order.defined()) rows = ops::copied_rows(rows, part.route.order);
    auto out = experts_.forward(rows, part.route.rows);
    if (late) out = ops::tap({out}, [late] { late->begin(); })[0];
    if (part.route.order.defined()) out = ops::copied_rows(out, part.route.order.inverse());
    part.rows = seams_.expert->send(out, part.route, true);
  }

  at::Tensor combine(const Portion& part) const {
    const auto rows = seams_.expert->arrive(part.rows, {});
    return ops::summed_rows(rows, part.choices, moe_.top_k, part.weights.to(rows.scalar_type()));
  }

  Seams seams_;
  const arch::MixtureOfExperts& moe_;
  Router router_;
  Experts experts_;
  std::unique_ptr<Block> shared_ = {};
  ops::Linear latent_in_ = {}, latent_out_ = {};  ///< down to a narrower width for the experts, and back up
  /// Of an MLP beside the experts (MixtureOfExperts::beside): y is then the residual stream itself.
  Norm shared_norm_ = {}, shared_out_norm_ = {}, experts_norm_ = {}, experts_out_norm_ = {};
  ops::Linear switch_ = {};  ///< gate of the shared experts' result; without weights: ungated
};

}  // namespace

std::unique_ptr<Block> make_moe(const BlockContext& context, int layer) {
  return std::make_unique<Moe>(context, layer);
}

}  // namespace automodel::model
