// All-to-all of tokens for heads: each rank sends its tokens' other heads to those heads' ranks, and receives all
// tokens for its own heads.
#pragma once

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"

namespace automodel::parallel {

/// x [batch, tokens here, heads, width] to [batch, tokens of the group, heads / size, width], as an operation of the
/// graph. Each rank's tokens form two chunks; the result has all first chunks in rank order, then all second chunks in
/// reverse rank order, so that it again consists of two chunks.
at::Tensor heads_for_tokens(comm::Communicator& group, const at::Tensor& x);
/// The inverse.
at::Tensor tokens_for_heads(comm::Communicator& group, const at::Tensor& x);

}  // namespace automodel::parallel
