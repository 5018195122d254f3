#include "comm/imitated_gpu/gpu.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <c10/cuda/CUDAStream.h>
#include <nccl.h>

#include "comm/nccl/nccl.h"
#include "comm/reduce.h"

// An event that happens once; waits use `std::atomic::wait`.
struct Mark {
  std::atomic<bool> passed = false;
  void pass() {
    passed = true;
    passed.notify_all();
  }
  void wait() const { passed.wait(false); }
};

namespace {

using namespace automodel;
using Bytes = std::vector<std::byte>;

constexpr std::byte kPoison{0xff};  // a NaN in every floating-point type
constexpr int kCtas = 32;           // by default
constexpr std::chrono::milliseconds kAbortLasts{100};

struct State {
  std::mutex mutex;
  test::GpuBehaviour behaviour;
  std::mt19937_64 random;
  std::string mistake;
  std::atomic<bool> stalled = false, broken = false;
  std::atomic<int> streams = 0, buses = 0, aborted = 0, buffers = 0;
};
State& state() {
  static auto* only = new State;  // outlives detached threads
  return *only;
}

void found(const std::string& mistake) {
  const std::lock_guard lock(state().mutex);
  if (state().mistake.empty()) state().mistake = mistake;
}

/// What a thread has put on its own current stream.
struct Host {
  std::uint64_t records = 0;   ///< events recorded
  std::uint64_t launched = 0;  ///< the last of them that an operation was launched after
};
Host& host() {
  thread_local Host mine;
  return mine;
}

struct Range {
  const std::byte* begin = nullptr;
  std::size_t size = 0;
  bool overlaps(const Range& other) const {
    return size > 0 && other.size > 0 && begin < other.begin + other.size && other.begin < begin + size;
  }
};

/// One NCCL call.
struct Op {
  std::string verb;
  Range in = {};
  std::byte* out = nullptr;
  std::size_t out_size = 0;
  std::size_t count = 0;  ///< elements that are reduced
  ncclDataType_t type = ncclUint8;
  ncclRedOp_t reduce = ncclSum;
  int other = 0;      ///< root or peer
  bool late = false;  ///< until it begins, earlier operations on the same stream own its buffers
  Bytes copy = {};    ///< of the input
  /// Whoever touches the buffers holds `touching`. Nobody does once it is cancelled, as they may have been freed.
  std::unique_ptr<std::mutex> touching = std::make_unique<std::mutex>();
  bool cancelled = false;

  Range written() const { return {out, out_size}; }
  void cancel() {
    const std::lock_guard lock(*touching);
    cancelled = true;
  }
  void write(const Bytes& result) {
    const std::lock_guard lock(*touching);
    if (!cancelled) std::copy(result.begin(), result.end(), out);
  }
  /// False if it is cancelled.
  bool take() {
    const std::lock_guard lock(*touching);
    if (cancelled) return false;
    copy.assign(in.begin, in.begin + in.size);
    std::fill(out, out + out_size, kPoison);
    return true;
  }
  /// Reports writes to its buffers since take(). False if it is cancelled.
  bool check() const {
    const std::lock_guard lock(*touching);
    if (!cancelled) look();
    return !cancelled;
  }

 private:
  void look() const {
    for (std::size_t i = 0; i < in.size; ++i) {
      const auto* at = in.begin + i;
      if (at >= out && at < out + out_size) continue;
      if (*at != copy[i]) return found(fmt::format("the input of {} was written to while it was under way", verb));
    }
    if (std::any_of(out, out + out_size, [](std::byte each) { return each != kPoison; }))
      found(fmt::format("the output of {} was written to while it was under way", verb));
  }
};
using OpPtr = std::shared_ptr<Op>;

}  // namespace

struct ImitatedStream {
  bool of_host = false;
  std::mutex mutex;
  std::condition_variable more;
  std::deque<std::function<void()>> tasks;
  bool busy = false, closed = false;
  std::uint64_t held = 0;  ///< the launching thread's last event record that it waits for
  std::vector<OpPtr> unfinished;

