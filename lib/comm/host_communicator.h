// A group's operations over a Transport, from and to host memory.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "comm/engine.h"
#include "comm/rounds.h"
#include "comm/scratch.h"
#include "comm/transport.h"

namespace automodel::comm {

/// What all groups of a rank share.
struct HostRuntime {
  std::shared_ptr<Engine> engine = {};
  std::shared_ptr<ScratchPool> scratch = {};
  RoundLimits limits = {};
  bool stage_all = false;  ///< stage host tensors too (for tests)
};

/// Tensors on other devices go through pinned host memory (Staging). The lower half of the transport's tags is for
/// exchanges, the upper half for collectives.
class HostCommunicator : public Communicator {
 public:
  HostCommunicator(std::vector<int> ranks, int rank, std::string name, std::shared_ptr<Transport> transport,
                   HostRuntime runtime);

  int max_tag() const override { return max_tag_; }
  /// exchange() with other names in reports.
  WorkPtr exchange_as(std::string_view verb, std::string_view group, const std::vector<Transfer>& sends,
                      const std::vector<Transfer>& receives);

 protected:
  WorkPtr start_all_reduce(const at::Tensor& inout, ReduceOp op) override;
  WorkPtr start_all_gather(const at::Tensor& out, const at::Tensor& in) override;
  WorkPtr start_reduce_scatter(const at::Tensor& out, const at::Tensor& in, ReduceOp op) override;
  WorkPtr start_all_to_all(const at::Tensor& out, const at::Tensor& in, std::span<const std::int64_t> out_rows,
                           std::span<const std::int64_t> in_rows) override;
  WorkPtr start_broadcast(const at::Tensor& inout, int root) override;
  WorkPtr start_exchange(std::vector<Transfer> sends, std::vector<Transfer> receives) override;
  WorkPtr start_barrier() override;

 private:
  class HostWork;
  WorkPtr launch(OperationLabel label, Program program, std::vector<at::Tensor> keep, class Staging staging);
  OperationLabel label(std::string_view verb) const { return {verb, name(), ranks()}; }

  std::shared_ptr<Transport> transport_;
  HostRuntime runtime_;
  int max_tag_;
  RoundMaker rounds_;
};

}  // namespace automodel::comm
