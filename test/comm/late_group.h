// A group whose data arrives only in wait(): until then, what an operation writes holds NaN. Finds code that uses data
// before it has waited, however fast the messages are.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include "comm/communicator.h"

namespace automodel::test {

/// Passes everything on to another group.
class LateGroup : public comm::Communicator {
 public:
  explicit LateGroup(std::shared_ptr<comm::Communicator> inner)
      : Communicator(inner->ranks(), inner->rank(), inner->name() + ", late"), inner_(std::move(inner)) {}
  int max_tag() const override { return inner_->max_tag(); }

 protected:
  comm::WorkPtr start_all_reduce(const at::Tensor& inout, comm::ReduceOp op) override {
    return late(inout, inout.clone(), [&](const at::Tensor& to) { return inner_->all_reduce(to, op); });
  }
  comm::WorkPtr start_all_gather(const at::Tensor& out, const at::Tensor& in) override {
    return late(out, in.clone(), [&](const at::Tensor& from) {
      arriving_ = at::empty_like(out);
      return inner_->all_gather(arriving_, from);
    });
  }
  comm::WorkPtr start_reduce_scatter(const at::Tensor& out, const at::Tensor& in, comm::ReduceOp op) override {
    return late(out, in.clone(), [&](const at::Tensor& from) {
      arriving_ = at::empty_like(out);
      return inner_->reduce_scatter(arriving_, from, op);
    });
  }
  comm::WorkPtr start_all_to_all(const at::Tensor& out, const at::Tensor& in, std::span<const std::int64_t> out_rows,
                                 std::span<const std::int64_t> in_rows) override {
    return late(out, in.clone(), [&](const at::Tensor& from) {
      arriving_ = at::empty_like(out);
      return inner_->all_to_all(arriving_, from, out_rows, in_rows);
    });
  }
  comm::WorkPtr start_broadcast(const at::Tensor& inout, int root) override {
    return late(inout, inout.clone(), [&](const at::Tensor& to) { return inner_->broadcast(to, root); });
  }
  comm::WorkPtr start_exchange(std::vector<comm::Transfer> sends, std::vector<comm::Transfer> receives) override {
    auto work = std::make_unique<Late>();
    for (auto& each : receives) {
      work->places.push_back({each.tensor, at::empty_like(each.tensor)});
      spoil(each.tensor);
      each.tensor = work->places.back().arrived;
    }
    work->inner = inner_->exchange(std::move(sends), std::move(receives));
    return work;
  }
  comm::WorkPtr start_barrier() override { return inner_->barrier(); }

 private:
  struct Place {
    at::Tensor tensor, arrived;
  };
  struct Late : comm::Work {
    comm::WorkPtr inner = {};
    std::vector<Place> places = {};
    void wait() override {
      inner->wait();
      const at::NoGradGuard no_grad;
      for (auto& each : places) each.tensor.copy_(each.arrived);
      places.clear();
    }
    bool done() override { return inner->done(); }
  };

  static void spoil(const at::Tensor& tensor) {
    const at::NoGradGuard no_grad;
    if (tensor.is_floating_point())
      tensor.fill_(std::numeric_limits<double>::quiet_NaN());
    else
      tensor.fill_(-1);
  }

  /// `start` begins the operation on a copy of its input; `out` gets the result in wait(). If `start` leaves arriving_
  /// undefined, the copy itself is the result.
  comm::WorkPtr late(const at::Tensor& out, const at::Tensor& copy,
                     const std::function<comm::WorkPtr(const at::Tensor&)>& start) {
    auto work = std::make_unique<Late>();
    arriving_ = at::Tensor();
    work->inner = start(copy);
    work->places.push_back({out, arriving_.defined() ? arriving_ : copy});
    spoil(out);
    return work;
  }

  std::shared_ptr<comm::Communicator> inner_;
  at::Tensor arriving_ = {};
};

}  // namespace automodel::test
