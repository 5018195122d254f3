#include "estimate/stack_rates.h"

#include <array>

namespace automodel::estimate {
namespace {

using config::Stack;

/// Device-independent figures.
struct StackTimes {
  Stack stack;
  double moved, layer_overhead;
};
constexpr std::array kTimes = {
    StackTimes{Stack::kOwn, 1.35, 50e-6},
    StackTimes{Stack::kPytorch, 2.0, 50e-6},
    StackTimes{Stack::kTransformerEngine, 1.5, 150e-6},
};

struct StackShares {
  Stack stack;
  Generation generation;
  double products, products_float8, attention, experts;
};
// Fitted on published runs; rows without runs use the numbers of the nearest generation. This program's are measured on
// an H200 in bfloat16 and an H100 in float8 (tensorwise); on other generations it has PyTorch's.
constexpr std::array kShares = {
    StackShares{Stack::kOwn, Generation::kHopper, 0.74, 0.38, 0.16, 0.65},
    StackShares{Stack::kPytorch, Generation::kOlder, 0.62, 0.62, 0.18, 0.50},
    // FlashAttention-2 reaches 1.75 times the share of the peak on A100 that it does on H100, for which it was not
    // made.
    StackShares{Stack::kPytorch, Generation::kAmpere, 0.74, 0.57, 0.28, 0.50},
    StackShares{Stack::kPytorch, Generation::kHopper, 0.63, 0.57, 0.16, 0.50},
    StackShares{Stack::kPytorch, Generation::kBlackwell, 0.63, 0.46, 0.16, 0.30},
    StackShares{Stack::kTransformerEngine, Generation::kOlder, 0.62, 0.62, 0.18, 0.50},
    StackShares{Stack::kTransformerEngine, Generation::kAmpere, 0.74, 0.57, 0.32, 0.50},
    StackShares{Stack::kTransformerEngine, Generation::kHopper, 0.63, 0.57, 0.60, 0.66},
    StackShares{Stack::kTransformerEngine, Generation::kBlackwell, 0.63, 0.46, 0.60, 0.30},
};

/// Measured on an H200 (docs/estimates.md).
constexpr KernelCosts kOwnKernels{.exponentials = 0.65,
                                  .expert_tile = 64,
                                  .expert_rows = 1.9,
                                  .expert_sum = 12,
                                  .logits = 1,
                                  .adapter = 10e-6,
                                  .step_casts = true};

constexpr std::array kDispatch = {
    DispatchTimes{config::Dispatcher::kNccl, 600e-6, 120e-6, 100e-9},
    DispatchTimes{config::Dispatcher::kDeduplicated, 100e-6, 20e-6, 0},
};

}  // namespace

DispatchTimes dispatch_times(config::Dispatcher dispatcher) {
  for (const auto& each : kDispatch)
    if (each.dispatcher == dispatcher) return each;
  return {};
}

DispatchTimes own_dispatch_times(bool experts_apart, bool grouped) {
  auto out = dispatch_times(config::Dispatcher::kNccl);
  if (grouped) out.expert = 0;
  if (!experts_apart) {
    out.pass = 100e-6;
    out.token = 0;
  }
  return out;
}

StackRates stack_rates(Stack stack, Generation generation) {
  StackRates out;
  for (const auto& each : kTimes)
    if (each.stack == stack) {
      out.moved = each.moved;
      out.layer_overhead = each.layer_overhead;
    }
  const bool measured = generation == Generation::kHopper;
  const Stack shares = stack == Stack::kOwn && !measured ? Stack::kPytorch : stack;
  if (stack == Stack::kOwn) {
    out.kernels = kOwnKernels;
    if (!measured) out.kernels.exponentials = 0;
  }
  for (const auto& each : kShares)
    if (each.stack == shares && each.generation == generation) {
      out.products = each.products;
      out.products_float8 = each.products_float8;
      out.attention = each.attention;
      out.experts = each.experts;
    }
  return out;
}

std::string_view name_of(Stack stack) {
  for (const auto& each : config::EnumNames<Stack>::names)
    if (each.value == stack) return each.name;
  return "";
}

}  // namespace automodel::estimate
