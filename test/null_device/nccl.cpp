// NCCL: communicators whose operations are checked and counted; nothing is sent. A rank's own sequence of operations in
// each communicator is written into the report, so that a test can hold those of all ranks beside each other.
#include <cstring>
#include <random>

#include <nccl.h>

#include "device.h"

using namespace null_device;  // NOLINT(google-build-using-namespace)

struct ncclComm {
  int rank = 0, size = 0, device = 0;
  std::string id;  ///< the same on all ranks but for the rank in it
};

namespace {

thread_local int depth = 0;  ///< of groups

std::size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    default: return 8;
  }
}

/// One operation of `comm` in `stream`; `peer`: of a message, or the root.
ncclResult_t operate(ncclComm_t comm, const char* name, const void* from, const void* to, std::size_t count,
                     ncclDataType_t type, cudaStream_t stream, int peer = -1) {
  const std::lock_guard lock(device().mutex);
  if (comm == nullptr) return ncclInvalidArgument;
  int current = 0;
  cudaGetDevice(&current);
  if (current != comm->device) return ncclInvalidUsage;
  if (count > 0 && ((from != nullptr && !is_device_address(from)) || (to != nullptr && !is_device_address(to))))
    return ncclInvalidArgument;
  if (enqueue(stream, std::string("nccl") + name) != cudaSuccess) return ncclUnhandledCudaError;
  ++device().counts.collectives[name];
  device().counts.collective_bytes[name] += count * bytes_of(type);
  auto line = std::string(name) + " " + std::to_string(count) + " of type " + std::to_string(type);
  device().counts.operations[comm->id].push_back(peer < 0 ? line : line + " with " + std::to_string(peer));
  return ncclSuccess;
}

}  // namespace

NULL_DEVICE_EXPORT ncclResult_t ncclGetVersion(int* out) {
  *out = NCCL_VERSION_CODE;
  return ncclSuccess;
}
NULL_DEVICE_EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId* out) {
  std::random_device random;
  for (char& byte : out->internal) byte = static_cast<char>(random());
  return ncclSuccess;
}
NULL_DEVICE_EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int size, ncclUniqueId id, int rank,
                                                       ncclConfig_t*) {
  if (rank < 0 || rank >= size) return ncclInvalidArgument;
  std::string name;
  for (int byte = 0; byte < 8; ++byte) name += "0123456789abcdef"[id.internal[byte] & 15];
  *out = new ncclComm{rank, size, 0, name + " rank " + std::to_string(rank) + " of " + std::to_string(size)};
  cudaGetDevice(&(*out)->device);
  return ncclSuccess;
}
NULL_DEVICE_EXPORT ncclResult_t ncclCommFinalize(ncclComm_t) {
  return ncclSuccess;
}
NULL_DEVICE_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}
NULL_DEVICE_EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}
NULL_DEVICE_EXPORT const char* ncclGetErrorString(ncclResult_t) {
  return "error of the null device";
}
NULL_DEVICE_EXPORT const char* ncclGetLastError(ncclComm_t) {
  return "";
}
NULL_DEVICE_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* out) {
  *out = ncclSuccess;
  return ncclSuccess;
}
NULL_DEVICE_EXPORT ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}
NULL_DEVICE_EXPORT ncclResult_t ncclGroupEnd() {
  return --depth >= 0 ? ncclSuccess : ncclInvalidUsage;
}
NULL_DEVICE_EXPORT ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                                              ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
  return operate(comm, "AllReduce", from, to, count, type, stream);
}
NULL_DEVICE_EXPORT ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type,
                                              int root, ncclComm_t comm, cudaStream_t stream) {
  if (root < 0 || root >= comm->size) return ncclInvalidArgument;
  return operate(comm, "Broadcast", root == comm->rank ? from : nullptr, to, count, type, stream, root);
}
NULL_DEVICE_EXPORT ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                                                  ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
  return operate(comm, "ReduceScatter", from, to, count, type, stream);
}
NULL_DEVICE_EXPORT ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                                              ncclComm_t comm, cudaStream_t stream) {
  return operate(comm, "AllGather", from, to, count, type, stream);
}
NULL_DEVICE_EXPORT ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer,
                                         ncclComm_t comm, cudaStream_t stream) {
  if (peer < 0 || peer >= comm->size) return ncclInvalidArgument;
  return operate(comm, "Send", from, nullptr, count, type, stream, peer);
}
NULL_DEVICE_EXPORT ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                                         cudaStream_t stream) {
  if (peer < 0 || peer >= comm->size) return ncclInvalidArgument;
  return operate(comm, "Recv", nullptr, to, count, type, stream, peer);
}
