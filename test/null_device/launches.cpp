// Kernels: what libraries register when they are loaded, and the limits of a launch. A kernel that could not start on
// an H100 is refused as the driver would refuse it.
#include <unordered_map>

#include "device.h"

using namespace null_device;  // NOLINT(google-build-using-namespace)

namespace null_device {
namespace {

constexpr int kSharedMemory = 49152, kSharedMemoryOptIn = 232448, kThreads = 1024, kThreadsOfProcessor = 2048;

struct Kernel {
  const char* name;
  int dynamic_shared = kSharedMemory;  ///< as cudaFuncSetAttribute allows
};

std::unordered_map<const void*, Kernel>& kernels() {
  static auto* const all = new std::unordered_map<const void*, Kernel>;
  return *all;
}

struct Configuration {
  dim3 grid, block;
  std::size_t shared = 0;
  cudaStream_t stream = nullptr;
};
thread_local std::vector<Configuration> configurations;
thread_local cudaError_t last_error = cudaSuccess;

/// How many rows each expert gets: the one thing that a host reads from the device and cannot go on without. Every
/// expert gets as many (our kernel place_choices: one block for each expert; its second argument is the number of
/// choices).
void note_choices(const Kernel& kernel, const Configuration& how, void** arguments) {
  if (std::string(kernel.name).find("place_choices") == std::string::npos) return;
  device().experts = how.grid.x;
  device().choices = *static_cast<const std::int64_t*>(arguments[1]);
}

cudaError_t launch(const void* function, const Configuration& how, void** arguments) {
  const std::lock_guard lock(device().mutex);
  const auto found = kernels().find(function);
  if (found == kernels().end()) return failed(cudaErrorInvalidDeviceFunction);
  const auto threads = std::uint64_t{how.block.x} * how.block.y * how.block.z;
  if (threads == 0 || threads > kThreads || how.block.z > 64 || how.grid.x == 0 || how.grid.x > 0x7fffffffU ||
      how.grid.y == 0 || how.grid.y > 65535 || how.grid.z == 0 || how.grid.z > 65535)
    return failed(cudaErrorInvalidConfiguration);
  if (how.shared > static_cast<std::size_t>(found->second.dynamic_shared)) return failed(cudaErrorInvalidValue);
  note_choices(found->second, how, arguments);
  return enqueue(how.stream, found->second.name);
}

}  // namespace

cudaError_t failed(cudaError_t error) {
  last_error = error;
  return error;
}

}  // namespace null_device

NULL_DEVICE_EXPORT void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
NULL_DEVICE_EXPORT void __cudaRegisterFatBinaryEnd(void**) {}
NULL_DEVICE_EXPORT void __cudaUnregisterFatBinary(void**) {}
NULL_DEVICE_EXPORT void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*,
                                               uint3*, dim3*, dim3*, int*) {
  const std::lock_guard lock(device().mutex);
  kernels().emplace(function, Kernel{name});
}
NULL_DEVICE_EXPORT void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}

NULL_DEVICE_EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared,
                                                        CUstream_st* stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}
NULL_DEVICE_EXPORT cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
  if (configurations.empty()) return failed(cudaErrorMissingConfiguration);
  const auto how = configurations.back();
  configurations.pop_back();
  *grid = how.grid;
  *block = how.block;
  *shared = how.shared;
  *static_cast<cudaStream_t*>(stream) = how.stream;
  return cudaSuccess;
}
NULL_DEVICE_EXPORT cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
NULL_DEVICE_EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                                                  std::size_t shared, cudaStream_t stream) {
  return launch(kernel, {grid, block, shared, stream}, arguments);
}
NULL_DEVICE_EXPORT cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                                                std::size_t shared, cudaStream_t stream) {
  return launch(function, {grid, block, shared, stream}, arguments);
}
NULL_DEVICE_EXPORT cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block,
                                                           void** arguments, std::size_t shared, cudaStream_t stream) {
  return launch(function, {grid, block, shared, stream}, arguments);
}
NULL_DEVICE_EXPORT cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* how, const void* function,
                                                   void** arguments) {
  return launch(function, {how->gridDim, how->blockDim, how->dynamicSmemBytes, how->stream}, arguments);
}

NULL_DEVICE_EXPORT cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void* function) {
  const std::lock_guard lock(device().mutex);
  *out = {};
  const auto found = kernels().find(function);
  if (found == kernels().end()) return failed(cudaErrorInvalidDeviceFunction);
  out->maxThreadsPerBlock = kThreads;
  out->numRegs = 32;
  out->binaryVersion = out->ptxVersion = 90;
  out->maxDynamicSharedSizeBytes = found->second.dynamic_shared;
  return cudaSuccess;
}
NULL_DEVICE_EXPORT cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  const std::lock_guard lock(device().mutex);
  const auto found = kernels().find(function);
  if (found == kernels().end()) return failed(cudaErrorInvalidDeviceFunction);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || value > kSharedMemoryOptIn) return failed(cudaErrorInvalidValue);
  found->second.dynamic_shared = value;
  return cudaSuccess;
}
NULL_DEVICE_EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* out, const void*,
                                                                                      int threads, std::size_t shared,
                                                                                      unsigned) {
  if (threads <= 0 || threads > kThreads) return failed(cudaErrorInvalidValue);
  *out = kThreadsOfProcessor / threads;
  if (shared > 0) *out = std::min<int>(*out, static_cast<int>((kSharedMemoryOptIn + 1024) / (shared + 1024)));
  return cudaSuccess;
}
NULL_DEVICE_EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* out, const void* function,
                                                                             int threads, std::size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out, function, threads, shared, 0);
}

NULL_DEVICE_EXPORT cudaError_t cudaGetLastError() {
  const auto out = last_error;
  last_error = cudaSuccess;
  return out;
}
NULL_DEVICE_EXPORT cudaError_t cudaPeekAtLastError() {
  return last_error;
}
NULL_DEVICE_EXPORT const char* cudaGetErrorName(cudaError_t error) {
  return cudaGetErrorString(error);
}
NULL_DEVICE_EXPORT const char* cudaGetErrorString(cudaError_t error) {
  static std::map<int, std::string> texts;
  const std::lock_guard lock(device().mutex);
  auto& text = texts[error];
  if (text.empty()) text = "CUDA error " + std::to_string(static_cast<int>(error)) + " of the null device";
  return text.c_str();
}
