// A program of the user's that gets a run's events on its standard input (logging.command): Weights & Biases, MLflow, a
// pager. It can neither hold a step up nor end the run.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace automodel::metrics {

struct WatcherLimits {
  std::size_t bytes = std::size_t{8} << 20;  ///< of lines that wait for the program; about 20,000 steps
  int restarts = 5;                          ///< in a run; the pause before each is twice the one before
  std::chrono::milliseconds first_pause{1000};
  std::chrono::milliseconds end{30'000};  ///< for the lines that wait and for the program to end, then it is killed
};

class Watcher {
 public:
  /// Starts the program: `words` are its path and arguments. It gets no signals of the terminal, and what it prints
  /// goes to standard error.
  explicit Watcher(std::vector<std::string> words, WatcherLimits limits = {});
  ~Watcher();  ///< as finish()
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  /// Hands over one line, without its end. Never waits: lines beyond the limit are dropped and counted. A program that
  /// ended is started again, and gets the first line (the event `start`) again before what is next.
  void offer(std::string_view line);
  /// What a person should know since the last call: the program ended, lines were dropped.
  std::vector<std::string> take_notes();
  /// Closes the program's input once the waiting lines are written, and waits for it to end. After `limit`, which
  /// `limits.end` bounds, it is killed, which takes another 2 s at most. What it has left running is ended too.
  void finish(std::chrono::milliseconds limit = std::chrono::milliseconds::max());

 private:
  using Clock = std::chrono::steady_clock;
  void run();
  bool start();
  bool write_line(const std::string& line);
  std::optional<int> reap();
  bool ended();
  void close_input();
  bool expired();
  void note(std::string text);

  std::vector<std::string> words_;
  WatcherLimits limits_;
  std::mutex mutex_ = {};
  std::condition_variable changed_ = {};
  std::deque<std::string> lines_ = {};
  std::size_t bytes_ = 0;
  std::int64_t dropped_ = 0, said_dropped_ = 0;
  bool ending_ = false, given_up_ = false;
  Clock::time_point deadline_ = {};
  std::vector<std::string> notes_ = {};
  // Of the thread alone.
  int input_ = -1, process_ = -1, starts_ = 0;
  std::string first_ = {};
  std::thread thread_;
};

/// Path and arguments of a command, which is split at white space; a program with a slash is looked up beside the
/// recipe, then in the working directory, others in PATH. Throws Error (`missing-file`) if there is no such program.
std::vector<std::string> watcher_words(const std::string& command, const std::filesystem::path& recipe_folder);

}  // namespace automodel::metrics
