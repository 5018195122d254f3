#include "metrics/watcher.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/find_file.h"

namespace automodel::metrics {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kLook{100};    ///< between two looks at a program that does not read, or that is to end
constexpr milliseconds kGrace{1000};  ///< between SIGTERM and SIGKILL, and again for what SIGKILL takes

/// The environment without what makes MPI programs think that they are this rank.
std::vector<char*> environment() {
  std::vector<char*> out;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view text(*each);
    if (!text.starts_with("OMPI_") && !text.starts_with("PMIX_") && !text.starts_with("PMI_") &&
        !text.starts_with("PRTE_"))
      out.push_back(*each);
  }
  out.push_back(nullptr);
  return out;
}

bool is_program(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return fmt::format("was ended by signal {}", WTERMSIG(status));
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

/// SIGTERM for a process group, then SIGKILL, until `gone`.
template <class Gone>
void end_group(pid_t group, const Gone& gone) {
  for (const int signal : {SIGTERM, SIGKILL}) {
    if (kill(-group, signal) != 0) return;  // ESRCH: nobody is left
    for (milliseconds waited{0}; waited < kGrace && !gone(); waited += kLook) std::this_thread::sleep_for(kLook);
    if (gone()) return;
  }
}

}  // namespace

Watcher::Watcher(std::vector<std::string> words, WatcherLimits limits) : words_(std::move(words)), limits_(limits) {
  std::signal(SIGPIPE, SIG_IGN);
  thread_ = std::thread([this] { run(); });
}

Watcher::~Watcher() {
  finish();
}

void Watcher::offer(std::string_view line) {
  const std::lock_guard lock(mutex_);
  if (ending_ || given_up_ || bytes_ + line.size() > limits_.bytes) {
    ++dropped_;
    return;
  }
  bytes_ += line.size() + 1;
  lines_.push_back(std::string(line) + "\n");
  changed_.notify_all();
}

void Watcher::note(std::string text) {
  const std::lock_guard lock(mutex_);
  notes_.push_back(fmt::format("logging.command: '{}' {}", words_[0], text));
}

std::vector<std::string> Watcher::take_notes() {
  const std::lock_guard lock(mutex_);
  // The first dropped line is said at once, then each time that their number has doubled.
  if (dropped_ > said_dropped_ && (ending_ || dropped_ >= 2 * said_dropped_)) {
    notes_.push_back(fmt::format("logging.command: {} event{} dropped, because '{}' {}", dropped_,
                                 dropped_ == 1 ? " was" : "s were", words_[0],
                                 given_up_ ? "no longer runs" : "does not read them"));
    said_dropped_ = dropped_;
  }
  return std::exchange(notes_, {});
}

void Watcher::finish(milliseconds limit) {
  {
    const std::lock_guard lock(mutex_);
    if (!ending_) deadline_ = Clock::now() + std::min(limit, limits_.end);
    ending_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

bool Watcher::expired() {
  const std::lock_guard lock(mutex_);
  return ending_ && Clock::now() >= deadline_;
}

void Watcher::close_input() {
  if (input_ >= 0) close(input_);
  input_ = -1;
}

bool Watcher::start() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, ends[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t all, none;
  sigfillset(&all);
  sigemptyset(&none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  std::vector<char*> words;
  for (auto& word : words_) words.push_back(word.data());
  words.push_back(nullptr);
  const int error = posix_spawn(&process_, words[0], &files, &attributes, words.data(), environment().data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  close(ends[0]);
  if (error != 0) {
    close(ends[1]);
    process_ = -1;
    note(fmt::format("cannot be started: {}", std::strerror(error)));
    return false;
  }
  input_ = ends[1];
  return true;
}

/// The status of a program that has ended just now. What it has started and left, in its group, is ended too: it would
/// hold this rank's standard error open, and mpirun waits for that to be closed.
std::optional<int> Watcher::reap() {
  int status = 0;
  const auto found = process_ < 0 ? 0 : waitpid(process_, &status, WNOHANG);
  if (found == 0 || (found < 0 && errno == EINTR)) return std::nullopt;
  const auto group = std::exchange(process_, -1);
  end_group(group, [group] { return kill(-group, 0) != 0; });
  return status;
}

/// Whether the program has ended; says how.
bool Watcher::ended() {
  if (process_ < 0) return true;
  const auto status = reap();
  if (!status) return false;
  close_input();
  note(how_it_ended(*status));
  return true;
}

/// False if the program ended first, or the time for the end of the run is over.
bool Watcher::write_line(const std::string& line) {
  std::string_view rest = line;
  while (!rest.empty()) {
    if (ended() || expired()) return false;
    const ssize_t written = write(input_, rest.data(), rest.size());
    if (written > 0) {
      rest.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd ready{input_, POLLOUT, 0};
      poll(&ready, 1, static_cast<int>(kLook.count()));
    } else if (errno == EPIPE) {  // it has closed its input and will end; wait for that
      std::this_thread::sleep_for(kLook);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

void Watcher::run() {
  auto pause = limits_.first_pause;
  std::string line;  // taken from the queue and not written yet
  while (true) {
    if (ended() && !expired()) {
      if (starts_ > limits_.restarts) {
        note("is not started again: its events are dropped");
        break;
      }
      std::unique_lock lock(mutex_);
      if (starts_ > 0) {
        changed_.wait_for(lock, pause, [&] { return ending_; });
        pause *= 2;
        if (ending_ && lines_.empty() && line.empty()) break;
      }
      lock.unlock();
      ++starts_;
      if (!start()) continue;
      if (!first_.empty() && first_ != line && !write_line(first_)) continue;
    }
    if (line.empty()) {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kLook, [&] { return ending_ || !lines_.empty(); });
      if (lines_.empty()) {
        if (ending_) break;
        continue;
      }
      line = std::move(lines_.front());
      lines_.pop_front();
      bytes_ -= line.size();
    }
    if (first_.empty()) first_ = line;
    if (write_line(line)) line.clear();
    if (expired()) break;
  }
  close_input();
  {
    std::unique_lock lock(mutex_);
    dropped_ += static_cast<std::int64_t>(lines_.size()) + (line.empty() ? 0 : 1);
    lines_.clear();
    bytes_ = 0;
    given_up_ = true;
    if (process_ < 0) return;
  }
  const auto quiet = [this] {  // a program that ends now ends as it should
    reap();
    return process_ < 0;
  };
  while (!quiet() && !expired()) std::this_thread::sleep_for(kLook);
  if (quiet()) return;
  note("did not end with the run, and is killed");
  end_group(process_, quiet);
}

std::vector<std::string> watcher_words(const std::string& command, const fs::path& recipe_folder) {
  std::vector<std::string> words;
  std::istringstream text(command);
  for (std::string word; text >> word;) words.push_back(word);
  const std::string name = words.empty() ? "" : words[0];
  if (name.find('/') != std::string::npos) {
    const auto found = find_beside(name, recipe_folder);
    if (found && is_program(*found)) {
      words[0] = fs::absolute(*found).native();
      return words;
    }
  } else if (!name.empty()) {
    const char* path = std::getenv("PATH");
    std::istringstream folders(path == nullptr ? "" : path);
    for (std::string folder; std::getline(folders, folder, ':');)
      if (is_program(fs::path(folder) / name)) {
        words[0] = (fs::path(folder) / name).native();
        return words;
      }
  }
  throw Error(Diagnostic{"missing-file"}
                  .says("logging.command: there is no program '{}'", name)
                  .hint("a program in PATH, or one with a slash, beside the recipe; it must be executable")
                  .of("logging.command"));
}

}  // namespace automodel::metrics
