#include "comm/nccl/communicator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <iterator>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

namespace automodel::comm {
namespace {

/// Time limit for the orderly end of a communicator.
constexpr std::chrono::seconds kEndLimit{10};

/// CTAs, and with them channels, of a communicator for messages: a waiting receive keeps so many multiprocessors from
/// the GEMMs (NCCL's default on NVSwitch is 32 of 132), and each has buffers for every peer.
constexpr int kMessageCtas = 8;

/// Has the watch follow the launch of an operation, however the launch ends. NCCL may be called while it exists.
class Launching {
 public:
  Launching(Watch& watch, std::shared_ptr<Flight> flight) : watch_(watch), flight_(std::move(flight)) {
    watch.enter();
    watch.follow(flight_);
  }
  ~Launching() {
    flight_->launched = true;
    watch_.leave();
  }
  Launching(const Launching&) = delete;
  Launching& operator=(const Launching&) = delete;

 private:
  Watch& watch_;
  std::shared_ptr<Flight> flight_;
};

class NcclWork : public Work {
 public:
  NcclWork(std::vector<std::shared_ptr<Flight>> flights, std::shared_ptr<Watch> watch, at::Device device)
      : flights_(std::move(flights)), watch_(std::move(watch)), device_(device) {}
  void wait() override {
    const c10::cuda::CUDAGuard guard(device_);  // the current stream is that of the calling thread's device
    for (const auto& flight : flights_) {
      flight->end.hold(c10::cuda::getCurrentCUDAStream(device_.index()).stream());
      // Whoever reuses this memory is ordered after the operation, since the stream now waits for it.
      flight->release();
    }
    watch_->stop_if_ending();  // an aborted operation ends with any result
  }
  bool done() override {
    if (!std::ranges::all_of(flights_, [](const auto& flight) { return flight->end.passed(); })) return false;
    // Now, and not when the watch looks next: a pipeline's messages of 20 ms would be kept.
    for (const auto& flight : flights_) flight->release();
    return true;
  }

