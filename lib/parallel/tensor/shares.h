// Shares of the tokens that travel one by one, so that a product can begin with the first and send the last.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"

namespace automodel::parallel {

/// Gives out all ranks' shares as they come, this rank's own first.
class ShareGather {
 public:
  /// `mine` [batch, tokens, width], contiguous; all messages start now.
  ShareGather(comm::Communicator& group, const at::Tensor& mine);
  /// Calls `use(rank, share)` for every rank.
  void each(const std::function<void(int rank, const at::Tensor& share)>& use);

 private:
  comm::Communicator& group_;
  std::vector<at::Tensor> shares_;
  std::vector<comm::WorkPtr> works_;
};

/// Sums shares that ranks make for each other: `make(rank)` gives this rank's part of the share of `rank`, contiguous
/// and of the shape of `like`; it is sent off while the next is made. Returns the sum of this rank's share in the order
/// of ranks, as a reduce-scatter does.
at::Tensor sum_shares(comm::Communicator& group, const at::Tensor& like,
                      const std::function<at::Tensor(int rank)>& make);

}  // namespace automodel::parallel
