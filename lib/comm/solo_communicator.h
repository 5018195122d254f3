// A group of a single rank.
#pragma once

#include <string>

#include "comm/communicator.h"

namespace automodel::comm {

/// No messages: reductions are no-ops, gathers copy. Every Work is complete immediately. Works on any device.
class SoloCommunicator : public Communicator {
 public:
  SoloCommunicator(int world_rank, std::string name);
  int max_tag() const override;

 protected:
  WorkPtr start_all_reduce(const at::Tensor& inout, ReduceOp op) override;
  WorkPtr start_all_gather(const at::Tensor& out, const at::Tensor& in) override;
  WorkPtr start_reduce_scatter(const at::Tensor& out, const at::Tensor& in, ReduceOp op) override;
  WorkPtr start_all_to_all(const at::Tensor& out, const at::Tensor& in, std::span<const std::int64_t> out_rows,
                           std::span<const std::int64_t> in_rows) override;
  WorkPtr start_broadcast(const at::Tensor& inout, int root) override;
  WorkPtr start_exchange(std::vector<Transfer> sends, std::vector<Transfer> receives) override;
  WorkPtr start_barrier() override;
};

}  // namespace automodel::comm
