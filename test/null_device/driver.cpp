// libcuda: contexts, and memory that is mapped page by page, which LibTorch's expandable segments use.
#include <cstring>

#include "device.h"

using namespace null_device;  // NOLINT(google-build-using-namespace)

namespace {

struct Memory {
  std::size_t bytes = 0;
  int held = 1;  ///< its creator, and each mapping
};

struct Mapping {
  Memory* memory = nullptr;
  std::size_t bytes = 0;
};

std::map<CUdeviceptr, Mapping>& mappings() {
  static auto* const all = new std::map<CUdeviceptr, Mapping>;
  return *all;
}

void drop(Memory* memory) {
  if (--memory->held > 0) return;
  give_memory(memory->bytes);
  delete memory;
}

Memory* memory_of(CUmemGenericAllocationHandle handle) {
  return reinterpret_cast<Memory*>(handle);  // NOLINT(performance-no-int-to-ptr)
}

constexpr std::size_t kPage = std::size_t{2} << 20;

}  // namespace

NULL_DEVICE_EXPORT CUresult cuInit(unsigned) {
  return CUDA_SUCCESS;
}
NULL_DEVICE_EXPORT CUresult cuDriverGetVersion(int* out) {
  *out = CUDA_VERSION;
  return CUDA_SUCCESS;
}
NULL_DEVICE_EXPORT CUresult cuGetErrorString(CUresult, const char** out) {
  *out = "error of the null device";
  return CUDA_SUCCESS;
}
NULL_DEVICE_EXPORT CUresult cuCtxGetCurrent(CUcontext* out) {
  *out = reinterpret_cast<CUcontext>(&device());
  return CUDA_SUCCESS;
}
NULL_DEVICE_EXPORT CUresult cuCtxSetCurrent(CUcontext) {
  return CUDA_SUCCESS;
}
NULL_DEVICE_EXPORT CUresult cuDeviceGet(CUdevice* out, int index) {
  *out = index;
  return CUDA_SUCCESS;
}
NULL_DEVICE_EXPORT CUresult cuDeviceGetAttribute(int* out, CUdevice_attribute which, CUdevice index) {
  switch (which) {
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: *out = 1; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED: *out = 0; return CUDA_SUCCESS;
    default: return static_cast<CUresult>(cudaDeviceGetAttribute(out, static_cast<cudaDeviceAttr>(which), index));
  }
}
NULL_DEVICE_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return CUDA_SUCCESS;
}
NULL_DEVICE_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice) {
  return cuCtxGetCurrent(out);
}
NULL_DEVICE_EXPORT CUresult cuPointerGetAttribute(void* out, CUpointer_attribute which, CUdeviceptr pointer) {
  if (which != CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) unknown("a pointer's attribute " + std::to_string(which));
  if (!is_device_address(reinterpret_cast<void*>(pointer))) return CUDA_ERROR_INVALID_VALUE;  // NOLINT
  cudaGetDevice(static_cast<int*>(out));
  return CUDA_SUCCESS;
}

NULL_DEVICE_EXPORT CUresult cuMemGetAllocationGranularity(std::size_t* out, const CUmemAllocationProp*,
                                                          CUmemAllocationGranularity_flags) {
  *out = kPage;
  return CUDA_SUCCESS;
}
NULL_DEVICE_EXPORT CUresult cuMemAddressReserve(CUdeviceptr* out, std::size_t bytes, std::size_t alignment, CUdeviceptr,
                                                unsigned long long) {
  const std::lock_guard lock(device().mutex);
  // LibTorch reserves more than the device has memory for each stream and size class; addresses cost nothing here.
  *out = take_addresses(bytes, alignment > kPage ? alignment : kPage);
  return CUDA_SUCCESS;
}
NULL_DEVICE_EXPORT CUresult cuMemAddressFree(CUdeviceptr, std::size_t) {
  return CUDA_SUCCESS;
}
NULL_DEVICE_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle* out, std::size_t bytes,
                                        const CUmemAllocationProp*, unsigned long long) {
  const std::lock_guard lock(device().mutex);
  if (bytes == 0 || bytes % kPage != 0) return CUDA_ERROR_INVALID_VALUE;
  if (forbidden_by_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (!take_memory(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  ++device().counts.allocations;
  *out = reinterpret_cast<CUmemGenericAllocationHandle>(new Memory{bytes});
  return CUDA_SUCCESS;
}
NULL_DEVICE_EXPORT CUresult cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t offset,
                                     CUmemGenericAllocationHandle handle, unsigned long long) {
  const std::lock_guard lock(device().mutex);
  auto* memory = memory_of(handle);
  if (offset != 0 || bytes != memory->bytes || address % kPage != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!mappings().emplace(address, Mapping{memory, bytes}).second) return CUDA_ERROR_ALREADY_MAPPED;
  ++memory->held;
  return CUDA_SUCCESS;
}
NULL_DEVICE_EXPORT CUresult cuMemSetAccess(CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t) {
  return CUDA_SUCCESS;
}
NULL_DEVICE_EXPORT CUresult cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
  const std::lock_guard lock(device().mutex);
  for (const auto end = address + bytes; address < end;) {
    const auto found = mappings().find(address);
    if (found == mappings().end()) return CUDA_ERROR_INVALID_VALUE;
    address += found->second.bytes;
    drop(found->second.memory);
    mappings().erase(found);
  }
  return CUDA_SUCCESS;
}
NULL_DEVICE_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(device().mutex);
  drop(memory_of(handle));
  return CUDA_SUCCESS;
}

/// A descriptor of 64-byte aligned tiles; wrong alignments are refused as the driver does (cuda.h).
NULL_DEVICE_EXPORT CUresult cuTensorMapEncodeTiled(CUtensorMap* out, CUtensorMapDataType, cuuint32_t rank,
                                                   void* address, const cuuint64_t* sizes, const cuuint64_t* strides,
                                                   const cuuint32_t* box, const cuuint32_t*, CUtensorMapInterleave,
                                                   CUtensorMapSwizzle, CUtensorMapL2promotion,
                                                   CUtensorMapFloatOOBfill) {
  std::memset(out, 0, sizeof(*out));
  if (rank < 1 || rank > 5 || reinterpret_cast<std::uintptr_t>(address) % 16 != 0) return CUDA_ERROR_INVALID_VALUE;
  for (cuuint32_t dim = 0; dim < rank; ++dim) {
    if (sizes[dim] == 0 || box[dim] == 0 || box[dim] > 256) return CUDA_ERROR_INVALID_VALUE;
    if (dim + 1 < rank && strides[dim] % 16 != 0) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}
