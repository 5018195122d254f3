// Progresses a rank's operations: from the waiting thread, or from the engine's own thread while nothing waits.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/activity.h"
#include "comm/backoff.h"
#include "comm/hang.h"
#include "comm/operation.h"

namespace automodel::comm {

struct EngineOptions {
  int rank = 0;  ///< world rank
  std::chrono::milliseconds deadline = std::chrono::minutes(10);
  bool thread = true;    ///< progress operations while the rank computes
  bool crowded = false;  ///< more ranks than cores on this host
};

/// One per rank. Operations depend on each other across ranks (two ranks may wait for two operations in opposite
/// orders), so any wait progresses all of them. A single lock covers every use of the transport, which therefore sees
/// one thread at a time. A large operation needs several rounds of messages; the engine's thread advances them while
/// the rank computes, and sleeps when nothing is outstanding.
class Engine {
 public:
  explicit Engine(EngineOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void start(const std::shared_ptr<Operation>& operation);
  /// Progresses all operations; true if any advanced. Returns immediately if another thread is already doing so.
  bool poll();
  /// Waits until the operation is complete. Throws its error, or HangError after the deadline.
  void wait(Operation& operation);
  /// Waits until no operation is outstanding. Also throws the error of an operation that nobody waited for.
  void wait_for_all();
  /// While the lock is held, no other thread is inside the transport. Recursive, since an operation that ends may be
  /// the last owner of a transport.
  std::unique_lock<std::recursive_mutex> exclusive() { return std::unique_lock(mutex_); }
  /// The same, but gives up after a second: for shutting down a failed job.
  std::unique_lock<std::recursive_mutex> exclusive_or_give_up();

  Activity& activity() { return activity_; }
  /// Whom to ask when a wait exceeds the deadline; must stay valid until replaced. Null: nobody.
  void set_prober(Prober* prober) { prober_ = prober; }
  /// The report of a wait for these ranks, as shown by activity().
  HangError hang_error(const std::vector<int>& peers);
  std::chrono::milliseconds deadline() const { return deadline_.load(); }
  /// Applies to waits that begin afterwards.
  void set_deadline(std::chrono::milliseconds deadline) { deadline_ = deadline; }

 private:
  bool advance();
  bool advance_all();
  void wait_long(Operation& operation, Backoff& backoff);
  [[noreturn]] void throw_hang(const std::vector<Pending>& pending);
  void wake();
  void run_thread();

  EngineOptions options_;
  std::atomic<std::chrono::milliseconds> deadline_;
  Activity activity_;
  std::atomic<Prober*> prober_ = nullptr;

  std::recursive_mutex mutex_;                      ///< guards the transport and active_
  std::vector<std::shared_ptr<Operation>> active_;  ///< in start order
  std::vector<std::shared_ptr<Operation>> failed_;  ///< their errors may not have been seen yet
  std::atomic<int> outstanding_ = 0;                ///< active_.size()
  std::atomic<int> waiters_ = 0;                    ///< threads inside wait()
  std::atomic<bool> underway_ = false;              ///< the last poll advanced an operation without finishing it
  std::atomic<unsigned> polls_ = 0;                 ///< by other threads than the engine's

  std::mutex sleep_mutex_;
  std::condition_variable wake_;
  std::atomic<bool> asleep_ = false;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace automodel::comm
