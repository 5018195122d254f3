// Streams, events and graphs: order without work. What CUDA forbids while a graph is captured is forbidden here.
#include <chrono>

#include "device.h"

using namespace null_device;  // NOLINT(google-build-using-namespace)

namespace null_device {
namespace {

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

CUstream_st& default_stream() {
  static auto* const only = new CUstream_st;
  return *only;
}

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The captures that are going on.
std::vector<std::shared_ptr<Capture>> active() {
  std::vector<std::shared_ptr<Capture>> out;
  std::erase_if(device().captures, [&](const auto& one) {
    auto held = one.lock();
    if (held != nullptr) out.push_back(std::move(held));
    return one.expired();
  });
  return out;
}

/// Ends a capture, if there is one, in which the host asked for something that only a run could answer.
bool spoils(const std::shared_ptr<Capture>& capture) {
  if (capture != nullptr) capture->invalid = true;
  return capture != nullptr;
}

/// Whether the event was recorded in a capture that still goes on.
bool is_captured(const CUevent_st& event) {
  return event.capture != nullptr && event.capture->origin->capture == event.capture;
}

void leave_capture(const std::shared_ptr<Capture>& capture) {
  for (const auto& [stream, last] : capture->last) stream->capture = nullptr;
}

bool is_done(std::uint64_t operation) {
  const auto& all = device();
  return operation <= all.done || operation + all.behind <= all.issued;
}

}  // namespace

cudaStream_t stream_of(cudaStream_t handle) {
  return handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread ? &default_stream() : handle;
}

bool forbidden_by_capture() {
  if (thread_mode == cudaStreamCaptureModeRelaxed) return false;
  bool out = false;
  for (const auto& capture : active())
    if (capture->mode == cudaStreamCaptureModeGlobal) out = capture->invalid = true;
  return out;
}

cudaError_t enqueue(cudaStream_t handle, const std::string& kernel) {
  auto& all = device();
  const auto stream = stream_of(handle);
  if (const auto capture = stream->capture; capture != nullptr) {
    if (capture->invalid) return failed(cudaErrorStreamCaptureInvalidated);
    ++capture->last[stream];
    ++(kernel.empty() ? capture->graph->copies : capture->graph->launches);
    return cudaSuccess;
  }
  // The default stream waits for all others, those that are captured included.
  if (stream == &default_stream()) {
    for (const auto& capture : active()) {
      if ((capture->origin->flags & cudaStreamNonBlocking) != 0) continue;
      capture->invalid = true;
      return failed(cudaErrorStreamCaptureImplicit);
    }
  }
  stream->enqueued = ++all.issued;
  if (!kernel.empty()) ++all.counts.kernels[kernel];
  return cudaSuccess;
}

cudaError_t wait_for_device(const char* call) {
  auto& all = device();
  if (forbidden_by_capture()) return failed(cudaErrorStreamCaptureUnsupported);
  ++all.counts.waits[call];
  all.done = all.issued;
  return cudaSuccess;
}

}  // namespace null_device

NULL_DEVICE_EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned flags, int) {
  const std::lock_guard lock(device().mutex);
  *out = new CUstream_st;
  (*out)->flags = flags;
  return cudaSuccess;
}

NULL_DEVICE_EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(device().mutex);
  if (stream->capture != nullptr) return failed(cudaErrorStreamCaptureUnsupported);
  delete stream;
  return cudaSuccess;
}

NULL_DEVICE_EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

NULL_DEVICE_EXPORT cudaError_t cudaStreamQuery(cudaStream_t handle) {
  const std::lock_guard lock(device().mutex);
  const auto stream = stream_of(handle);
  if (spoils(stream->capture)) return failed(cudaErrorStreamCaptureUnsupported);
  if (forbidden_by_capture()) return failed(cudaErrorStreamCaptureUnsupported);
  return is_done(stream->enqueued) ? cudaSuccess : cudaErrorNotReady;
}

NULL_DEVICE_EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  const std::lock_guard lock(device().mutex);
  const auto stream = stream_of(handle);
  if (spoils(stream->capture)) return failed(cudaErrorStreamCaptureUnsupported);
  return wait_for_device("cudaStreamSynchronize");
}

NULL_DEVICE_EXPORT cudaError_t cudaDeviceSynchronize() {
  const std::lock_guard lock(device().mutex);
  return wait_for_device("cudaDeviceSynchronize");
}

NULL_DEVICE_EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  const std::lock_guard lock(device().mutex);
  const auto stream = stream_of(handle);
  if (!event->recorded) return cudaSuccess;
  if (event->capture == nullptr) {
    if (stream->capture == nullptr) return cudaSuccess;
    stream->capture->invalid = true;  // work inside a graph cannot depend on work outside it
    return failed(cudaErrorStreamCaptureIsolation);
  }
  if (stream->capture == nullptr) {
    if (stream == stream_of(nullptr)) return failed(cudaErrorStreamCaptureImplicit);
    stream->capture = event->capture;  // it joins the capture
    stream->capture->last.try_emplace(stream, 0);
  }
  if (stream->capture != event->capture) {
    stream->capture->invalid = event->capture->invalid = true;
    return failed(cudaErrorStreamCaptureMerge);
  }
  auto& sees = stream->capture->sees[stream];
  for (const auto& [other, last] : event->sees) sees[other] = std::max(sees[other], last);
  return cudaSuccess;
}

NULL_DEVICE_EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  *out = new CUevent_st;
  (*out)->timed = (flags & cudaEventDisableTiming) == 0;
  return cudaSuccess;
}

NULL_DEVICE_EXPORT cudaError_t cudaEventCreate(cudaEvent_t* out) {
  return cudaEventCreateWithFlags(out, cudaEventDefault);
}

