// Time of attention's scores and weighted values, and of recurrent mixers' states, on GPUs.
#pragma once

#include <cstdint>

#include "arch/model_spec.h"
#include "estimate/hardware.h"

namespace automodel::estimate {

/// Seconds of a layer on one microbatch.
struct ScoreTime {
  double forward = 0, backward = 0;
};

/// `flops` of the forward pass, causal scores counted half, in a layer whose elements have `bytes`. A fused kernel
/// (has_fused_attention) computes two GEMMs forward and five backward, and in between the exponential of each score,
/// which takes the longer the narrower the heads are. This is cuDNN's kernel, for whole sequences. Anything else, with
/// windows shorter than the `sequence`, sinks or `context_ranks` above 1 too, runs at Hardware::attention_efficiency,
/// twice as long in the backward pass, as other stacks' attention does.
ScoreTime score_time(const arch::ModelSpec& spec, int layer, double flops, int bytes, std::int64_t sequence,
                     int context_ranks, const Hardware& hardware);

}  // namespace automodel::estimate
