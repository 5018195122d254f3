#include "comm/nccl/watch.h"

#include <exception>
#include <future>
#include <utility>

#include <fmt/format.h>

namespace automodel::comm {
namespace {

constexpr std::chrono::milliseconds kPace{20};
/// Time limit for aborting communicators; the process ends anyway.
constexpr std::chrono::seconds kAbortLimit{2};

}  // namespace

void check_nccl(ncclResult_t status, const char* call) {
  if (status == ncclSuccess) return;
  throw Error(Diagnostic{"transport-failed"}
                  .says("{} failed: {}: {}", call, ncclGetErrorString(status), ncclGetLastError(nullptr))
                  .hint("NCCL_DEBUG=WARN in the environment makes NCCL say more"));
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

Watch::Watch(World& world)
    : world_(world),
      looks_([this] {
        repeat([this, ready = false]() mutable {
          if (!std::exchange(ready, true)) check_cuda(cudaSetDevice(world_.device().index()), "cudaSetDevice");
          look();
        });
      }),
      guard_([this] { repeat([this] { guard(); }); }) {}

Watch::~Watch() {
  stop_ = true;
  looks_.join();
  guard_.join();
}

void Watch::follow(const std::shared_ptr<Flight>& flight) {
  const std::lock_guard lock(mutex_);
  arrived_.push_back({flight});
}

void Watch::add(ncclComm_t communicator) {
  const std::lock_guard lock(mutex_);
  communicators_.push_back(communicator);
}

bool Watch::remove(ncclComm_t communicator) {
  const std::lock_guard lock(mutex_);
  return std::erase(communicators_, communicator) > 0;
}

void Watch::repeat(const std::function<void()>& work) {
  try {
    try {
      for (; !stop_; std::this_thread::sleep_for(kPace)) work();
    } catch (const JobEnded&) {
      throw;
    } catch (const Error& error) {
      end_job(error.code(), error.what());
    } catch (const std::exception& error) {
      end_job(ExitCode::kInternal, fmt::format("error[internal]: {}", error.what()));
    }
  } catch (const JobEnded&) {
    // Ranks that are threads of one process end at their next use of a communicator.
  }
}

void Watch::look() {
  look_began_ = Clock::now().time_since_epoch().count();
  {
    const std::lock_guard lock(mutex_);
    for (const ncclComm_t communicator : communicators_) {
      ncclResult_t state = ncclSuccess;
      check_nccl(ncclCommGetAsyncError(communicator, &state), "ncclCommGetAsyncError");  // just reads a flag
      if (state != ncclInProgress) check_nccl(state, "an operation of NCCL");
    }
    for (auto& each : arrived_) followed_.push_back(std::move(each));
    arrived_.clear();
  }
  std::erase_if(followed_, [this](Followed& each) { return look_at(each); });
  if (followed_.empty() && shown_) {
    world_.activity().end_wait();
    shown_ = false;
  }
  look_began_ = 0;
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
  if (now - followed.since > world_.deadline()) {
    const HangError error = world_.hang_error(flight.peers);
    end_job(error.code(), error.what());
  }
  return false;
}

void Watch::guard() {
  const auto began = look_began_.load();
  if (began == 0) return;
  const auto lasts = Clock::now() - Clock::time_point(Clock::duration(began));
  if (lasts > world_.deadline())
    throw Error(Diagnostic{"cuda-failed"}
                    .says("the CUDA driver has not answered for {} s",
                          std::chrono::duration_cast<std::chrono::seconds>(lasts).count())
                    .hint("look at the GPU with nvidia-smi and at the kernel's log (Xid)"));
}

void Watch::enter() {
  ++inside_;
  if (!ending_) return;
  --inside_;
  stop_if_ending();
}

void Watch::stop_if_ending() {
  if (ending_) world_.abort(ExitCode::kInternal, "error[internal]: the job has ended", world_.rank());
}

void Watch::end_job(ExitCode code, const std::string& text) {
  world_.abort(code, text, world_.rank(), [this] { abort_communicators(); });
}

void Watch::abort_communicators() {
  ending_ = true;
  const auto limit = Clock::now() + kAbortLimit;
  // An abort frees the communicator, so nobody may be inside it. Whoever does not come out ends with the process.
  while (inside_ > 0 && Clock::now() < limit) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (inside_ > 0) return;
  std::vector<ncclComm_t> all;
  {
    const std::lock_guard lock(mutex_);
    all.swap(communicators_);
  }
  std::promise<void> done;
  auto over = done.get_future();
  // On a separate thread: an abort may wait for a driver that does not respond.
  std::thread([all = std::move(all), done = std::move(done)]() mutable {
    for (const ncclComm_t each : all) ncclCommAbort(each);
    done.set_value();
  }).detach();
  over.wait_until(limit);
}

}  // namespace automodel::comm
