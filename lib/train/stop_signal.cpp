#include "train/stop_signal.h"

#include <algorithm>
#include <atomic>

namespace automodel::train {
namespace {

std::atomic<int> received_signal{0};  // global, because signal handlers have no context
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int signal) {
  received_signal.store(signal);
  if (signal == SIGINT) std::signal(SIGINT, SIG_DFL);  // a second Ctrl-C does not wait for the step
}

}  // namespace

StopSignal::StopSignal() {
  received_signal.store(0);
  sigset_t held;
  sigemptyset(&held);
  for (const int signal : {SIGUSR1, SIGTERM, SIGINT}) {
    take(signal);
    sigaddset(&held, signal);
  }
  sigprocmask(SIG_UNBLOCK, &held, nullptr);
}

StopSignal::~StopSignal() {
  // The launcher repeats a signal that asked the ranks to stop; a later one must not kill a rank that is ending.
  const auto after = received() != 0 ? SIG_IGN : SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal)
    if (taken_.at(signal)) std::signal(signal, after);
}

void StopSignal::take(int signal) {
  taken_.at(signal) = true;
  std::signal(signal, on_signal);
}

void StopSignal::watch(const std::vector<int>& signals) {
  for (const int signal : signals) take(signal);
  for (int signal = 1; signal < NSIG; ++signal) {
    if (!taken_.at(signal) || signal == SIGUSR1 || signal == SIGINT ||
        std::ranges::find(signals, signal) != signals.end())
      continue;
    taken_.at(signal) = false;
    std::signal(signal, SIG_DFL);
    if (received() == signal) std::raise(signal);
  }
}

int StopSignal::received() {
  return received_signal.load();
}

}  // namespace automodel::train
