// Memory: addresses without pages, and an account of how many bytes a GPU would have given away.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <sys/mman.h>

#include "device.h"

using namespace null_device;  // NOLINT(google-build-using-namespace)

namespace null_device {
namespace {

constexpr std::size_t kSpace = std::size_t{8} << 40;  ///< addresses of a process: 8 TiB are never used up by a test
constexpr std::size_t kPage = std::size_t{2} << 20;   ///< a GPU hands out pages of 2 MiB

std::size_t from_environment(const char* name, std::size_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != '\0' ? std::strtoull(text, nullptr, 10) : otherwise;
}

std::size_t pages(std::size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

/// Where a copy starts and ends, from the addresses; cudaMemcpyDefault asks for the same.
const char* direction(const void* to, const void* from) {
  if (is_device_address(to)) return is_device_address(from) ? "device to device" : "host to device";
  return is_device_address(from) ? "device to host" : "host to host";
}

bool is_pinned(const void* pointer) {
  const auto& pinned = device().pinned;
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  auto after = pinned.upper_bound(address);
  if (after == pinned.begin()) return false;
  --after;
  return address < after->first + after->second;
}

/// What the host finds in `bytes` from the device: zeros, or, after a router, how many rows each expert has.
void read_values(void* to, std::size_t bytes) {
  std::memset(to, 0, bytes);
  const auto& all = device();
  const auto of_router = all.experts * sizeof(std::int64_t);
  if (of_router == 0 || bytes < of_router || bytes % of_router != 0) return;
  if (all.choices % static_cast<std::int64_t>(all.experts) != 0)
    unknown(std::to_string(all.choices) + " choices of " + std::to_string(all.experts) + " experts: not a multiple");
  std::fill_n(static_cast<std::int64_t*>(to), bytes / sizeof(std::int64_t),
              all.choices / static_cast<std::int64_t>(all.experts));
  device().experts = 0;
}

/// The effect of a copy that a host can see.
cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream, bool waits) {
  const std::lock_guard lock(device().mutex);
  if (bytes == 0) return cudaSuccess;
  const std::string way = direction(to, from);
  const bool wrong = (kind == cudaMemcpyHostToDevice && way != "host to device") ||
                     (kind == cudaMemcpyDeviceToHost && way != "device to host") ||
                     (kind == cudaMemcpyDeviceToDevice && way != "device to device");
  if (wrong) return failed(cudaErrorInvalidValue);
  if (way == "host to host" && waits) {
    std::memmove(to, from, bytes);
    return cudaSuccess;
  }
  const bool pageable = (way == "host to device" && !is_pinned(from)) || (way == "device to host" && !is_pinned(to));
  auto& count = device().counts.copies[way + (pageable ? ", pageable" : "")];
  ++count.number;
  count.bytes += bytes;
  if (const auto error = enqueue(stream, ""); error != cudaSuccess) return error;
  // From pageable memory a copy returns when the source is read, to pageable memory when all is written.
  if (waits || (pageable && way == "device to host"))
    if (const auto error = wait_for_device(waits ? "cudaMemcpy" : "cudaMemcpyAsync to pageable memory");
        error != cudaSuccess)
      return error;
  if (way == "device to host") read_values(to, bytes);
  if (way == "host to host") std::memmove(to, from, bytes);
  return cudaSuccess;
}

}  // namespace

Device& device() {
  static Device* const only = [] {
    auto* out = new Device;  // never deleted: libraries free memory while the process ends
    out->count = static_cast<int>(from_environment("NULL_DEVICE_COUNT", 8));
    out->total = from_environment("NULL_DEVICE_MEMORY", 81559) << 20;
    out->behind = from_environment("NULL_DEVICE_BEHIND", 0);
    void* space = mmap(nullptr, kSpace, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED) unknown("no addresses for the device's memory");
    out->space = reinterpret_cast<std::uintptr_t>(space);
    out->next = pages(out->space);
    out->end = out->space + kSpace;
    return out;
  }();
  return *only;
}

std::uintptr_t take_addresses(std::size_t bytes, std::size_t alignment) {
  auto& all = device();
  const auto start = (all.next + alignment - 1) / alignment * alignment;
  if (start + bytes > all.end) unknown("the addresses of the device's memory are used up");
  all.next = start + std::max<std::size_t>(bytes, 1);
  return start;
}

bool take_memory(std::size_t bytes) {
  auto& all = device();
  if (all.used + bytes > all.total) return false;
  all.used += bytes;
  all.peak = std::max(all.peak, all.used);
  return true;
}

void give_memory(std::size_t bytes) {
  device().used -= bytes;
}

bool is_device_address(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  return address >= device().space && address < device().end;
}

void unknown(const std::string& what) {
  std::fprintf(stderr, "null device: %s\n", what.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace null_device

NULL_DEVICE_EXPORT cudaError_t cudaMalloc(void** out, std::size_t bytes) {
  const std::lock_guard lock(device().mutex);
  *out = nullptr;
  if (forbidden_by_capture()) return failed(cudaErrorStreamCaptureUnsupported);
  if (bytes == 0) return cudaSuccess;
  if (!take_memory(pages(bytes))) return failed(cudaErrorMemoryAllocation);
  ++device().counts.allocations;
  const auto address = take_addresses(bytes, kPage);
  device().blocks[address] = pages(bytes);
  *out = reinterpret_cast<void*>(address);
  return cudaSuccess;
}

NULL_DEVICE_EXPORT cudaError_t cudaFree(void* pointer) {
  const std::lock_guard lock(device().mutex);
  if (pointer == nullptr) return cudaSuccess;
  if (const auto error = wait_for_device("cudaFree"); error != cudaSuccess) return error;
  const auto found = device().blocks.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found == device().blocks.end()) return failed(cudaErrorInvalidValue);
  give_memory(found->second);
  device().blocks.erase(found);
  return cudaSuccess;
}

NULL_DEVICE_EXPORT cudaError_t cudaHostAlloc(void** out, std::size_t bytes, unsigned) {
  const std::lock_guard lock(device().mutex);
  if (forbidden_by_capture()) return failed(cudaErrorStreamCaptureUnsupported);
  if (posix_memalign(out, 4096, std::max<std::size_t>(bytes, 1)) != 0) return failed(cudaErrorMemoryAllocation);
  device().pinned[reinterpret_cast<std::uintptr_t>(*out)] = bytes;
  return cudaSuccess;
}

NULL_DEVICE_EXPORT cudaError_t cudaFreeHost(void* pointer) {
  const std::lock_guard lock(device().mutex);
  if (pointer == nullptr) return cudaSuccess;
  if (device().pinned.erase(reinterpret_cast<std::uintptr_t>(pointer)) == 0) return failed(cudaErrorInvalidValue);
  std::free(pointer);
  return cudaSuccess;
}

NULL_DEVICE_EXPORT cudaError_t cudaHostRegister(void* pointer, std::size_t bytes, unsigned) {
  const std::lock_guard lock(device().mutex);
  if (!device().pinned.emplace(reinterpret_cast<std::uintptr_t>(pointer), bytes).second)
    return failed(cudaErrorHostMemoryAlreadyRegistered);
  return cudaSuccess;
}

NULL_DEVICE_EXPORT cudaError_t cudaHostUnregister(void* pointer) {
  const std::lock_guard lock(device().mutex);
  if (device().pinned.erase(reinterpret_cast<std::uintptr_t>(pointer)) == 0)
    return failed(cudaErrorHostMemoryNotRegistered);
  return cudaSuccess;
}

NULL_DEVICE_EXPORT cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const std::lock_guard lock(device().mutex);
  *total = device().total;
  *free = device().total - device().used;
  return cudaSuccess;
}

NULL_DEVICE_EXPORT cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return copy(to, from, bytes, kind, nullptr, true);
}

