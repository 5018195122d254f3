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
// This program's own GPU rates have not been measured yet; PyTorch's are used.
constexpr std::array kTimes = {
    StackTimes{Stack::kOwn, 2.0, 50e-6},
    StackTimes{Stack::kPytorch, 2.0, 50e-6},
    StackTimes{Stack::kTransformerEngine, 1.5, 150e-6},
};

struct StackShares {
  Stack stack;
  Generation generation;
  double products, products_float8, attention, experts;
};
// Fitted on published runs; rows without runs use the numbers of the nearest generation.
constexpr std::array kShares = {
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

StackRates stack_rates(Stack stack, Generation generation) {
  StackRates out;
  for (const auto& each : kTimes)
    if (each.stack == stack) {
      out.moved = each.moved;
      out.layer_overhead = each.layer_overhead;
    }
  const Stack shares = stack == Stack::kOwn ? Stack::kPytorch : stack;
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
