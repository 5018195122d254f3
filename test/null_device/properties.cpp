// What the device says of itself: an H100 SXM of 80 GB (CUDA's deviceQuery), as many of them as NULL_DEVICE_COUNT.
#include <cstdio>
#include <cstring>

#include <dlfcn.h>

#include "device.h"

using namespace null_device;  // NOLINT(google-build-using-namespace)

namespace {

thread_local int current = 0;

int attribute(cudaDeviceAttr which) {
  switch (which) {
    case cudaDevAttrComputeCapabilityMajor: return 9;
    case cudaDevAttrComputeCapabilityMinor: return 0;
    case cudaDevAttrMultiProcessorCount: return 132;
    case cudaDevAttrWarpSize: return 32;
    case cudaDevAttrMaxThreadsPerBlock: return 1024;
    case cudaDevAttrMaxThreadsPerMultiProcessor: return 2048;
    case cudaDevAttrMaxBlocksPerMultiprocessor: return 32;
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY: return 1024;
    case cudaDevAttrMaxBlockDimZ: return 64;
    case cudaDevAttrMaxGridDimX: return 0x7fffffff;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: return 65535;
    case cudaDevAttrMaxSharedMemoryPerBlock: return 49152;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return 232448;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return 233472;
    case cudaDevAttrReservedSharedMemoryPerBlock: return 1024;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor: return 65536;
    case cudaDevAttrL2CacheSize: return 50 << 20;
    case cudaDevAttrClockRate: return 1980000;
    case cudaDevAttrMemoryClockRate: return 2619000;
    case cudaDevAttrGlobalMemoryBusWidth: return 5120;
    case cudaDevAttrTotalConstantMemory: return 65536;
    case cudaDevAttrTextureAlignment: return 512;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrAsyncEngineCount:
    case cudaDevAttrMemoryPoolsSupported: return 1;
    case cudaDevAttrPciDomainId: return 0;
    case cudaDevAttrPciBusId: return current + 1;
    case cudaDevAttrPciDeviceId:
    case cudaDevAttrIntegrated:
    case cudaDevAttrComputeMode:
    case cudaDevAttrHostNativeAtomicSupported: return 0;
    default: unknown("attribute " + std::to_string(which) + " of a device");
  }
}

}  // namespace

NULL_DEVICE_EXPORT cudaError_t cudaGetDeviceCount(int* out) {
  *out = device().count;
  return cudaSuccess;
}
NULL_DEVICE_EXPORT cudaError_t cudaGetDevice(int* out) {
  *out = current;
  return cudaSuccess;
}
NULL_DEVICE_EXPORT cudaError_t cudaSetDevice(int index) {
  if (index < 0 || index >= device().count) return failed(cudaErrorInvalidDevice);
  current = index;
  return cudaSuccess;
}
NULL_DEVICE_EXPORT cudaError_t cudaDeviceGetAttribute(int* out, cudaDeviceAttr which, int) {
  *out = attribute(which);
  return cudaSuccess;
}
NULL_DEVICE_EXPORT cudaError_t cudaDeviceGetPCIBusId(char* out, int size, int index) {
  std::snprintf(out, size, "0000:%02x:00.0", index + 1);
  return cudaSuccess;
}
NULL_DEVICE_EXPORT cudaError_t cudaDeviceCanAccessPeer(int* out, int, int) {
  *out = 1;
  return cudaSuccess;
}
NULL_DEVICE_EXPORT cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) {
  return cudaSuccess;
}
NULL_DEVICE_EXPORT cudaError_t cudaDriverGetVersion(int* out) {
  *out = CUDART_VERSION;
  return cudaSuccess;
}
NULL_DEVICE_EXPORT cudaError_t cudaRuntimeGetVersion(int* out) {
  *out = CUDART_VERSION;
  return cudaSuccess;
}
NULL_DEVICE_EXPORT cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int index) {
  if (index < 0 || index >= device().count) return failed(cudaErrorInvalidDevice);
  std::memset(out, 0, sizeof(*out));
  std::snprintf(out->name, sizeof(out->name), "NVIDIA H100 80GB HBM3");
  out->uuid.bytes[15] = static_cast<char>(index + 1);
  out->totalGlobalMem = device().total;
  out->sharedMemPerBlock = attribute(cudaDevAttrMaxSharedMemoryPerBlock);
  out->sharedMemPerBlockOptin = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  out->sharedMemPerMultiprocessor = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  out->reservedSharedMemPerBlock = attribute(cudaDevAttrReservedSharedMemoryPerBlock);
  out->regsPerBlock = out->regsPerMultiprocessor = attribute(cudaDevAttrMaxRegistersPerBlock);
  out->warpSize = attribute(cudaDevAttrWarpSize);
  out->maxThreadsPerBlock = attribute(cudaDevAttrMaxThreadsPerBlock);
  out->maxThreadsPerMultiProcessor = attribute(cudaDevAttrMaxThreadsPerMultiProcessor);
  out->maxBlocksPerMultiProcessor = attribute(cudaDevAttrMaxBlocksPerMultiprocessor);
  out->maxThreadsDim[0] = out->maxThreadsDim[1] = attribute(cudaDevAttrMaxBlockDimX);
  out->maxThreadsDim[2] = attribute(cudaDevAttrMaxBlockDimZ);
  out->maxGridSize[0] = attribute(cudaDevAttrMaxGridDimX);
  out->maxGridSize[1] = out->maxGridSize[2] = attribute(cudaDevAttrMaxGridDimY);
  out->totalConstMem = attribute(cudaDevAttrTotalConstantMemory);
  out->major = attribute(cudaDevAttrComputeCapabilityMajor);
  out->minor = attribute(cudaDevAttrComputeCapabilityMinor);
  out->multiProcessorCount = attribute(cudaDevAttrMultiProcessorCount);
  out->l2CacheSize = attribute(cudaDevAttrL2CacheSize);
  out->memoryBusWidth = attribute(cudaDevAttrGlobalMemoryBusWidth);
  out->textureAlignment = attribute(cudaDevAttrTextureAlignment);
  out->unifiedAddressing = out->concurrentKernels = out->cooperativeLaunch = out->memoryPoolsSupported = 1;
  out->asyncEngineCount = 3;
  out->pciBusID = index + 1;
  return cudaSuccess;
}

/// Functions of the driver, from the stand-in of libcuda.
NULL_DEVICE_EXPORT cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** out, unsigned,
                                                                unsigned long long,
                                                                cudaDriverEntryPointQueryResult* result) {
  *out = dlsym(RTLD_DEFAULT, symbol);
  if (*out == nullptr) *out = dlsym(RTLD_DEFAULT, (std::string(symbol) + "_v2").c_str());
  if (result != nullptr) *result = *out != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  if (*out == nullptr) std::fprintf(stderr, "null device: the driver has no %s\n", symbol);
  return cudaSuccess;
}
