#include "parallel/tensor/products.h"

#include <memory>
#include <optional>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include "base/error.h"
#include "ops/graph.h"
#include "parallel/tensor/moves.h"
#include "parallel/tensor/shares.h"

namespace automodel::parallel {
namespace {

at::Tensor flat(const at::Tensor& x) {
  return x.reshape({-1, x.size(-1)});
}
/// Restores the dimensions [batch, tokens] of x.
at::Tensor unflat(const at::Tensor& y, const at::Tensor& x) {
  return y.view({x.size(0), x.size(1), y.size(-1)});
}
at::ScalarType type_of(const ops::Linear& layer) {
  return layer.weights.front()->type();
}

/// The share of rank `rank` of whole [batch, tokens, width].
at::Tensor share_of(const at::Tensor& whole, int rank, int ranks) {
  const auto tokens = whole.size(1) / ranks;
  return whole.narrow(1, rank * tokens, tokens);
}

/// Gathers shares [batch, tokens, in], applies `compute` to each as it arrives, and concatenates the results (and, in
/// `whole`, the shares).
at::Tensor gather_and(comm::Communicator& group, const at::Tensor& share, std::int64_t outputs,
                      const std::function<at::Tensor(const at::Tensor&)>& compute, at::Tensor* whole = nullptr) {
  const int n = group.size();
  auto out = at::empty({share.size(0), n * share.size(1), outputs}, share.options());
  if (whole != nullptr) *whole = at::empty({share.size(0), n * share.size(1), share.size(2)}, share.options());
  ShareGather shares(group, share);
  shares.each([&](int rank, const at::Tensor& x) {
    share_of(out, rank, n).copy_(unflat(compute(flat(x)), x));
    if (whole != nullptr) share_of(*whole, rank, n).copy_(x);
  });
  return out;
}

/// An all-gather in flight.
class Gathering {
 public:
  Gathering(comm::Communicator& group, const at::Tensor& share)
      : all_(at::empty({group.size(), share.size(0), share.size(1), share.size(2)}, share.options())),
        work_(group.all_gather(all_, share)) {}
  at::Tensor wait() {
    work_->wait();
    return all_.transpose(0, 1).flatten(1, 2);
  }

 private:
  at::Tensor all_;
  comm::WorkPtr work_;
};

class ColumnBackward : public ops::Backward {
 public:
  ColumnBackward(comm::Communicator& group, at::Tensor x, at::ScalarType input_type, const ops::Linear& layer,
                 const ProductOptions& options)
      : group_(group), x_(std::move(x)), input_type_(input_type), layer_(layer), options_(options) {}

  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    AUTOMODEL_CHECK(gradients[0].defined(), "ranks would disagree about a collective");
    ops::NoGraph guard;
    const auto gradient = flat(gradients[0]);
    return {(options_.sequence ? in_shares(gradient, gradients[0]) : whole(gradient)).to(input_type_)};
  }
  void visit_saved(const std::function<void(at::Tensor&)>& visit) override { visit(x_); }
  const char* name() const override { return "column_product"; }

 private:
  /// The all-reduce of input gradients overlaps with computing the weight gradients.
  at::Tensor whole(const at::Tensor& gradient) {
    at::Tensor low;
    auto dx = unflat(ops::input_gradient(gradient, layer_, &low), x_);
    const auto sum = group_.all_reduce(dx, comm::ReduceOp::kSum);
    weights(gradient, x_, low);
    sum->wait();
    return dx;
  }

  at::Tensor in_shares(const at::Tensor& gradient, const at::Tensor& shaped) {
    const auto& overlap = options_.overlap;
    const bool needs_x = ops::any_trained(layer_);
    std::optional<Gathering> inputs;
    if (needs_x && overlap.gather_in_backward) inputs.emplace(group_, x_);
    at::Tensor dx, low;
    comm::WorkPtr sum;
    at::Tensor to_scatter;
    if (overlap.scatter_in_backward) {
      dx = sum_shares(group_, x_, [&](int rank) {
        return unflat(ops::input_gradient(flat(share_of(shaped, rank, group_.size())), layer_), x_);
      });
    } else {
      const auto all = unflat(ops::input_gradient(gradient, layer_, &low), shaped);
      to_scatter = all.unflatten(1, {group_.size(), x_.size(1)}).transpose(0, 1).contiguous();
      dx = at::empty(x_.sizes(), all.options());
      sum = group_.reduce_scatter(dx, to_scatter, comm::ReduceOp::kSum);
      if (!overlap.scatter_under_weights) wait(sum);
    }
    if (needs_x) {
      if (!inputs) inputs.emplace(group_, x_);
      weights(gradient, inputs->wait(), low);
    } else {
      ops::bias_gradients(gradient, layer_);
    }
    wait(sum);
    return dx;
  }

