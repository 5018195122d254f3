// A group's operations on GPU tensors, through NCCL.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <nccl.h>

#include "comm/host_communicator.h"
#include "comm/nccl/gpu.h"
#include "comm/nccl/watch.h"

namespace automodel::comm {

/// Which ranks of a lane will send messages to which.
struct Pairs {
  enum class From : std::uint8_t {
    kNone,  ///< collectives only; NCCL connects those when it creates the communicator (NCCL_RUNTIME_CONNECT=0)
    kAll,
    kEven,  ///< ranks at even positions of the group
    kOdd,
  };
  From from = From::kNone;
  bool ring = false;  ///< only to neighbouring positions, of which the last and the first are two
  /// Whether a group of `size` joins the two.
  bool include(int sender, int receiver, int size) const;
};

/// An NCCL communicator and the stream on which its operations run, in launch order.
class NcclLane {
 public:
  /// Collective over the ranks of `host`, which carries the unique id; waits for all of them. Point-to-point
  /// connections are set up here, for `pairs` only: each costs a receiver up to 9.4 MB per CTA. NCCL would otherwise do
  /// so during the first message of each pair, on the host, where it may block on a rank that is itself waiting for
  /// another lane of this rank, and may allocate memory while an NCCL kernel spins.
  NcclLane(HostCommunicator& host, std::shared_ptr<Watch> watch, std::string_view purpose, Pairs pairs);
  /// Waits briefly for operations in flight; after an error, leaves everything to process exit.
  ~NcclLane();
  NcclLane(const NcclLane&) = delete;
  NcclLane& operator=(const NcclLane&) = delete;
  ncclComm_t get() const { return communicator_; }
  cudaStream_t stream() const { return stream_.get(); }
  /// Whether messages from one position to another were prepared.
  bool joins(int sender, int receiver) const { return pairs_.include(sender, receiver, size_); }

 private:
  void connect(const HostCommunicator& host, Flight& flight);

  Pairs pairs_;
  int size_;
  std::shared_ptr<Watch> watch_;
  GpuStream stream_;
  ncclComm_t communicator_ = nullptr;
};

/// Operations run on their own streams: they start when the current stream has computed their tensors, and wait() makes
/// the current stream, not the host, wait for them. One stream is for collectives and two are for messages: those sent
/// from even and from odd positions of the group. Neighbours in a pipeline or a ring alternate between even and odd
/// positions, so that what a rank sends does not queue behind what it is to receive. Only what the group's traffic
/// needs is created. Host tensors and barriers go through the host's group.
///
/// Narrower than the interface in three ways. Messages on a stream execute in posting order, and messages of a pair
/// match in that order whatever their tags: a program must terminate even if every message were a rendezvous
/// (test/schedule/meeting_test.cpp shows this for all schedules with a single stream for messages; two streams wait for
/// less). Sums are in the order that NCCL chooses. Max and min of a NaN are unspecified.
class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<HostCommunicator> host, std::shared_ptr<Watch> watch, Traffic traffic);
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
  /// `peers` are ranks within the group.
  std::shared_ptr<Flight> launch(NcclLane& lane, std::string_view verb, const std::vector<int>& peers,
                                 std::vector<at::Tensor> tensors, const Launch& calls);
  std::shared_ptr<Flight> launch_messages(NcclLane& lane, std::vector<Transfer> sends, std::vector<Transfer> receives);
  WorkPtr launch_collective(std::string_view verb, std::vector<at::Tensor> tensors, const Launch& calls);

  std::shared_ptr<HostCommunicator> host_;
  std::shared_ptr<Watch> watch_;
  std::vector<int> others_;  ///< all ranks of the group except this one
  std::optional<NcclLane> collectives_;
  std::array<std::optional<NcclLane>, 2> messages_;  ///< sent from even positions, from odd positions
};

}  // namespace automodel::comm
