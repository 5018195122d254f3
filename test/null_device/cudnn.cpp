// cuDNN: the graph interface with which LibTorch asks for fused attention. Descriptors keep what is set in them; a plan
// can always be made, needs no workspace, and is counted when it runs. cuDNN's own rules about shapes are not here:
// they are not in LibTorch's host code but in the library that this replaces.
#include <cstring>

#include <cudnn.h>

#include "device.h"

using namespace null_device;  // NOLINT(google-build-using-namespace)

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

namespace {

struct Descriptor {
  cudnnBackendDescriptorType_t type;
  bool finalized = false;
  std::map<int, std::string> values;  ///< bytes of each attribute
};

}  // namespace

NULL_DEVICE_EXPORT std::size_t cudnnGetVersion() {
  return CUDNN_VERSION;
}
NULL_DEVICE_EXPORT std::size_t cudnnGetCudartVersion() {
  return CUDART_VERSION;
}
NULL_DEVICE_EXPORT cudnnStatus_t cudnnCreate(cudnnHandle_t* out) {
  *out = new cudnnContext;
  return CUDNN_STATUS_SUCCESS;
}
NULL_DEVICE_EXPORT cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
NULL_DEVICE_EXPORT cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* out) {
  *out = handle->stream;
  return CUDNN_STATUS_SUCCESS;
}
NULL_DEVICE_EXPORT const char* cudnnGetErrorString(cudnnStatus_t) {
  return "error of the null device";
}
NULL_DEVICE_EXPORT void cudnnGetLastErrorString(char* out, std::size_t size) {
  if (size > 0) *out = '\0';
}
NULL_DEVICE_EXPORT cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                                              cudnnBackendDescriptor_t* out) {
  *out = new Descriptor{type, false, {}};
  return CUDNN_STATUS_SUCCESS;
}
NULL_DEVICE_EXPORT cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete static_cast<Descriptor*>(descriptor);
  return CUDNN_STATUS_SUCCESS;
}
NULL_DEVICE_EXPORT cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  static_cast<Descriptor*>(descriptor)->finalized = true;
  return CUDNN_STATUS_SUCCESS;
}
NULL_DEVICE_EXPORT cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                                          cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t,
                                                          std::int64_t, const void*) {
  auto& out = *static_cast<Descriptor*>(descriptor);
  if (out.finalized) return CUDNN_STATUS_NOT_INITIALIZED;
  out.values[name];
  return CUDNN_STATUS_SUCCESS;
}
NULL_DEVICE_EXPORT cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor,
                                                          cudnnBackendAttributeName_t name,
                                                          cudnnBackendAttributeType_t type, std::int64_t wanted,
                                                          std::int64_t* found, void* values) {
  const auto& of = *static_cast<Descriptor*>(descriptor);
  if (found != nullptr) *found = 0;
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && of.type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) {
    if (found != nullptr) *found = 1;  // one engine, in the descriptor that the caller has made for it
    return CUDNN_STATUS_SUCCESS;
  }
  const auto bytes = type == CUDNN_TYPE_INT64   ? sizeof(std::int64_t)
                     : type == CUDNN_TYPE_INT32 ? sizeof(std::int32_t)
                                                : 0;
  if (values != nullptr && wanted > 0 && bytes > 0) {
    if (found != nullptr) *found = 1;
    std::memset(values, 0, bytes);  // engine 0, no workspace, no shared memory
  }
  return CUDNN_STATUS_SUCCESS;
}
NULL_DEVICE_EXPORT cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t,
                                                     cudnnBackendDescriptor_t) {
  const std::lock_guard lock(device().mutex);
  return enqueue(handle->stream, "cuDNN graph") == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}
