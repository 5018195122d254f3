#include "parallel/context/head_exchange.h"

#include <memory>
#include <vector>

#include <ATen/ops/empty.h>

#include "base/error.h"
#include "ops/graph.h"

namespace automodel::parallel {
namespace {

/// Sends an equal share of dimension 0 to every rank.
at::Tensor all_to_all(comm::Communicator& group, const at::Tensor& in) {
  auto out = at::empty(in.sizes(), in.options());
  const std::vector<std::int64_t> rows(static_cast<std::size_t>(group.size()), 1);
  group.all_to_all(out, in, rows, rows)->wait();
  return out;
}

at::Tensor gather_tokens(comm::Communicator& group, const at::Tensor& x) {
  const std::int64_t n = group.size(), batch = x.size(0), chunk = x.size(1) / 2, heads = x.size(2) / n,
                     width = x.size(3);
  // [batch, 2, chunk, rank, heads, width] -> rank first
  const auto in = x.reshape({batch, 2, chunk, n, heads, width}).permute({3, 0, 1, 2, 4, 5}).contiguous();
  const auto got = all_to_all(group, in);  // [source, batch, 2, chunk, heads, width]
  auto out = at::empty({batch, 2, n, chunk, heads, width}, x.options());
  out.select(1, 0).copy_(got.select(2, 0).transpose(0, 1));
  out.select(1, 1).copy_(got.select(2, 1).flip(0).transpose(0, 1));
  return out.view({batch, 2 * n * chunk, heads, width});
}

at::Tensor scatter_tokens(comm::Communicator& group, const at::Tensor& x) {
  const std::int64_t n = group.size(), batch = x.size(0), chunk = x.size(1) / (2 * n), heads = x.size(2),
                     width = x.size(3);
  const auto chunks = x.reshape({batch, 2, n, chunk, heads, width});
  auto in = at::empty({n, batch, 2, chunk, heads, width}, x.options());
  in.select(2, 0).copy_(chunks.select(1, 0).transpose(0, 1));
  in.select(2, 1).copy_(chunks.select(1, 1).transpose(0, 1).flip(0));
  const auto got = all_to_all(group, in);  // [head share, batch, 2, chunk, heads, width]
  return got.permute({1, 2, 3, 0, 4, 5}).reshape({batch, 2 * chunk, n * heads, width});
}

class ExchangeBackward : public ops::Backward {
 public:
  ExchangeBackward(comm::Communicator& group, bool gathered) : group_(group), gathered_(gathered) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    AUTOMODEL_CHECK(gradients[0].defined(), "ranks would disagree about an exchange");
    ops::NoGraph guard;
    return {gathered_ ? scatter_tokens(group_, gradients[0]) : gather_tokens(group_, gradients[0])};
  }
  const char* name() const override { return "head_exchange"; }

 private:
  comm::Communicator& group_;
  bool gathered_;
};

at::Tensor exchanged(comm::Communicator& group, const at::Tensor& x, bool gather) {
  if (group.size() == 1) return x;
  at::Tensor out;
  {
    ops::NoGraph guard;
    out = gather ? gather_tokens(group, x.detach()) : scatter_tokens(group, x.detach());
  }
  if (ops::records({x})) ops::record({out}, {x}, std::make_unique<ExchangeBackward>(group, gather));
  return out;
}

}  // namespace

at::Tensor heads_for_tokens(comm::Communicator& group, const at::Tensor& x) {
  AUTOMODEL_CHECK(x.size(1) % 2 == 0 && x.size(2) % group.size() == 0, "heads do not divide among the ranks");
  return exchanged(group, x, true);
}

at::Tensor tokens_for_heads(comm::Communicator& group, const at::Tensor& x) {
  return exchanged(group, x, false);
}

}  // namespace automodel::parallel