NULL_DEVICE_EXPORT cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                                               cudaStream_t stream) {
  return copy(to, from, bytes, kind, stream, false);
}

NULL_DEVICE_EXPORT cudaError_t cudaMemset(void* pointer, int, std::size_t bytes) {
  const std::lock_guard lock(device().mutex);
  if (bytes > 0 && !is_device_address(pointer)) return failed(cudaErrorInvalidValue);
  return enqueue(nullptr, "memset");
}

NULL_DEVICE_EXPORT cudaError_t cudaMemsetAsync(void* pointer, int, std::size_t bytes, cudaStream_t stream) {
  const std::lock_guard lock(device().mutex);
  if (bytes > 0 && !is_device_address(pointer)) return failed(cudaErrorInvalidValue);
  return enqueue(stream, "memset");
}

NULL_DEVICE_EXPORT cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* pointer) {
  const std::lock_guard lock(device().mutex);
  *out = {};
  if (is_device_address(pointer)) {
    out->type = cudaMemoryTypeDevice;
    out->devicePointer = const_cast<void*>(pointer);
  } else if (is_pinned(pointer)) {
    out->type = cudaMemoryTypeHost;
    out->hostPointer = out->devicePointer = const_cast<void*>(pointer);
  } else {
    out->type = cudaMemoryTypeUnregistered;
    out->device = -2;
  }
  return cudaSuccess;
}
