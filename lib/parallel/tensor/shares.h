// Shares of the tokens that are sent individually, so that a GEMM can start on the first before the last arrives.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"

namespace automodel::parallel {

/// Yields all ranks' shares as they arrive, this rank's own first.
class ShareGather {
 public:
  /// Starts all transfers. `mine` [batch, tokens, width] is contiguous.
  ShareGather(comm::Communicator& group, const at::Tensor& mine);
  /// Calls `use(rank, share)` for every rank.
  void each(const std::function<void(int rank, const at::Tensor& share)>& use);

 private:
  comm::Communicator& group_;
  std::vector<at::Tensor> shares_;
  std::vector<comm::WorkPtr> works_;
};

/// Reduce-scatter of shares that are computed on demand: `make(rank)` returns this rank's part of the share of `rank`,
/// contiguous and shaped like `like`; it is sent while the next is computed. Returns this rank's share, summed in rank
/// order.
at::Tensor sum_shares(comm::Communicator& group, const at::Tensor& like,
                      const std::function<at::Tensor(int rank)>& make);

}  // namespace automodel::parallel
