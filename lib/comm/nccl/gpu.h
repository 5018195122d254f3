// RAII owners of CUDA streams and events. Includes the CUDA runtime: only for use in this folder.
#pragma once

#include <utility>

#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

namespace automodel::comm {

/// Device type of the tensors carried here: CUDA's. (The tests' imitation of CUDA keeps tensors in host memory.)
inline constexpr c10::DeviceType kGpu = c10::cuda::impl::CUDAGuardImpl::static_type;

/// Throws Error (kEnvironment, id `cuda-failed`) unless `status` is cudaSuccess.
void check_cuda(cudaError_t status, const char* call);

/// A point on a stream.
class GpuEvent {
 public:
  GpuEvent();
  ~GpuEvent();
  GpuEvent(const GpuEvent&) = delete;
  GpuEvent& operator=(const GpuEvent&) = delete;

  void record(cudaStream_t stream);
  /// Whether everything before the last record() is done. Throws if the device failed.
  bool passed() const;
  /// Makes work enqueued on `stream` from now on wait for the last record().
  void hold(cudaStream_t stream) const;

 private:
  cudaEvent_t event_ = nullptr;
};

/// A stream on the current device in addition to those that compute, with the highest priority, so that messages start
/// early and end early.
class GpuStream {
 public:
  GpuStream();
  ~GpuStream();
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;
  cudaStream_t get() const { return stream_; }
  /// cudaSuccess once everything on it is done, cudaErrorNotReady before.
  cudaError_t state() const;

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace automodel::comm
