// Reduction arithmetic on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <c10/core/ScalarType.h>

#include "comm/communicator.h"

namespace automodel::comm {

/// Whether reduce_in_order supports the dtype.
bool can_reduce(c10::ScalarType dtype);

/// out[i] = inputs[0][i] op inputs[1][i] op ... for `count` elements, in the order of `inputs`. bf16 and f16 are
/// accumulated in float and rounded once (to nearest even); the sum of bools is "or"; NaN beats every number in max and
/// min. `out` may be one of the inputs but must not partially overlap any. Single-threaded.
void reduce_in_order(c10::ScalarType dtype, ReduceOp op, std::byte* out, std::span<const std::byte* const> inputs,
                     std::int64_t count);

}  // namespace automodel::comm
