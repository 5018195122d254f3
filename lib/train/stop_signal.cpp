#include "train/stop_signal.h"

#include <algorithm>
#include <atomic>
#include <csignal>

namespace automodel::train {
namespace {

std::atomic<int> received_signal{0};  // a signal handler can reach nothing else
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int signal) {
  received_signal.store(signal);
}

}  // namespace

StopSignal::StopSignal(const std::vector<int>& signals) : signals_(signals) {
  received_signal.store(0);
  if (std::find(signals_.begin(), signals_.end(), SIGUSR1) == signals_.end()) signals_.push_back(SIGUSR1);
  for (const int signal : signals_) std::signal(signal, on_signal);
}

StopSignal::~StopSignal() {
  for (const int signal : signals_) std::signal(signal, SIG_DFL);
}

int StopSignal::received() {
  return received_signal.load();
}

}  // namespace automodel::train
