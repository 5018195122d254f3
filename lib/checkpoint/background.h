// One background task and its result.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

namespace automodel::checkpoint {

/// Runs at most one task at a time. If it throws, the next call that asks for the result rethrows.
template <class Report>
class Background {
 public:
  Background() = default;
  /// Waits for the task in progress and discards its result.
  ~Background() {
    if (thread_.joinable()) thread_.join();
  }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  /// Only after take().
  void start(std::function<Report()> work) {
    done_ = false;
    thread_ = std::thread([this, work = std::move(work)] {
      try {
        report_ = work();
      } catch (...) {
        failure_ = std::current_exception();
      }
      done_ = true;
    });
  }
  /// Stores the report of work that was done in the foreground.
  void put(Report report) { report_ = std::move(report); }
  bool busy() const { return thread_.joinable(); }
  /// Waits. Returns the report of a task that has finished since the last call.
  std::optional<Report> take() {
    if (thread_.joinable()) thread_.join();
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    return std::exchange(report_, std::nullopt);
  }
  /// Like take(), but returns nothing if the task is still running.
  std::optional<Report> poll() { return thread_.joinable() && !done_ ? std::nullopt : take(); }

 private:
  std::thread thread_;
  std::atomic<bool> done_ = false;
  std::exception_ptr failure_;
  std::optional<Report> report_;
};

}  // namespace automodel::checkpoint
