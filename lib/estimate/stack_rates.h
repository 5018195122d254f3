// What a software stack achieves on a GPU: fractions of data sheet peaks, and overheads. Fitted on published runs, for
// this program measured kernel by kernel (docs/estimates.md); bench/published.py and test/golden/gpu compare.
#pragma once

#include <cstdint>
#include <string_view>

#include "config/run_config.h"

namespace automodel::estimate {

/// GPU generations with comparable tensor core efficiency.
enum class Generation : std::uint8_t { kOlder, kAmpere, kHopper, kBlackwell };

/// What kernels take beside their share of the peak. The defaults are those of stacks whose shares include it.
struct KernelCosts {
  /// Fraction of the special function units' rate that fused attention reaches in the exponentials of its scores,
  /// beside its GEMMs at the rate of `products`; 0: attention has a fraction of the peak.
  double exponentials = 0;
  double expert_tile = 0;   ///< rows by which an expert's rows are filled up to whole tiles, on average
  double expert_rows = 0;   ///< how often an expert's input rows are moved per forward pass, beside `moved`
  double expert_sum = 0;    ///< bytes per element to add experts' weight gradients to the sum of a step
  double logits = 3;        ///< how often the logits are read or written per pass
  double adapter = 0;       ///< seconds that a product of adapters takes to start; 0: their time is that of their FLOPs
  bool step_casts = false;  ///< a step also casts the masters and sets gradients to zero
};

struct StackRates {
  double products = 0;         ///< fraction of the peak reached by the layers' and the head's GEMMs
  double products_float8 = 0;  ///< fraction of the float8 peak, casts included
  double attention = 0;        ///< fraction of the 16-bit peak, with causal scores counted half
  double experts = 0;          ///< fraction of the peak reached by the experts' GEMMs
  double moved = 0;            ///< how often a layer's kept activations are read or written per forward pass
  double layer_overhead = 0;   ///< seconds per layer and pass
  KernelCosts kernels = {};
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
/// This program's. `grouped`: one kernel multiplies all experts of a rank, otherwise each takes the time that it takes
/// with NCCL in other programs, since it was not measured here. If all experts are on one rank, no token is sent.
DispatchTimes own_dispatch_times(bool experts_apart, bool grouped);
std::string_view name_of(config::Stack stack);

}  // namespace automodel::estimate
