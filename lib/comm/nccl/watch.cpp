#include "comm/nccl/watch.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/format.h>

namespace automodel::comm {
namespace {

constexpr std::chrono::milliseconds kPace{20};

}  // namespace

void check_nccl(ncclResult_t status, const char* call) {
  if (status == ncclSuccess) return;
  throw Error(ExitCode::kEnvironment,
              {"transport-failed",
               fmt::format("{} failed: {}: {}", call, ncclGetErrorString(status), ncclGetLastError(nullptr)),
               "NCCL_DEBUG=WARN in the environment makes NCCL say more"});
}

void Flight::keep(std::vector<at::Tensor> tensors) {
  const std::lock_guard lock(mutex_);
  tensors_ = std::move(tensors);
}

void Flight::release() {
  std::vector<at::Tensor> last;  // freed outside the lock
  const std::lock_guard lock(mutex_);
  last.swap(tensors_);
}

Watch::Watch(World& world) : world_(world), thread_([this] { run(); }) {}

Watch::~Watch() {
  stop_ = true;
  thread_.join();
}

void Watch::follow(const std::shared_ptr<Flight>& flight) {
  const std::lock_guard lock(mutex_);
  followed_.push_back({flight});
}

void Watch::add(ncclComm_t communicator) {
  const std::lock_guard lock(mutex_);
  communicators_.push_back(communicator);
}

void Watch::remove(ncclComm_t communicator) {
  const std::lock_guard lock(mutex_);
  std::erase(communicators_, communicator);
}

void Watch::run() {
  try {
    check_cuda(cudaSetDevice(world_.device().index()), "cudaSetDevice");
    for (; !stop_; std::this_thread::sleep_for(kPace)) look();
  } catch (const Error& error) {
    world_.abort(error.code(), error.what(), world_.rank());
  } catch (const std::exception& error) {
    world_.abort(ExitCode::kInternal, fmt::format("error[internal]: {}", error.what()), world_.rank());
  }
}

void Watch::look() {
  const std::lock_guard lock(mutex_);
  for (const ncclComm_t communicator : communicators_) {
    ncclResult_t state = ncclSuccess;
    check_nccl(ncclCommGetAsyncError(communicator, &state), "ncclCommGetAsyncError");
    if (state != ncclInProgress) check_nccl(state, "an operation of NCCL");
  }
  std::erase_if(followed_, [this](Followed& each) { return look_at(each); });
  if (followed_.empty() && shown_) {
    world_.activity().end_wait();
    shown_ = false;
  }
}

bool Watch::look_at(Followed& followed) {
  const Flight& flight = *followed.flight;
  const auto now = Clock::now();
  if (flight.launched) {
    if (flight.end.passed()) {
      followed.flight->release();
      return true;
    }
    if (!flight.begin.passed()) return false;
    if (!std::exchange(followed.running, true)) followed.since = now;
  }
  if (now - followed.since < 2 * kPace) return false;
  world_.activity().begin_wait(flight.verb, flight.group, flight.peers.front());
  shown_ = true;
  if (now - followed.since > world_.deadline()) report(flight);
  return false;
}

void Watch::report(const Flight& flight) {
  const HangError error = world_.hang_error(flight.peers);
  world_.abort(error.code(), error.what(), world_.rank());
}

}  // namespace automodel::comm
