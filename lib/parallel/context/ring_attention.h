// Attention over keys and values that are distributed over a group: queries stay, keys and values travel.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"
#include "ops/attention.h"

namespace automodel::parallel {

/// How keys and values reach the other ranks.
enum class KeyTransport : std::uint8_t {
  kRing,    ///< passed from rank to rank, each step overlapping with its use (Liu et al. 2023); memory for two
            ///< ranks' keys
  kGather,  ///< all-gathered at once; memory for all keys of a layer
};

/// Like ops::attention; q, k, v [batch, tokens here, heads or groups, width], with tokens in the order of token_places
/// over the group. Segments are of the whole sequence. Every query must see at least its own token.
at::Tensor ring_attention(comm::Communicator& group, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const ops::AttentionOptions& options, KeyTransport transport);

}  // namespace automodel::parallel
