// Detects GPU operations that never end: the host does not wait for them, so nothing else would notice.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nccl.h>

#include "comm/nccl/gpu.h"
#include "comm/world.h"

namespace automodel::comm {

/// Throws Error (kEnvironment, id `transport-failed`) unless `status` is ncclSuccess.
void check_nccl(ncclResult_t status, const char* call);

/// One operation on one stream, from its launching call to its end on the device.
struct Flight {
  std::string_view verb = {};  ///< must have static storage
  std::string group = {};
  std::vector<int> peers = {};  ///< world ranks that it cannot complete without
  GpuEvent begin = {};          ///< recorded on the stream before the launch
  GpuEvent end = {};            ///< recorded after it
  std::atomic<bool> launched = false;

  /// Keeps tensors alive that the device may still access.
  void keep(std::vector<at::Tensor> tensors);
  void release();

 private:
  std::mutex mutex_;
  std::vector<at::Tensor> tensors_;
};

/// One per process. A thread checks all flights and communicators about fifty times per second. The job is ended
/// (World::abort) if a flight is not launched, or is running on the device, for longer than the world's deadline, or if
/// a communicator reports an error: the main thread may be inside a CUDA or NCCL call that never returns. Time that a
/// flight spends queued behind its stream does not count. While a flight lasts, the rank's activity shows it.
///
/// The checks call CUDA, and a faulty driver may not return from them. No lock is held meanwhile, and a second thread,
/// which only reads the clock, ends the job if one check takes longer than the deadline.
class Watch {
 public:
  explicit Watch(World& world);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// Around calls of NCCL. enter() does not return once the job ends: communicators may be gone.
  void enter();
  void leave() { --inside_; }
  /// Does not return once the job ends.
  void stop_if_ending();
  /// Call before the launch.
  void follow(const std::shared_ptr<Flight>& flight);
  void add(ncclComm_t communicator);
  /// When this returns, the watch no longer uses the communicator. False if the watch has aborted it.
  bool remove(ncclComm_t communicator);

 private:
  using Clock = std::chrono::steady_clock;
  struct Followed {
    std::shared_ptr<Flight> flight;
    Clock::time_point since = Clock::now();  ///< when it was posted, or when it was first seen running
    bool running = false;
  };
  /// Runs `work` periodically until the end; an exception from it ends the job.
  void repeat(const std::function<void()>& work);
  void look();
  /// Whether the flight is over.
  bool look_at(Followed& followed);
  void guard();
  /// Ends the job: the report first, since an abort lets the main thread return from whatever it waits for, with an
  /// error of its own or with garbage.
  void end_job(ExitCode code, const std::string& text);
  /// Tells NCCL to abort what is in flight, so that its kernels do not hold up process exit.
  void abort_communicators();

  World& world_;
  std::mutex mutex_;  ///< guards the two lists below; not held during CUDA calls that can block
  std::vector<Followed> arrived_;
  std::vector<ncclComm_t> communicators_;
  std::vector<Followed> followed_;          ///< only used by the looking thread
  bool shown_ = false;                      ///< whether the activity shows a flight
  std::atomic<Clock::rep> look_began_ = 0;  ///< 0: no check in progress
  std::atomic<bool> stop_ = false;
  std::atomic<bool> ending_ = false;  ///< the report is printed
  std::atomic<int> inside_ = 0;       ///< threads that may be inside NCCL
  std::thread looks_, guard_;
};

}  // namespace automodel::comm