  static void wait(comm::WorkPtr& work) {
    if (work) work->wait();
    work.reset();
  }

  void weights(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& low) {
    ops::bias_gradients(gradient, layer_);
    ops::weight_gradients(gradient, flat(x), layer_, low);
  }

  comm::Communicator& group_;
  at::Tensor x_;
  at::ScalarType input_type_;
  ops::Linear layer_;
  ProductOptions options_;
};

class RowBackward : public ops::Backward {
 public:
  RowBackward(comm::Communicator& group, at::Tensor x, at::ScalarType input_type, const ops::Linear& layer,
              const ProductOptions& options)
      : group_(group), x_(std::move(x)), input_type_(input_type), layer_(layer), options_(options) {}

  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    AUTOMODEL_CHECK(gradients[0].defined(), "ranks would disagree about a collective");
    ops::NoGraph guard;
    const auto share = gradients[0].contiguous();
    ops::bias_gradients(flat(share), layer_);
    at::Tensor dx, low, whole = share;
    if (options_.sequence && options_.overlap.gather) {
      dx = gather_and(
          group_, share, x_.size(2), [&](const at::Tensor& part) { return ops::input_gradient(part, layer_); }, &whole);
    } else {
      if (options_.sequence) whole = move(group_, share, Move::kGatherTokens);
      dx = unflat(ops::input_gradient(flat(whole), layer_, &low), x_);
    }
    ops::weight_gradients(flat(whole), flat(x_), layer_, low);
    return {dx.to(input_type_)};
  }
  void visit_saved(const std::function<void(at::Tensor&)>& visit) override { visit(x_); }
  const char* name() const override { return "row_product"; }

 private:
  comm::Communicator& group_;
  at::Tensor x_;
  at::ScalarType input_type_;
  ops::Linear layer_;
  ProductOptions options_;
};

}  // namespace

at::Tensor column_product(comm::Communicator& group, const at::Tensor& x, const ops::Linear& whole_layer,
                          const ProductOptions& options) {
  const auto layer = ops::has_magnitudes(whole_layer) ? ops::with_lengths(whole_layer) : whole_layer;
  at::Tensor here, y;
  {
    ops::NoGraph guard;
    here = x.detach().to(type_of(layer)).contiguous();
    const auto product = [&](const at::Tensor& rows) { return ops::product(rows, layer); };
    if (options.sequence && options.overlap.gather) {
      y = gather_and(group, here, layer.outputs(), product);
    } else {
      const auto whole = options.sequence ? move(group, here, Move::kGatherTokens) : here;
      y = unflat(product(flat(whole)), whole);
    }
    ops::add_biases(flat(y), layer);
  }
  if (ops::records({x}))
    ops::record({y}, {x},
                std::make_unique<ColumnBackward>(group, ops::kept_input(here, layer), x.scalar_type(), layer, options));
  return y;
}

at::Tensor row_product(comm::Communicator& group, const at::Tensor& x, const ops::Linear& cut_layer,
                       const ProductOptions& options) {
  // Each rank has part of every weight row, so squared lengths are summed over ranks.
  const auto sum = [&](const at::Tensor& squares) { group.all_reduce(squares, comm::ReduceOp::kSum)->wait(); };
  const auto layer = ops::has_magnitudes(cut_layer) ? ops::with_lengths(cut_layer, sum) : cut_layer;
  at::Tensor here, y;
  {
    ops::NoGraph guard;
    here = x.detach().to(type_of(layer)).contiguous();
    const int n = group.size();
    AUTOMODEL_CHECK(!options.sequence || here.size(1) % n == 0, "tokens do not divide among tensor-parallel ranks");
    if (options.sequence && options.overlap.scatter) {
      const auto like = at::empty({here.size(0), here.size(1) / n, layer.outputs()}, here.options());
      y = sum_shares(group, like,
                     [&](int rank) { return ops::product(flat(share_of(here, rank, n)), layer).view(like.sizes()); });
    } else {
      y = unflat(ops::product(flat(here), layer), here);
      if (options.sequence)
        y = move(group, y, Move::kSumOwnTokens);
      else
        group.all_reduce(y, comm::ReduceOp::kSum)->wait();
    }
    ops::add_biases(flat(y), layer);
  }
  if (ops::records({x}))
    ops::record({y}, {x},
                std::make_unique<RowBackward>(group, ops::kept_input(here, layer), x.scalar_type(), layer, options));
  return y;
}

}  // namespace automodel::parallel
