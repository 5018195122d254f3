// What a software stack makes of a GPU: shares of the data sheet's peaks, and times that no arithmetic explains. The
// numbers were fitted on published runs (docs/estimates.md); bench/published.py compares with them and with others.
#pragma once

#include <cstdint>
#include <string_view>

#include "config/run_config.h"

namespace automodel::plan {

/// Devices whose tensor cores are used in the same way.
enum class Generation : std::uint8_t { kOlder, kAmpere, kHopper, kBlackwell };

struct StackRates {
  double products = 0;         ///< share of the peak that the layers' and the head's products reach
  double products_float8 = 0;  ///< of the peak of float8, casts included
  double attention = 0;        ///< share of the peak of 16 bits, causal scores counted half
  double experts = 0;          ///< share of the peak that products of experts reach
  double moved = 0;            ///< how often a layer's kept activations are read or written in a forward pass
  double layer_overhead = 0;   ///< seconds a layer and pass
  double expert_overhead = 0;  ///< more in a layer with experts: routing, permutation, waits for counts
  double expert_token = 0;     ///< seconds a token and pass in a layer with experts
};
StackRates stack_rates(config::Stack stack, config::Dispatcher dispatcher, Generation generation);
std::string_view name_of(config::Stack stack);

}  // namespace automodel::plan
