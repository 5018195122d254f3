// A training run in which one rank fails before its N-th action; fault_test.py checks how the job ends.
//
//   failing_run FAULT:RANK:N RECIPE [OVERRIDE...]
//
// Says on standard output where the fault struck: "fault: step 1, action 2F3". FAULT `none` only counts: at the end
// each rank prints its number of actions.
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "comm/backends.h"
#include "config/recipe.h"
#include "train/run.h"

namespace automodel {
namespace {

[[noreturn]] void compute_forever() {
  while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
}

[[noreturn]] void refuse() {
  throw Error(ExitCode::kRefused, {"does-not-fit", "the model does not fit", "use more ranks"});
}

[[noreturn]] void break_down() {
  throw std::logic_error("impossible");
}

void nothing() {}

struct Fault {
  const char* name;
  void (*strike)();
};
constexpr Fault kFaults[] = {
    {"none", nothing},
    {"stall", compute_forever},
    {"stop", [] { std::raise(SIGSTOP); }},
    {"kill", [] { std::raise(SIGKILL); }},
    {"segv", [] { std::raise(SIGSEGV); }},
    {"throw", refuse},
    {"defect", break_down},
};

struct Order {
  const Fault* fault = nullptr;
  int rank = 0;
  long action = 0;
};

Order order_of(const std::string& text) {
  std::istringstream in(text);
  std::string name, rank, action;
  std::getline(in, name, ':');
  std::getline(in, rank, ':');
  std::getline(in, action, ':');
  for (const Fault& fault : kFaults)
    if (name == fault.name) return {&fault, std::stoi(rank), std::stol(action)};
  throw Error(ExitCode::kBadInput, {"usage", "unknown fault " + name});
}

/// In one write and on a separate line, even if another rank's line is incomplete.
void say(const std::string& text) {
  if (::write(STDOUT_FILENO, text.data(), text.size()) < 0) std::abort();
}

int run(const std::string& fault, const std::string& path, const std::vector<std::string>& words) {
  const Order order = order_of(fault);
  int code = 0;
  const auto world = comm::open_world("mpi", {});
  comm::run_guarded(*world, [&](comm::World& all) {
    Diagnostics problems;
    const auto overrides = config::parse_overrides(words, problems);
    const auto loaded = config::load_recipe(path, overrides, config::process_environment());
    problems.insert(problems.end(), loaded.problems.begin(), loaded.problems.end());
    if (!problems.empty()) throw Error(ExitCode::kBadInput, problems);
    long actions = 0;
    const auto hook = [&](comm::World& here, const schedule::Slot&) {
      if (here.rank() != order.rank || actions++ != order.action) return;
      const auto doing = here.activity().now();
      say(fmt::format("\nfault: step {}{}\n", doing.step, doing.action.empty() ? "" : ", action " + doing.action));
      order.fault->strike();
    };
    code = static_cast<int>(train::run_training(loaded, all, hook));
    if (all.rank() == order.rank) say(fmt::format("\nactions: {}\n", actions));
  });
  return code;
}

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  return automodel::run(argv[1], argv[2], {argv + 3, argv + argc});
}
