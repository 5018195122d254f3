// Captured work as CUDA graphs, by LibTorch's at::cuda::CUDAGraph.
#pragma once

#include <memory>

#include "ops/captured_work.h"

namespace automodel {

/// Captures work of the calling thread on its current device.
std::unique_ptr<ops::WorkCapture> make_graph_capture();

}  // namespace automodel
