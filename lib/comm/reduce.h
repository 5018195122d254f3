// The arithmetic of reductions on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <c10/core/ScalarType.h>

#include "comm/communicator.h"

namespace automodel::comm {

/// Whether reduce_in_order knows the type.
bool can_reduce(c10::ScalarType dtype);

/// out[i] = inputs[0][i] op inputs[1][i] op ..., for `count` elements, in the order of `inputs`. bf16 and f16 are
/// accumulated in float and rounded once (to nearest even); a sum of bools is "or"; a NaN wins over every number.
/// `out` may be one of the inputs, but may not overlap one otherwise. Single-threaded.
void reduce_in_order(c10::ScalarType dtype, ReduceOp op, std::byte* out, std::span<const std::byte* const> inputs,
                     std::int64_t count);

}  // namespace automodel::comm
