#include "cuda_half/module/graphs.h"

#include <exception>

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

namespace automodel {
namespace {

class Graph : public ops::CapturedWork {
 public:
  void replay() override { graph_.replay(); }
  at::cuda::CUDAGraph& graph() { return graph_; }

 private:
  at::cuda::CUDAGraph graph_;
};

/// Makes later work on `behind` wait for all work submitted to `before` so far.
void order(const c10::cuda::CUDAStream& before, const c10::cuda::CUDAStream& behind) {
  at::cuda::CUDAEvent event;
  event.record(before);
  event.block(behind);
}

class GraphCapture : public ops::WorkCapture {
 public:
  void run(const std::function<void()>& work) override {
    const auto outside = c10::cuda::getCurrentCUDAStream();
    order(outside, side_);
    {
      const c10::cuda::CUDAStreamGuard guard(side_);
      work();
    }
    order(side_, outside);
  }

  std::unique_ptr<ops::CapturedWork> capture(const std::function<void()>& work) override {
    const auto outside = c10::cuda::getCurrentCUDAStream();
    order(outside, side_);
    auto out = std::make_unique<Graph>();
    auto& graph = out->graph();
    {
      const c10::cuda::CUDAStreamGuard guard(side_);
      side_.synchronize();
      c10::cuda::CUDACachingAllocator::emptyCache();  // during a capture it cannot free memory
      // Thread-local, because the threads that watch NCCL query events during the capture.
      graph.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
      try {
        work();
      } catch (...) {
        try {
          graph.capture_end();
        } catch (const std::exception&) {  // the original error is rethrown
        }
        throw;
      }
      graph.capture_end();
    }
    order(side_, outside);
    return out;
  }

 private:
  c10::cuda::CUDAStream side_ = c10::cuda::getStreamFromPool();
  /// Shared by all graphs: replays run one after another, and nothing in the pool is used after a replay ends.
  c10::MempoolId_t pool_ = at::cuda::graph_pool_handle();
};

}  // namespace

std::unique_ptr<ops::WorkCapture> make_graph_capture() {
  return std::make_unique<GraphCapture>();
}

}  // namespace automodel
