// A GPU that computes nothing: stand-ins for libcudart, libcuda, cuBLAS, cuDNN and NCCL, put under the real
// libtorch_cuda.so with LD_PRELOAD (build.py makes them, null_device_test.py uses them). What happens on the host is
// LibTorch's own: its checks of shapes and types, its allocator, its choice of kernels, its capture of graphs. Device
// memory is addresses without pages, so a host that reads or writes it crashes; what is copied to the host is zero,
// but for the number of rows of each expert.
//
//   NULL_DEVICE_COUNT    GPUs of this machine (8)
//   NULL_DEVICE_MEMORY   MiB of each (81,559, an H100's)
//   NULL_DEVICE_REPORT   a folder; at its end each process writes PID.json there: launches by kernel, matmuls with
//                        their FLOPs, copies by direction, waits of the host, memory, collectives
//   NULL_DEVICE_BEHIND   work is done when that many more operations have been enqueued, or the host waits for it (0)
//
// A function that this device does not have ends the process with its name (stubs.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <cuda.h>
#include <cuda_runtime_api.h>

#define NULL_DEVICE_EXPORT extern "C"

namespace null_device {

/// One capture of a graph: the streams that take part, and of each which operations the others have seen.
struct Capture {
  unsigned long long id = 0;
  cudaStream_t origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::map<cudaStream_t, std::uint64_t> last;                          ///< operations enqueued so far
  std::map<cudaStream_t, std::map<cudaStream_t, std::uint64_t>> sees;  ///< of others, by way of events
  bool invalid = false;                                                ///< a forbidden call has ended it
  std::shared_ptr<CUgraph_st> graph;
};

}  // namespace null_device

struct CUgraph_st {
  std::uint64_t launches = 0, copies = 0;
};
struct CUgraphExec_st {
  std::shared_ptr<CUgraph_st> graph;
};
struct CUstream_st {
  unsigned flags = 0;
  std::uint64_t enqueued = 0;  ///< number of its last operation, in the order of all streams
  std::shared_ptr<null_device::Capture> capture;
};
struct CUevent_st {
  bool recorded = false;
  bool timed = true;
  double at = 0;                                  ///< host time in ms
  std::uint64_t after = 0;                        ///< the operation that it follows
  std::shared_ptr<null_device::Capture> capture;  ///< recorded inside this capture, seeing `sees`
  std::map<cudaStream_t, std::uint64_t> sees;
};

namespace null_device {

struct Counts {
  std::map<std::string, std::uint64_t> kernels;  ///< launches by name
  std::map<std::string, std::uint64_t> waits;    ///< calls that stop the host until the device is done
  struct Copies {
    std::uint64_t number = 0, bytes = 0;
  };
  std::map<std::string, Copies> copies;  ///< by direction
  std::map<std::string, std::uint64_t> collectives, collective_bytes;
  std::map<std::string, std::vector<std::string>> operations;  ///< of each communicator, in order
  double matmul_flops = 0;
  std::uint64_t matmuls = 0, graph_launches = 0, graph_kernels = 0, allocations = 0;
};

/// Everything that calls share; one lock, since nothing here takes long.
struct Device {
  std::recursive_mutex mutex;
  std::size_t total = 0, used = 0, peak = 0;  ///< bytes of the current device
  int count = 0;
  std::uint64_t behind = 0;
  std::uint64_t issued = 0, done = 0;            ///< operations of all streams
  std::map<std::uintptr_t, std::size_t> blocks;  ///< device memory from cudaMalloc
  std::map<std::uintptr_t, std::size_t> pinned;  ///< host memory that the device can read
  std::uintptr_t space = 0, next = 0, end = 0;   ///< addresses of the device
  std::vector<std::weak_ptr<Capture>> captures;
  std::uint64_t experts = 0;  ///< of the last router that ran, and how many choices it had
  std::int64_t choices = 0;
  Counts counts;
};

Device& device();

/// Takes part of the device's addresses; none is used twice, so that a stale pointer is never a valid one.
std::uintptr_t take_addresses(std::size_t bytes, std::size_t alignment);
bool take_memory(std::size_t bytes);
void give_memory(std::size_t bytes);
bool is_device_address(const void* pointer);

/// Stores the error for cudaGetLastError and returns it.
cudaError_t failed(cudaError_t error);
/// The stream behind a handle; null if there is none.
cudaStream_t stream_of(cudaStream_t handle);

/// Enqueues one operation in `stream`. An error if the stream may not take it (a capture's rules).
cudaError_t enqueue(cudaStream_t stream, const std::string& kernel);
/// A call of the host that waits for the device; an error while a capture forbids it.
cudaError_t wait_for_device(const char* call);
/// Whether a call that is unsafe during a capture (allocation, a query) is forbidden now; ends the capture if so.
bool forbidden_by_capture();
/// Prints why and ends the process.
[[noreturn]] void unknown(const std::string& what);

}  // namespace null_device