 private:
  std::vector<std::shared_ptr<Flight>> flights_;  ///< one per lane
  std::shared_ptr<Watch> watch_;
  at::Device device_;
};

bool on_host(const at::Tensor& tensor) {
  return tensor.device().type() != kGpu;
}

/// For operations that only move bytes.
std::size_t bytes_of(const at::Tensor& tensor) {
  return tensor.nbytes();
}

struct NcclReduction {
  ncclDataType_t type;
  ncclRedOp_t op;
};

NcclReduction reduction_of(at::ScalarType type, ReduceOp op) {
  ncclRedOp_t reduce = op == ReduceOp::kSum ? ncclSum : op == ReduceOp::kMax ? ncclMax : ncclMin;
  if (type == at::kBool && op == ReduceOp::kSum) reduce = ncclMax;  // "or"
  static constexpr std::array<std::pair<at::ScalarType, ncclDataType_t>, 8> kTypes = {{{at::kDouble, ncclFloat64},
                                                                                       {at::kFloat, ncclFloat32},
                                                                                       {at::kBFloat16, ncclBfloat16},
                                                                                       {at::kHalf, ncclFloat16},
                                                                                       {at::kLong, ncclInt64},
                                                                                       {at::kInt, ncclInt32},
                                                                                       {at::kByte, ncclUint8},
                                                                                       {at::kBool, ncclUint8}}};
  const auto* found = std::ranges::find(kTypes, type, &std::pair<at::ScalarType, ncclDataType_t>::first);
  AUTOMODEL_CHECK(found != kTypes.end(), "a reduction of a dtype that no backend can reduce");
  return {found->second, reduce};
}

std::vector<int> all_but(int rank, int size) {
  std::vector<int> out;
  for (int r = 0; r < size; ++r)
    if (r != rank) out.push_back(r);
  return out;
}

/// Calls between construction and end() become a single operation.
class CallGroup {
 public:
  CallGroup() { check_nccl(ncclGroupStart(), "ncclGroupStart"); }
  void end() { check_nccl(ncclGroupEnd(), "ncclGroupEnd"); }
};

}  // namespace

bool Pairs::include(int sender, int receiver, int size) const {
  if (sender == receiver || from == From::kNone) return false;
  if (from != From::kAll && (sender % 2 == 0) != (from == From::kEven)) return false;
  const int apart = (receiver - sender + size) % size;
  return !ring || apart == 1 || apart == size - 1;
}

NcclLane::NcclLane(HostCommunicator& host, std::shared_ptr<Watch> watch, std::string_view purpose, Pairs pairs)
    : pairs_(pairs), size_(host.size()), watch_(std::move(watch)) {
  ncclUniqueId id;
  if (host.rank() == 0) check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
  const at::Tensor bytes = at::empty({static_cast<std::int64_t>(sizeof id)}, at::TensorOptions().dtype(at::kByte));
  std::memcpy(bytes.mutable_data_ptr(), &id, sizeof id);
  host.broadcast(bytes, 0)->wait();
  std::memcpy(&id, bytes.const_data_ptr(), sizeof id);

  auto flight = std::make_shared<Flight>();
  flight->verb = purpose;
  flight->group = host.name();
  for (const int other : all_but(host.rank(), host.size()))
    flight->peers.push_back(host.ranks()[static_cast<std::size_t>(other)]);
  flight->begin.record(stream());
  const Launching launching(*watch_, flight);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  if (pairs.from == Pairs::From::kEven || pairs.from == Pairs::From::kOdd) config.maxCTAs = kMessageCtas;
  check_nccl(ncclCommInitRankConfig(&communicator_, host.size(), id, host.rank(), &config), "ncclCommInitRankConfig");
  watch_->add(communicator_);
  connect(host, *flight);
  flight->end.record(stream());
}

void NcclLane::connect(const HostCommunicator& host, Flight& flight) {
  const auto bytes = at::zeros({host.size()}, at::TensorOptions().dtype(at::kByte).device(kGpu));
  auto* data = static_cast<std::byte*>(bytes.mutable_data_ptr());
  flight.keep({bytes});
  // The zeros are written on the current stream, so this lane waits for it.
  flight.begin.record(c10::cuda::getCurrentCUDAStream().stream());
  flight.begin.hold(stream());
  flight.begin.record(stream());
  CallGroup group;
  for (const int other : all_but(host.rank(), host.size())) {
    if (joins(host.rank(), other))
      check_nccl(ncclSend(data + host.rank(), 1, ncclUint8, other, communicator_, stream()), "ncclSend");
    if (joins(other, host.rank()))
      check_nccl(ncclRecv(data + other, 1, ncclUint8, other, communicator_, stream()), "ncclRecv");
  }
  group.end();
}

NcclLane::~NcclLane() {
  if (!watch_->remove(communicator_)) return;
  // While a failed job ends, the other ranks may never arrive, and waiting for them would hide the cause.
  if (std::uncaught_exceptions() > 0) return;
  const auto limit = std::chrono::steady_clock::now() + kEndLimit;
  while (stream_.state() == cudaErrorNotReady && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (stream_.state() == cudaSuccess && ncclCommFinalize(communicator_) == ncclSuccess)
    ncclCommDestroy(communicator_);
  else
    ncclCommAbort(communicator_);
}

NcclCommunicator::NcclCommunicator(std::shared_ptr<HostCommunicator> host, std::shared_ptr<Watch> watch,
                                   Traffic traffic)
    : Communicator(host->ranks(), host->rank(), host->name()),
      host_(std::move(host)),
      watch_(std::move(watch)),
      others_(all_but(rank(), size())) {
  if (traffic.collectives)
    collectives_.emplace(*host_, watch_, "group creation (nccl)",
                         Pairs{traffic.all_to_all ? Pairs::From::kAll : Pairs::From::kNone});
  if (traffic.messages) {
    messages_[0].emplace(*host_, watch_, "group creation (nccl, messages from even places)",
                         Pairs{Pairs::From::kEven, traffic.ring});
    messages_[1].emplace(*host_, watch_, "group creation (nccl, messages from odd places)",
                         Pairs{Pairs::From::kOdd, traffic.ring});
  }
}

std::shared_ptr<Flight> NcclCommunicator::launch(NcclLane& lane, std::string_view verb, const std::vector<int>& peers,
                                                 std::vector<at::Tensor> tensors, const Launch& calls) {
  const at::Device device = tensors.front().device();
  const c10::cuda::CUDAGuard guard(device);
  auto flight = std::make_shared<Flight>();
  flight->verb = verb;
  flight->group = name();
  for (const int peer : peers) flight->peers.push_back(ranks()[static_cast<std::size_t>(peer)]);
  flight->keep(std::move(tensors));
  // The operation is ordered after everything enqueued on the current stream so far; `begin` fires when it may run.
  flight->begin.record(c10::cuda::getCurrentCUDAStream(device.index()).stream());
  flight->begin.hold(lane.stream());
  flight->begin.record(lane.stream());
  const Launching launching(*watch_, flight);
  calls(lane.get(), lane.stream());
  flight->end.record(lane.stream());
  return flight;
}

WorkPtr NcclCommunicator::launch_collective(std::string_view verb, std::vector<at::Tensor> tensors,
                                            const Launch& calls) {
  const at::Device device = tensors.front().device();
  return std::make_unique<NcclWork>(std::vector{launch(*collectives_, verb, others_, std::move(tensors), calls)},
                                    watch_, device);
}

WorkPtr NcclCommunicator::start_all_reduce(const at::Tensor& inout, ReduceOp op) {
  if (on_host(inout)) return host_->all_reduce(inout, op);
  const NcclReduction how = reduction_of(inout.scalar_type(), op);
  return launch_collective("all_reduce", {inout}, [&](ncclComm_t communicator, cudaStream_t stream) {
    check_nccl(ncclAllReduce(inout.const_data_ptr(), inout.mutable_data_ptr(), static_cast<std::size_t>(inout.numel()),
                             how.type, how.op, communicator, stream),
               "ncclAllReduce");
  });
}

WorkPtr NcclCommunicator::start_all_gather(const at::Tensor& out, const at::Tensor& in) {
  if (on_host(in)) return host_->all_gather(out, in);
  return launch_collective("all_gather", {out, in}, [&](ncclComm_t communicator, cudaStream_t stream) {
    check_nccl(
        ncclAllGather(in.const_data_ptr(), out.mutable_data_ptr(), bytes_of(in), ncclUint8, communicator, stream),
        "ncclAllGather");
  });
}

WorkPtr NcclCommunicator::start_reduce_scatter(const at::Tensor& out, const at::Tensor& in, ReduceOp op) {
  if (on_host(in)) return host_->reduce_scatter(out, in, op);
  const NcclReduction how = reduction_of(in.scalar_type(), op);
  return launch_collective("reduce_scatter", {out, in}, [&](ncclComm_t communicator, cudaStream_t stream) {
    check_nccl(ncclReduceScatter(in.const_data_ptr(), out.mutable_data_ptr(), static_cast<std::size_t>(out.numel()),
                                 how.type, how.op, communicator, stream),
               "ncclReduceScatter");
  });
}

WorkPtr NcclCommunicator::start_all_to_all(const at::Tensor& out, const at::Tensor& in,
                                           std::span<const std::int64_t> out_rows,
                                           std::span<const std::int64_t> in_rows) {
  if (on_host(in)) return host_->all_to_all(out, in, out_rows, in_rows);
  return launch_collective("all_to_all", {out, in}, [&](ncclComm_t communicator, cudaStream_t stream) {
    const auto* from = static_cast<const std::byte*>(in.const_data_ptr());
    auto* to = static_cast<std::byte*>(out.mutable_data_ptr());
    const std::int64_t row = row_bytes(in);
    CallGroup group;
    for (int p = 0; p < size(); ++p) {
      const auto sent = static_cast<std::size_t>(in_rows[static_cast<std::size_t>(p)] * row);
      const auto received = static_cast<std::size_t>(out_rows[static_cast<std::size_t>(p)] * row);
      if (sent > 0) check_nccl(ncclSend(from, sent, ncclUint8, p, communicator, stream), "ncclSend");
      if (received > 0) check_nccl(ncclRecv(to, received, ncclUint8, p, communicator, stream), "ncclRecv");
      from += sent;
      to += received;
    }
    group.end();
  });
}

WorkPtr NcclCommunicator::start_broadcast(const at::Tensor& inout, int root) {
  if (on_host(inout)) return host_->broadcast(inout, root);
  return launch_collective("broadcast", {inout}, [&](ncclComm_t communicator, cudaStream_t stream) {
    check_nccl(ncclBroadcast(inout.const_data_ptr(), inout.mutable_data_ptr(), bytes_of(inout), ncclUint8, root,
                             communicator, stream),
               "ncclBroadcast");
  });
}

WorkPtr NcclCommunicator::start_exchange(std::vector<Transfer> sends, std::vector<Transfer> receives) {
  std::size_t elsewhere = 0;
  for (const auto* list : {&sends, &receives})
    elsewhere += static_cast<std::size_t>(std::ranges::count_if(*list, on_host, &Transfer::tensor));
  AUTOMODEL_CHECK(elsewhere == 0 || elsewhere == sends.size() + receives.size(),
                  "an exchange of host tensors and tensors on a GPU");
  if (elsewhere > 0 || sends.size() + receives.size() == 0)
    return host_->exchange(std::move(sends), std::move(receives));
  const at::Device device = (sends.empty() ? receives : sends).front().tensor.device();
  std::vector<std::shared_ptr<Flight>> flights;
  for (std::size_t lane = 0; lane < messages_.size(); ++lane) {
    const auto from_here = [lane](int sender) { return static_cast<std::size_t>(sender % 2) == lane; };
    std::vector<Transfer> out, in;
    if (from_here(rank())) out = sends;
    std::ranges::copy_if(receives, std::back_inserter(in), from_here, &Transfer::peer);
    if (out.empty() && in.empty()) continue;
    flights.push_back(launch_messages(*messages_[lane], std::move(out), std::move(in)));
  }
  return std::make_unique<NcclWork>(std::move(flights), watch_, device);
}

std::shared_ptr<Flight> NcclCommunicator::launch_messages(NcclLane& lane, std::vector<Transfer> sends,
                                                          std::vector<Transfer> receives) {
  for (const Transfer& transfer : sends)
    AUTOMODEL_CHECK(lane.joins(rank(), transfer.peer), "a message between positions that were not joined");
  std::vector<at::Tensor> tensors;
  std::vector<int> peers;
  // Messages of a pair within one call match by position, so sort them by tag on both sides.
  for (auto* list : {&sends, &receives}) {
    std::ranges::stable_sort(*list, {}, &Transfer::tag);
    for (const Transfer& transfer : *list) {
      tensors.push_back(transfer.tensor);
      if (std::ranges::find(peers, transfer.peer) == peers.end()) peers.push_back(transfer.peer);
    }
  }
  return launch(lane, "exchange", peers, std::move(tensors), [&](ncclComm_t communicator, cudaStream_t stream) {
    CallGroup group;
    for (const Transfer& transfer : sends)
      if (bytes_of(transfer.tensor) > 0)
        check_nccl(ncclSend(transfer.tensor.const_data_ptr(), bytes_of(transfer.tensor), ncclUint8, transfer.peer,
                            communicator, stream),
                   "ncclSend");
    for (const Transfer& transfer : receives)
      if (bytes_of(transfer.tensor) > 0)
        check_nccl(ncclRecv(transfer.tensor.mutable_data_ptr(), bytes_of(transfer.tensor), ncclUint8, transfer.peer,
                            communicator, stream),
                   "ncclRecv");
    group.end();
  });
}

}  // namespace automodel::comm
