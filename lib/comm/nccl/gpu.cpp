#include "comm/nccl/gpu.h"

#include <fmt/format.h>

#include "base/error.h"

namespace automodel::comm {

void check_cuda(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  throw Error(Diagnostic{"cuda-failed"}
                  .says("{} failed: {}", call, cudaGetErrorString(status))
                  .hint("look at the GPU with nvidia-smi and at the kernel's log (Xid)"));
}

GpuEvent::GpuEvent() {
  check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
}

GpuEvent::~GpuEvent() {
  cudaEventDestroy(event_);  // allowed right after recording: the event is freed once it has passed
}

void GpuEvent::record(cudaStream_t stream) {
  check_cuda(cudaEventRecord(event_, stream), "cudaEventRecord");
}

namespace {

/// The result of a query, cleared if it is "not ready": later checks must not see that as an error (LibTorch does the
/// same).
cudaError_t queried(cudaError_t status) {
  if (status == cudaErrorNotReady) cudaGetLastError();
  return status;
}

}  // namespace

bool GpuEvent::passed() const {
  const cudaError_t status = queried(cudaEventQuery(event_));
  if (status == cudaErrorNotReady) return false;
  check_cuda(status, "cudaEventQuery");
  return true;
}

void GpuEvent::hold(cudaStream_t stream) const {
  check_cuda(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent");
}

GpuStream::GpuStream() {
  int least = 0;
  int greatest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest), "cudaStreamCreateWithPriority");
}

cudaError_t GpuStream::state() const {
  return queried(cudaStreamQuery(stream_));
}

GpuStream::~GpuStream() {
  cudaStreamDestroy(stream_);
}

}  // namespace automodel::comm
