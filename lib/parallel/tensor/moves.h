// The collectives on activations [batch, tokens, width] in a tensor-parallel group, forward and backward.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"

namespace automodel::parallel {

/// The gradient of each move is another move. moved() is told which, since that depends on what ranks do with the
/// result (Megatron-LM's f and g, Shoeybi et al. 2019; Korthikanti et al. 2022).
enum class Move : std::uint8_t {
  kNone,
  kSum,             ///< all-reduce
  kGatherTokens,    ///< all-gather of tokens, in rank order
  kSumOwnTokens,    ///< reduce-scatter: the sum over ranks of this rank's share of the tokens
  kOwnTokens,       ///< this rank's share of tokens that every rank has
  kGatherFeatures,  ///< all-gather of features (last dimension), concatenated
  kOwnFeatures,     ///< this rank's share of features that every rank has
};

/// Performs a move without recording it in the graph. Shares are equal; x is not changed.
at::Tensor move(comm::Communicator& group, const at::Tensor& x, Move how);

/// The same as an operation of the graph.
at::Tensor moved(comm::Communicator& group, const at::Tensor& x, Move forward, Move backward);

}  // namespace automodel::parallel
