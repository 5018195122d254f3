#include "launch/supervise.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/diagnostic.h"
#include "base/error.h"

namespace automodel::launch {
namespace {

int fail(const std::string& program, int error, const std::string& hint) {
  const Diagnostic problem{
      "cannot-start", fmt::format("'{}' cannot be started: {}", program, std::strerror(error)), hint, {}, ""};
  std::fputs((to_text(problem) + "\n").c_str(), stderr);
  return static_cast<int>(ExitCode::kEnvironment);
}

/// Waits for the child, handing signals on. `waited` are blocked: they come here and nowhere else.
int wait_for(pid_t child, const sigset_t& waited) {
  bool asked = false;
  while (true) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child)
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    const int signal = sigwaitinfo(&waited, nullptr);
    if (signal == SIGUSR1 || (signal == SIGTERM && !asked)) {
      kill(child, SIGUSR1);
      asked = true;
    } else if (signal == SIGTERM) {
      kill(child, SIGTERM);
    }
  }
}

}  // namespace

int supervise(const std::vector<std::string>& words, const std::string& hint) {
  std::vector<char*> argv;
  for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  std::fflush(nullptr);
  sigset_t waited, before;
  sigemptyset(&waited);
  for (const int signal : {SIGTERM, SIGUSR1, SIGINT, SIGCHLD}) sigaddset(&waited, signal);
  sigprocmask(SIG_BLOCK, &waited, &before);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return fail(words[0], errno, "the machine has no room for another process");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(static_cast<int>(ExitCode::kEnvironment));
    sigprocmask(SIG_SETMASK, &before, nullptr);
    execvp(argv[0], argv.data());
    _exit(fail(words[0], errno, hint));
  }
  return wait_for(child, waited);
}

}  // namespace automodel::launch
