// CUDA graphs, with LibTorch's at::cuda::CUDAGraph.
#pragma once

#include <memory>

#include "ops/captured_work.h"

namespace automodel {

/// On the current device, for the calling thread.
std::unique_ptr<ops::WorkCapture> make_graph_capture();

}  // namespace automodel
