#include "parallel/expert/exchange.h"

#include <numeric>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "ops/graph.h"

namespace automodel::parallel {
namespace {

using Rows = std::vector<std::int64_t>;

std::int64_t total(const Rows& rows) {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

/// State of one exchange and, later, of the exchange of its gradients.
struct Exchange {
  std::shared_ptr<comm::Communicator> group;
  Rows sent, received;
  comm::WorkPtr work = {};
  at::Tensor gradient = {};  ///< receives the gradient of what was sent

  at::Tensor start(const at::Tensor& x, const Rows& from, const Rows& to) {
    auto out = at::empty({total(to), x.size(1)}, x.options());
    work = group->all_to_all(out, x, to, from);
    return out;
  }
  void finish() {
    AUTOMODEL_CHECK(work != nullptr, "an exchange of rows is waited for before it began");
    work->wait();
    work.reset();
  }
};

class StartBackward : public ops::Backward {
 public:
  explicit StartBackward(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor>, const std::vector<bool>&) override {
    exchange_->finish();
    return {std::move(exchange_->gradient)};
  }
  const char* name() const override { return "start_exchange"; }

 private:
  std::shared_ptr<Exchange> exchange_;
};

class FinishBackward : public ops::Backward {
 public:
  FinishBackward(std::shared_ptr<Exchange> exchange, at::Tensor like, std::function<void()> departed)
      : exchange_(std::move(exchange)), like_(std::move(like)), departed_(std::move(departed)) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    {
      ops::NoGraph guard;
      // Without a gradient zeros are sent, because other ranks wait for this one.
      const auto gradient =
          gradients[0].defined() ? gradients[0].contiguous() : at::zeros(like_.sizes(), like_.options());
      exchange_->gradient = exchange_->start(gradient, exchange_->received, exchange_->sent);
    }
    if (departed_) departed_();
    return {like_};  // placeholder that only enforces order: StartBackward returns the actual gradient
  }
  const char* name() const override { return "finish_exchange"; }

 private:
  std::shared_ptr<Exchange> exchange_;
  at::Tensor like_;
  std::function<void()> departed_;
};

}  // namespace

model::RowsInFlight start_exchange(const std::shared_ptr<comm::Communicator>& group, const at::Tensor& x, Rows sent,
                                   Rows received) {
  auto exchange = std::make_shared<Exchange>(Exchange{group, std::move(sent), std::move(received)});
  at::Tensor rows;
  {
    ops::NoGraph guard;
    rows = exchange->start(x.detach().contiguous(), exchange->sent, exchange->received);
  }
  if (ops::records({x})) ops::record({rows}, {x}, std::make_unique<StartBackward>(exchange));
  return {rows, {}, exchange};
}

at::Tensor finish_exchange(const model::RowsInFlight& in_flight, std::function<void()> departed) {
  const auto exchange = std::static_pointer_cast<Exchange>(in_flight.state);
  exchange->finish();
  at::Tensor rows;
  {
    ops::NoGraph guard;
    rows = in_flight.rows.detach();
  }
  if (ops::records({in_flight.rows}))
    ops::record({rows}, {in_flight.rows},
                std::make_unique<FinishBackward>(exchange, rows.detach(), std::move(departed)));
  return rows;
}

}  // namespace automodel::parallel
