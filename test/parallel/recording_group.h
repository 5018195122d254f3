// One rank of a group whose other ranks are imagined: they hold what this one holds. Counts its operations.
#pragma once

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/zeros.h>

#include "comm/communicator.h"

namespace automodel::test {

class RecordingGroup : public comm::Communicator {
 public:
  explicit RecordingGroup(int size) : Communicator(first_numbers(size), 0, "recording") {}
  int max_tag() const override { return 1 << 20; }

  int gathers = 0, reductions = 0, exchanges = 0;

 protected:
  comm::WorkPtr start_all_reduce(const at::Tensor&, comm::ReduceOp) override {
    ++reductions;
    return over();
  }
  comm::WorkPtr start_all_gather(const at::Tensor& out, const at::Tensor& in) override {
    ++gathers;
    out.view({size(), -1}).copy_(in.reshape({1, -1}).expand({size(), -1}));
    return over();
  }
  comm::WorkPtr start_reduce_scatter(const at::Tensor& out, const at::Tensor& in, comm::ReduceOp) override {
    ++reductions;
    out.view(-1).copy_(in.view({size(), -1})[0]);
    return over();
  }
  comm::WorkPtr start_all_to_all(const at::Tensor& out, const at::Tensor&, std::span<const std::int64_t>,
                                 std::span<const std::int64_t>) override {
    out.zero_();
    return over();
  }
  comm::WorkPtr start_broadcast(const at::Tensor&, int) override { return over(); }
  comm::WorkPtr start_exchange(std::vector<comm::Transfer>, std::vector<comm::Transfer> receives) override {
    ++exchanges;
    for (auto& each : receives) each.tensor.zero_();
    return over();
  }
  comm::WorkPtr start_barrier() override { return over(); }

 private:
  class Over : public comm::Work {
   public:
    void wait() override {}
    bool done() override { return true; }
  };
  static comm::WorkPtr over() { return std::make_unique<Over>(); }
  static std::vector<int> first_numbers(int count) {
    std::vector<int> out(static_cast<std::size_t>(count));
    std::iota(out.begin(), out.end(), 0);
    return out;
  }
};

}  // namespace automodel::test