NULL_DEVICE_EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard lock(device().mutex);
  delete event;
  return cudaSuccess;
}

NULL_DEVICE_EXPORT cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t handle, unsigned) {
  const std::lock_guard lock(device().mutex);
  const auto stream = stream_of(handle);
  event->recorded = true;
  event->at = now_ms();
  event->capture = stream->capture;
  event->after = stream->enqueued;
  event->sees.clear();
  if (stream->capture != nullptr) {
    if (stream->capture->invalid) return failed(cudaErrorStreamCaptureInvalidated);
    event->sees = stream->capture->sees[stream];
    event->sees[stream] = stream->capture->last[stream];
  }
  return cudaSuccess;
}

NULL_DEVICE_EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

NULL_DEVICE_EXPORT cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(device().mutex);
  if (is_captured(*event) && spoils(event->capture)) return failed(cudaErrorCapturedEvent);
  if (forbidden_by_capture()) return failed(cudaErrorStreamCaptureUnsupported);
  return !event->recorded || is_done(event->after) ? cudaSuccess : cudaErrorNotReady;
}

NULL_DEVICE_EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const std::lock_guard lock(device().mutex);
  if (is_captured(*event) && spoils(event->capture)) return failed(cudaErrorCapturedEvent);
  return wait_for_device("cudaEventSynchronize");
}

NULL_DEVICE_EXPORT cudaError_t cudaEventElapsedTime(float* out, cudaEvent_t from, cudaEvent_t to) {
  const std::lock_guard lock(device().mutex);
  if (!from->recorded || !to->recorded || !from->timed || !to->timed) return failed(cudaErrorInvalidResourceHandle);
  if (!is_done(from->after) || !is_done(to->after)) return cudaErrorNotReady;
  *out = static_cast<float>(to->at - from->at);
  return cudaSuccess;
}

NULL_DEVICE_EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}

NULL_DEVICE_EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  const std::lock_guard lock(device().mutex);
  const auto stream = stream_of(handle);
  if (stream == stream_of(nullptr)) return failed(cudaErrorStreamCaptureUnsupported);
  if (stream->capture != nullptr) return failed(cudaErrorIllegalState);
  static unsigned long long next = 0;
  auto capture = std::make_shared<Capture>();
  capture->id = ++next;
  capture->origin = stream;
  capture->mode = mode;
  capture->last[stream] = 0;
  capture->graph = std::make_shared<CUgraph_st>();
  stream->capture = capture;
  device().captures.push_back(capture);
  return cudaSuccess;
}

NULL_DEVICE_EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* out) {
  const std::lock_guard lock(device().mutex);
  const auto stream = stream_of(handle);
  *out = stream->capture == nullptr ? cudaStreamCaptureStatusNone
         : stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                    : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

NULL_DEVICE_EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* out,
                                                        unsigned long long* id, cudaGraph_t* graph,
                                                        const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                                        std::size_t* number) {
  const std::lock_guard lock(device().mutex);
  const auto stream = stream_of(handle);
  cudaStreamIsCapturing(handle, out);
  if (stream->capture == nullptr) return cudaSuccess;
  if (id != nullptr) *id = stream->capture->id;
  if (graph != nullptr) *graph = stream->capture->graph.get();
  if (nodes != nullptr) *nodes = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (number != nullptr) *number = 0;
  return cudaSuccess;
}

namespace {

/// Graphs that a caller holds; a handle is the address of what is shared.
std::map<cudaGraph_t, std::shared_ptr<CUgraph_st>>& graphs() {
  static auto* const all = new std::map<cudaGraph_t, std::shared_ptr<CUgraph_st>>;
  return *all;
}

}  // namespace

NULL_DEVICE_EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* out) {
  const std::lock_guard lock(device().mutex);
  const auto stream = stream_of(handle);
  const auto capture = stream->capture;
  *out = nullptr;
  if (capture == nullptr) return failed(cudaErrorIllegalState);
  if (capture->origin != stream) return failed(cudaErrorStreamCaptureUnmatched);
  auto& sees = capture->sees[stream];
  bool joined = true;
  for (const auto& [other, last] : capture->last) joined = joined && (other == stream || sees[other] >= last);
  leave_capture(capture);
  if (capture->invalid) return failed(cudaErrorStreamCaptureInvalidated);
  if (!joined) return failed(cudaErrorStreamCaptureUnjoined);
  graphs()[capture->graph.get()] = capture->graph;
  *out = capture->graph.get();
  return cudaSuccess;
}

NULL_DEVICE_EXPORT cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* out, cudaGraph_t graph,
                                                             unsigned long long) {
  const std::lock_guard lock(device().mutex);
  const auto found = graphs().find(graph);
  if (found == graphs().end()) return failed(cudaErrorInvalidValue);
  *out = new CUgraphExec_st{found->second};
  return cudaSuccess;
}

NULL_DEVICE_EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  const std::lock_guard lock(device().mutex);
  ++device().counts.graph_launches;
  device().counts.graph_kernels += graph->graph->launches;
  return enqueue(stream, "");
}

NULL_DEVICE_EXPORT cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, std::size_t* number) {
  const std::lock_guard lock(device().mutex);
  *number = graph->launches + graph->copies;
  return cudaSuccess;
}

NULL_DEVICE_EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const std::lock_guard lock(device().mutex);
  return graphs().erase(graph) == 1 ? cudaSuccess : failed(cudaErrorInvalidValue);
}

NULL_DEVICE_EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  const std::lock_guard lock(device().mutex);
  delete graph;
  return cudaSuccess;
}
