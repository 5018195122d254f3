// What is kept of the activations between forward and backward passes.
#pragma once

#include <cstdint>
#include <string_view>

namespace automodel::plan {

/// What a layer keeps between its forward and backward pass.
enum class Recompute : std::uint8_t {
  kNone,       ///< everything
  kFull,       ///< only its input; the whole layer is recomputed (Chen et al. 2016)
  kSelective,  ///< what attention's backward needs; norm and MLP are recomputed
};

std::string_view name_of(Recompute recompute);

/// Activations of the first `layers` layers are kept in host memory until the backward pass (Megatron Core's
/// cpu_offloading).
struct ActivationOffloading {
  int layers = 0;
  bool double_buffering = false;     ///< reload into two persistent buffers
  bool retain_host_buffers = false;  ///< keep page-locked buffers between microbatches and steps
};

}  // namespace automodel::plan