  void give(std::function<void()> task) {
    const std::lock_guard lock(mutex);
    tasks.push_back(std::move(task));
    more.notify_one();
  }
};

struct ImitatedEvent {
  std::mutex mutex;
  std::shared_ptr<Mark> mark;
  std::uint64_t record = 0;  ///< number of the record, if on a thread's own stream
};

namespace {

using StreamPtr = std::shared_ptr<ImitatedStream>;

/// Streams by their handles, which may outlive them.
std::map<cudaStream_t, StreamPtr>& streams() {
  static auto* all = new std::map<cudaStream_t, StreamPtr>;
  return *all;
}
StreamPtr stream_of(cudaStream_t handle) {
  const std::lock_guard lock(state().mutex);
  const auto at = streams().find(handle);
  return at == streams().end() ? nullptr : at->second;
}

void run(const StreamPtr& stream) {
  std::unique_lock lock(stream->mutex);
  for (;;) {
    stream->more.wait(lock, [&] { return !stream->tasks.empty() || stream->closed; });
    if (stream->tasks.empty()) return;
    auto task = std::move(stream->tasks.front());
    stream->tasks.pop_front();
    stream->busy = true;
    lock.unlock();
    task();
    lock.lock();
    stream->busy = false;
  }
}

/// The ranks of a communicator.
struct Group {
  std::mutex mutex;
  std::condition_variable changed;
  int size = 0;
  int joined = 0;
  struct Meeting {
    std::map<int, OpPtr> ops;
    bool over = false;
  };
  std::map<std::uint64_t, std::shared_ptr<Meeting>> collectives;
  struct Message {
    OpPtr send, receive;
    bool over = false;
  };
  std::map<std::tuple<int, int, std::uint64_t>, std::shared_ptr<Message>> messages;
  std::map<std::pair<int, int>, int> connecting;  ///< sides that have arrived
  std::map<std::string, int> meeting;             ///< ranks that have arrived at the first collective of a kind
};

std::map<std::string, std::shared_ptr<Group>>& groups() {
  static auto* all = new std::map<std::string, std::shared_ptr<Group>>;
  return *all;
}

}  // namespace

struct ImitatedComm {
  std::shared_ptr<Group> group;
  int rank = 0;
  int ctas = kCtas;
  std::atomic<bool> aborted = false;
  std::atomic<int> inside = 0;  ///< calls
  std::uint64_t collectives = 0;
  std::set<std::string> met;                                     ///< kinds of collectives
  std::map<std::tuple<int, int, bool>, std::uint64_t> messages;  ///< number launched, by sender, receiver and side
  std::set<std::pair<int, int>> connected;
};

