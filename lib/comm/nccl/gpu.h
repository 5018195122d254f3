// Streams and events of CUDA as owners. Includes the CUDA runtime: for this folder only.
#pragma once

#include <utility>

#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

namespace automodel::comm {

/// Tensors of this type are carried here: CUDA's. (The tests' imitation of CUDA has its tensors in host memory.)
inline constexpr c10::DeviceType kGpu = c10::cuda::impl::CUDAGuardImpl::static_type;

/// Throws Error (kEnvironment, id `cuda-failed`) unless `status` is cudaSuccess.
void check_cuda(cudaError_t status, const char* call);

/// A moment on a stream.
class GpuEvent {
 public:
  GpuEvent();
  ~GpuEvent();
  GpuEvent(const GpuEvent&) = delete;
  GpuEvent& operator=(const GpuEvent&) = delete;

  void record(cudaStream_t stream);
  /// Whether everything before the last record() is done. Throws where the device failed.
  bool passed() const;
  /// What is enqueued on `stream` from now on waits for the last record().
  void hold(cudaStream_t stream) const;

 private:
  cudaEvent_t event_ = nullptr;
};

/// A stream of the current device beside the ones that compute, with the highest priority: a message that starts early
/// ends early.
class GpuStream {
 public:
  GpuStream();
  ~GpuStream();
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace automodel::comm
