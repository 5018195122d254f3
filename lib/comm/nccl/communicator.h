// The verbs of a group for tensors on GPUs, through NCCL.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include <nccl.h>

#include "comm/host_communicator.h"
#include "comm/nccl/gpu.h"
#include "comm/nccl/watch.h"

namespace automodel::comm {

/// A communicator of NCCL with the stream that its operations run on, in the order in which they were launched.
class NcclLane {
 public:
  /// Collective over the ranks of `host`, which carries the unique id. Waits for all of them.
  NcclLane(HostCommunicator& host, std::shared_ptr<Watch> watch, std::string_view purpose);
  /// Waits (not for long) for what is under way; after an error, leaves everything to the end of the process.
  ~NcclLane();
  NcclLane(const NcclLane&) = delete;
  NcclLane& operator=(const NcclLane&) = delete;
  ncclComm_t get() const { return communicator_; }
  cudaStream_t stream() const { return stream_.get(); }

 private:
  std::shared_ptr<Watch> watch_;
  GpuStream stream_;
  ncclComm_t communicator_ = nullptr;
};

/// Operations run on streams of their own, one for collectives and one for exchanges: they begin when the current
/// stream has computed their tensors, and wait() makes the current stream, not the host, wait for them. Host tensors
/// and barriers go through the host's group.
///
/// Narrower than the interface in three ways. The exchanges of a rank happen in the order of posting, and messages of a
/// pair match in that order whatever their tags: a program must end even if every message were a meeting of both sides
/// (test/schedule/meeting_test.cpp shows that all schedules do). Sums are in the order that NCCL chooses. Max and min
/// of a NaN are unspecified.
class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<HostCommunicator> host, std::shared_ptr<Watch> watch);
  int max_tag() const override { return host_->max_tag(); }

 protected:
  WorkPtr start_all_reduce(const at::Tensor& inout, ReduceOp op) override;
  WorkPtr start_all_gather(const at::Tensor& out, const at::Tensor& in) override;
  WorkPtr start_reduce_scatter(const at::Tensor& out, const at::Tensor& in, ReduceOp op) override;
  WorkPtr start_all_to_all(const at::Tensor& out, const at::Tensor& in, std::span<const std::int64_t> out_rows,
                           std::span<const std::int64_t> in_rows) override;
  WorkPtr start_broadcast(const at::Tensor& inout, int root) override;
  WorkPtr start_exchange(std::vector<Transfer> sends, std::vector<Transfer> receives) override;
  WorkPtr start_barrier() override { return host_->barrier(); }

 private:
  using Launch = std::function<void(ncclComm_t communicator, cudaStream_t stream)>;
  /// `peers` are ranks in the group.
  WorkPtr launch(NcclLane& lane, std::string_view verb, const std::vector<int>& peers, std::vector<at::Tensor> tensors,
                 const Launch& calls);
  WorkPtr launch_collective(std::string_view verb, std::vector<at::Tensor> tensors, const Launch& calls);

  std::shared_ptr<HostCommunicator> host_;
  std::shared_ptr<Watch> watch_;
  std::vector<int> others_;  ///< all ranks in the group but this one
  NcclLane collectives_;
  NcclLane exchanges_;
};

}  // namespace automodel::comm