namespace {

at::ScalarType scalar_type(ncclDataType_t type) {
  switch (type) {
    case ncclUint8: return at::kByte;
    case ncclInt32: return at::kInt;
    case ncclInt64: return at::kLong;
    case ncclFloat16: return at::kHalf;
    case ncclBfloat16: return at::kBFloat16;
    case ncclFloat32: return at::kFloat;
    case ncclFloat64: return at::kDouble;
  }
  return at::kByte;
}

void reduce(const Group::Meeting& meeting, std::size_t offset, std::byte* out, const Op& op) {
  std::vector<const std::byte*> inputs;
  for (const auto& [rank, each] : meeting.ops) inputs.push_back(each->copy.data() + offset);
  const auto how = op.reduce == ncclSum   ? comm::ReduceOp::kSum
                   : op.reduce == ncclMax ? comm::ReduceOp::kMax
                                          : comm::ReduceOp::kMin;
  comm::reduce_in_order(scalar_type(op.type), how, out, inputs, static_cast<std::int64_t>(op.count));
}

/// Computes the results, in rank order, once every rank has arrived.
void perform(const Group::Meeting& meeting) {
  const auto& first = *meeting.ops.begin()->second;
  for (const auto& [rank, op] : meeting.ops) {
    if (op->verb != first.verb || op->count != first.count || op->type != first.type)
      return found(fmt::format("{} met {} in one communicator", first.verb, op->verb));
  }
  std::vector<Bytes> results;
  for (const auto& [rank, op] : meeting.ops) {
    Bytes result(op->out_size);
    if (op->verb == "all_reduce") reduce(meeting, 0, result.data(), *op);
    if (op->verb == "reduce_scatter")
      reduce(meeting, op->out_size * static_cast<std::size_t>(rank), result.data(), *op);
    if (op->verb == "all_gather") {
      auto* to = result.data();
      for (const auto& [from, each] : meeting.ops) to = std::copy(each->copy.begin(), each->copy.end(), to);
    }
    if (op->verb == "broadcast" && op->out_size > 0) result = meeting.ops.at(op->other)->copy;
    results.push_back(std::move(result));
  }
  std::size_t i = 0;
  for (const auto& [rank, op] : meeting.ops) {
    op->write(results[i++]);
  }
}

void meet(ImitatedComm& comm, std::uint64_t number, const OpPtr& op) {
  auto& group = *comm.group;
  std::unique_lock lock(group.mutex);
  auto& place = group.collectives[number];
  if (!place) place = std::make_shared<Group::Meeting>();
  const auto meeting = place;
  meeting->ops[comm.rank] = op;
  if (static_cast<int>(meeting->ops.size()) == group.size) {
    perform(*meeting);
    meeting->over = true;
    group.collectives.erase(number);
    group.changed.notify_all();
  }
  group.changed.wait(lock, [&] { return meeting->over || comm.aborted; });
  if (!meeting->over) op->cancel();
}

struct Sent {
  OpPtr op;
  int from = 0, to = 0;
  std::uint64_t number = 0;
};

void meet(ImitatedComm& comm, const std::vector<Sent>& all) {
  auto& group = *comm.group;
  std::unique_lock lock(group.mutex);
  std::vector<std::shared_ptr<Group::Message>> mine;
  for (const auto& each : all) {
    auto& message = group.messages[{each.from, each.to, each.number}];
    if (!message) message = std::make_shared<Group::Message>();
    (each.op->verb == "send" ? message->send : message->receive) = each.op;
    mine.push_back(message);
    if (!message->send || !message->receive) continue;
    const auto& send = *message->send;
    auto& receive = *message->receive;
    if (send.in.size != receive.out_size)
      found(fmt::format("a message of {} bytes met a receive of {}", send.in.size, receive.out_size));
    else
      receive.write(send.copy);
    message->over = true;
    group.messages.erase({each.from, each.to, each.number});
    group.changed.notify_all();
  }
  group.changed.wait(lock, [&] {
    return comm.aborted || std::ranges::all_of(mine, [](const auto& message) { return message->over; });
  });
  if (comm.aborted)
    for (const auto& each : all) each.op->cancel();
}

std::chrono::milliseconds longest() {
  const std::lock_guard lock(state().mutex);
  return state().behaviour.longest;
}

/// Waits on the host for all ranks, as NCCL does inside the first collective of each algorithm.
bool connect(ImitatedComm& comm, const std::string& verb) {
  const char* at_once = std::getenv("NCCL_RUNTIME_CONNECT");
  if (at_once != nullptr && std::string(at_once) == "0") return true;
  const auto limit = longest();
  auto& group = *comm.group;
  std::unique_lock lock(group.mutex);
  if (!comm.met.insert(verb).second) return true;
  ++group.meeting[verb];
  group.changed.notify_all();
  const bool there =
      group.changed.wait_for(lock, limit, [&] { return comm.aborted || group.meeting[verb] == group.size; });
  return there && !comm.aborted;
}

/// Connects pairs on the host, as NCCL does inside the first message of a pair.
bool connect(ImitatedComm& comm, const std::vector<Sent>& all) {
  const auto limit = longest();
  auto& group = *comm.group;
  std::unique_lock lock(group.mutex);
  std::vector<std::pair<int, int>> fresh;
  for (const auto& each : all)
    if (each.from != each.to && comm.connected.insert({each.from, each.to}).second) {
      fresh.emplace_back(each.from, each.to);
      ++group.connecting[fresh.back()];
      if (each.to == comm.rank) state().buffers += comm.ctas;
    }
  group.changed.notify_all();
  const bool there = group.changed.wait_for(lock, limit, [&] {
    return comm.aborted || std::ranges::all_of(fresh, [&](const auto& pair) { return group.connecting[pair] == 2; });
  });
  return there && !comm.aborted;
}

/// Calls between ncclGroupStart and ncclGroupEnd.
struct Call {
  ncclComm_t comm;
  cudaStream_t stream;
  OpPtr op;
};
struct Calls {
  int depth = 0;
  std::vector<Call> all;
};
Calls& calls() {
  thread_local Calls mine;
  return mine;
}

thread_local cudaError_t last_error = cudaSuccess;
cudaError_t noted(bool ready) {
  return ready ? cudaSuccess : last_error = cudaErrorNotReady;
}

/// A call inside a communicator.
struct Inside {
  ImitatedComm& comm;
  explicit Inside(ImitatedComm& into) : comm(into) { ++comm.inside; }
  ~Inside() { --comm.inside; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

ncclResult_t launch(ncclComm_t comm, cudaStream_t handle, std::vector<OpPtr> ops) {
  const Inside inside(*comm);
  if (comm->aborted) {
    found("a communicator is used that was aborted, and freed");
    return ncclInvalidUsage;
  }
  if (last_error != cudaSuccess)
    found(fmt::format("{} is launched after an error that nobody has taken", ops.front()->verb));
  const auto stream = stream_of(handle);
  auto& mine = host();
  if (stream->held != mine.records || mine.records == mine.launched)
    found(fmt::format("{} does not wait for what the current stream was given before it", ops.front()->verb));
  mine.launched = mine.records;

  const bool messages = ops.front()->verb == "send" || ops.front()->verb == "receive";
  std::vector<Sent> sent;
  for (const auto& op : messages ? ops : std::vector<OpPtr>()) {
    const bool out = op->verb == "send";
    const int from = out ? comm->rank : op->other, to = out ? op->other : comm->rank;
    sent.push_back({op, from, to, comm->messages[{from, to, out}]++});
  }
  if (messages ? !connect(*comm, sent) : !connect(*comm, ops.front()->verb)) return ncclRemoteError;
  const auto number = messages ? 0 : comm->collectives++;

  std::chrono::microseconds delay{0};
  {
    const std::lock_guard lock(stream->mutex);
    for (const auto& op : ops) {
      for (const auto& before : stream->unfinished)
        op->late = op->late || before->written().overlaps(op->in) || before->written().overlaps(op->written()) ||
                   before->in.overlaps(op->written());
      if (!op->late) op->take();
    }
    stream->unfinished.insert(stream->unfinished.end(), ops.begin(), ops.end());
  }
  {
    const std::lock_guard lock(state().mutex);
    const auto most = state().behaviour.most_delay.count();
    delay = std::chrono::microseconds(most > 0 ? static_cast<long>(state().random() % static_cast<std::uint64_t>(most))
                                               : 0);
  }
  stream->give([comm, stream, ops = std::move(ops), sent = std::move(sent), number, delay, messages] {
    std::this_thread::sleep_for(delay);
    if (!comm->aborted) {
      bool all = true;
      for (const auto& op : ops) all = (op->late ? op->take() : op->check()) && all;
      if (all) messages ? meet(*comm, sent) : meet(*comm, number, ops.front());
    }
    const std::lock_guard lock(stream->mutex);
    std::erase_if(stream->unfinished, [&](const OpPtr& each) { return std::ranges::find(ops, each) != ops.end(); });
  });
  return ncclSuccess;
}

ncclResult_t call(ncclComm_t comm, cudaStream_t stream, Op op) {
  auto shared = std::make_shared<Op>(std::move(op));
  if (calls().depth == 0) return launch(comm, stream, {shared});
  calls().all.push_back({comm, stream, std::move(shared)});
  return ncclSuccess;
}

std::size_t size_of(ncclDataType_t type) {
  return c10::elementSize(scalar_type(type));
}
const std::byte* bytes(const void* data) {
  return static_cast<const std::byte*>(data);
}
std::byte* bytes(void* data) {
  return static_cast<std::byte*>(data);
}

}  // namespace

namespace automodel::test {

void set_gpus(const GpuBehaviour& behaviour) {
  const std::lock_guard lock(state().mutex);
  state().behaviour = behaviour;
  state().random.seed(behaviour.seed);
  state().mistake.clear();
  state().aborted = 0;
  state().buffers = 0;
}
std::string gpu_mistake() {
  const std::lock_guard lock(state().mutex);
  return state().mistake;
}
void stall_driver(bool stalled) {
  state().stalled = stalled;
  state().stalled.notify_all();
}
void break_communicators(bool broken) {
  state().broken = broken;
}
int aborted_communicators() {
  return state().aborted;
}
int message_buffers() {
  return state().buffers;
}
comm::DeviceGroups imitated_nccl() {
  return comm::nccl_calls().groups();
}

}  // namespace automodel::test

// ---- CUDA ----

cudaStream_t c10::cuda::CUDAStream::stream() const {
  thread_local ImitatedStream mine;
  mine.of_host = true;
  return &mine;
}

const char* cudaGetErrorString(cudaError_t status) {
  return status == cudaSuccess ? "no error" : "not ready";
}
cudaError_t cudaSetDevice(int /*device*/) {
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int /*device*/) {
  thread_local const int mine = state().buses++;
  fmt::format_to_n(text, static_cast<std::size_t>(length - 1), "{}", state().behaviour.one_gpu ? 0 : mine);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -1;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned /*flags*/, int /*priority*/) {
  auto made = std::make_shared<ImitatedStream>();
  *stream = made.get();
  {
    const std::lock_guard lock(state().mutex);
    streams()[made.get()] = made;
  }
  std::thread([made] { run(made); }).detach();
  return cudaSuccess;
}
/// Operations in flight when a failed job ends never finish. A GPU's memory would still exist; host memory may not.
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  const auto stream = stream_of(handle);
  {
    const std::lock_guard lock(stream->mutex);
    for (const auto& op : stream->unfinished) op->cancel();
    stream->closed = true;
    stream->more.notify_one();
  }
  const std::lock_guard lock(state().mutex);
  streams().erase(handle);
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  const auto stream = stream_of(handle);
  const std::lock_guard lock(stream->mutex);
  return noted(stream->tasks.empty() && !stream->busy);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned /*flags*/) {
  std::unique_lock lock(event->mutex);
  const auto mark = event->mark;
  const auto record = event->record;
  lock.unlock();
  if (!mark) return cudaSuccess;
  if (handle->of_host) {
    mark->wait();
    return cudaSuccess;
  }
  const auto stream = stream_of(handle);
  if (record > 0) stream->held = record;
  stream->give([mark] { mark->wait(); });
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  *event = new ImitatedEvent;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  auto mark = std::make_shared<Mark>();
  {
    const std::lock_guard lock(event->mutex);
    event->mark = mark;
    event->record = handle->of_host ? ++host().records : 0;
  }
  if (handle->of_host)
    mark->pass();
  else
    stream_of(handle)->give([mark] { mark->pass(); });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  state().stalled.wait(true);
  const std::lock_guard lock(event->mutex);
  return noted(!event->mark || event->mark->passed);
}

// ---- NCCL ----

const char* ncclGetErrorString(ncclResult_t status) {
  return status == ncclSuccess ? "no error" : status == ncclRemoteError ? "remote process exited" : "invalid usage";
}
const char* ncclGetLastError(ncclComm_t /*communicator*/) {
  return "";
}
ncclResult_t ncclGetVersion(int* version) {
  *version = state().behaviour.nccl_version;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> made = 0;
  id->internal = {};
  fmt::format_to_n(id->internal.data(), id->internal.size() - 1, "{}", made++);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  const auto limit = longest();
  std::shared_ptr<Group> group;
  {
    const std::lock_guard lock(state().mutex);
    auto& place = groups()[id.internal.data()];
    if (!place) place = std::make_shared<Group>();
    group = place;
  }
  *communicator = new ImitatedComm;  // never freed: streams may still refer to it
  (*communicator)->group = group;
  (*communicator)->rank = rank;
  if (config->maxCTAs > 0) (*communicator)->ctas = config->maxCTAs;
  std::unique_lock lock(group->mutex);
  group->size = size;
  ++group->joined;
  group->changed.notify_all();
  const bool there = group->changed.wait_for(lock, limit, [&] { return group->joined == size; });
  return there ? ncclSuccess : ncclRemoteError;
}
ncclResult_t ncclCommFinalize(ncclComm_t /*communicator*/) {
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t /*communicator*/) {
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  ++state().aborted;
  if (communicator->inside > 0) found("a communicator is aborted, and freed, while a call is inside it");
  {
    const std::lock_guard lock(communicator->group->mutex);
    communicator->aborted = true;
    communicator->group->changed.notify_all();
  }
  std::this_thread::sleep_for(
      kAbortLasts);  // so that whoever it frees from a wait is seen to act before the abort ends
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t /*communicator*/, ncclResult_t* result) {
  *result = state().broken ? ncclRemoteError : ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclGroupStart() {
  ++calls().depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--calls().depth > 0) return ncclSuccess;
  auto all = std::exchange(calls().all, {});
  if (all.empty()) return ncclSuccess;
  std::vector<OpPtr> ops;
  for (const auto& each : all) {
    if (each.comm != all.front().comm || each.stream != all.front().stream)
      found("one group of calls for two communicators or streams");
    ops.push_back(each.op);
  }
  return launch(all.front().comm, all.front().stream, std::move(ops));
}
ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t communicator, cudaStream_t stream) {
  const auto size = count * size_of(type);
  return call(communicator, stream,
              {.verb = "all_reduce",
               .in = {bytes(in), size},
               .out = bytes(out),
               .out_size = size,
               .count = count,
               .type = type,
               .reduce = op});
}
ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t communicator,
                           cudaStream_t stream) {
  const auto size = count * size_of(type);
  return call(communicator, stream,
              {.verb = "all_gather",
               .in = {bytes(in), size},
               .out = bytes(out),
               .out_size = size * static_cast<std::size_t>(communicator->group->size),
               .count = count,
               .type = type});
}
ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t communicator, cudaStream_t stream) {
  const auto size = count * size_of(type);
  return call(communicator, stream,
              {.verb = "reduce_scatter",
               .in = {bytes(in), size * static_cast<std::size_t>(communicator->group->size)},
               .out = bytes(out),
               .out_size = size,
               .count = count,
               .type = type,
               .reduce = op});
}
ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream) {
  const auto size = count * size_of(type);
  const bool mine = communicator->rank == root;
  return call(communicator, stream,
              {.verb = "broadcast",
               .in = {bytes(in), mine ? size : 0},
               .out = bytes(out),
               .out_size = mine ? 0 : size,
               .count = count,
               .type = type,
               .other = root});
}
ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return call(communicator, stream, {.verb = "send", .in = {bytes(data), count * size_of(type)}, .other = peer});
}
ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return call(communicator, stream,
              {.verb = "receive", .out = bytes(data), .out_size = count * size_of(type), .other = peer});
}
