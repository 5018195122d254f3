// What a software stack achieves on a GPU: fractions of data sheet peaks, and overheads. Fitted on published runs
// (docs/estimates.md); bench/published.py compares the estimates with these and other runs.
#pragma once

#include <cstdint>
#include <string_view>

#include "config/run_config.h"

namespace automodel::estimate {

/// GPU generations with comparable tensor core efficiency.
enum class Generation : std::uint8_t { kOlder, kAmpere, kHopper, kBlackwell };

struct StackRates {
  double products = 0;         ///< fraction of the peak reached by the layers' and the head's GEMMs
  double products_float8 = 0;  ///< fraction of the float8 peak, casts included
  double attention = 0;        ///< fraction of the 16-bit peak, with causal scores counted half
  double experts = 0;          ///< fraction of the peak reached by the experts' GEMMs
  double moved = 0;            ///< how often a layer's kept activations are read or written per forward pass
  double layer_overhead = 0;   ///< seconds per layer and pass
};
StackRates stack_rates(config::Stack stack, Generation generation);

/// Time that an expert dispatcher adds to a layer's pass: permutation, token counts that the host waits for, per-expert
/// kernels.
struct DispatchTimes {
  config::Dispatcher dispatcher = config::Dispatcher::kNccl;
  double pass = 0, expert = 0, token = 0;  ///< seconds per pass, plus seconds per expert and per token of a rank
  double seconds(double experts, double tokens) const { return pass + expert * experts + token * tokens; }
};
DispatchTimes dispatch_times(config::Dispatcher dispatcher);
std::string_view name_of(config::Stack stack);

}  // namespace automodel::estimate
