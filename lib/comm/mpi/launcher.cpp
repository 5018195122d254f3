#include "comm/mpi/launcher.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

namespace automodel::comm {
namespace {

/// Not their daemons: nothing waits for those.
constexpr std::array<std::string_view, 4> kLaunchers = {"mpirun", "mpiexec", "orterun", "prterun"};
constexpr int kMostDescriptors = 4096;

bool is_launcher(pid_t process) {
  std::string name;
  std::ifstream file(fmt::format("/proc/{}/comm", process));
  std::getline(file, name);
  return std::ranges::find(kLaunchers, name) != kLaunchers.end();
}

}  // namespace

void end_stuck_launcher_after(std::chrono::seconds patience) {
  const pid_t launcher = getppid();
  if (!is_launcher(launcher)) return;
  // Unlike a pid, a descriptor cannot be reused for another process.
  const int process = static_cast<int>(syscall(SYS_pidfd_open, launcher, 0));
  if (process < 0 || fork() != 0) return;
  // Only system calls from here on: other threads of the parent may have held any lock. In its own session, so that
  // ending the rank does not end this process; without other descriptors, so that nothing waits for its output.
  setsid();
  for (int descriptor = 0; descriptor < kMostDescriptors; ++descriptor)
    if (descriptor != process) close(descriptor);
  pollfd ended{process, POLLIN, 0};
  const auto limit = static_cast<int>(std::chrono::milliseconds(patience).count());
  if (poll(&ended, 1, limit) == 0) syscall(SYS_pidfd_send_signal, process, SIGKILL, nullptr, 0);
  _exit(0);
}

}  // namespace automodel::comm
