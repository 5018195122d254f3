// A job that goes wrong in the way its first argument says; failure_test.py checks how it ends.
//
//   failing_job SCENARIO [DEADLINE_SECONDS]
#include <chrono>
#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include "comm/backends.h"

namespace automodel {
namespace {

using comm::ReduceOp;
using comm::World;

std::vector<int> everyone(const World& world) {
  std::vector<int> ranks;
  for (int r = 0; r < world.size(); ++r) ranks.push_back(r);
  return ranks;
}

at::Tensor numbers(std::int64_t count) {
  return at::full({count}, 1, at::TensorOptions().dtype(at::kFloat));
}

void sum(comm::Communicator& group) {
  group.all_reduce(numbers(1000), ReduceOp::kSum)->wait();
}

void receive(comm::Communicator& group, int peer) {
  group.exchange({}, {{numbers(10), peer, 7}})->wait();
}

[[noreturn]] void compute_forever() {
  while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
}

[[noreturn]] void fail(const World& world) {
  throw Error(
      ExitCode::kRefused,
      {"does-not-fit", "the model of rank " + std::to_string(world.rank()) + " does not fit", "use more ranks"});
}

void one_throws(World& world) {
  const auto all = world.group(everyone(world), "all");
  sum(*all);
  if (world.rank() == 2) fail(world);
  sum(*all);
}

void all_throw(World& world) {
  world.control().barrier()->wait();
  fail(world);
}

void defect(World& world) {
  if (world.rank() == 1) throw std::logic_error("impossible");
  world.control().barrier()->wait();
}

void computes(World& world) {
  const auto all = world.group(everyone(world), "dp");
  world.activity().begin_step(3);
  world.activity().begin_action(world.rank() == 1 ? "1B2" : "2F3");
  if (world.rank() == 1) compute_forever();
  sum(*all);
}

void chain(World& world) {
  const auto all = world.group(everyone(world), "pp");
  world.activity().begin_step(5);
  world.activity().begin_action("0F" + std::to_string(world.rank()));
  if (world.rank() + 1 == world.size()) compute_forever();
  receive(*all, world.rank() + 1);
}

void cycle(World& world) {
  const auto all = world.group(everyone(world), "pp");
  receive(*all, (world.rank() + 1) % world.size());
}

void stopped(World& world) {
  const auto all = world.group(everyone(world), "dp");
  if (world.rank() == 1) std::raise(SIGSTOP);
  sum(*all);
}

void killed(World& world) {
  const auto all = world.group(everyone(world), "dp");
  sum(*all);
  if (world.rank() == 1) std::raise(SIGKILL);
  sum(*all);
}

void absent(World& world) {
  if (world.rank() == 1) compute_forever();
  world.group(everyone(world), "dp");
}

/// Exchanges forever; reports on standard output once messages have arrived.
void endless(World& world) {
  const auto all = world.group(everyone(world), "pp");
  for (std::int64_t step = 0;; ++step) {
    world.activity().begin_step(step);
    const int peer = (world.rank() + 1) % world.size();
    all->exchange({{numbers(50'000), peer, 0}},
                  {{numbers(50'000), (world.rank() + world.size() - 1) % world.size(), 0}})
        ->wait();
    if (step == 20 && world.rank() == 0) {
      std::puts("running");
      std::fflush(stdout);
    }
  }
}

void ends_well(World& world) {
  sum(*world.group(everyone(world), "all"));
}

struct Scenario {
  const char* name;
  void (*run)(World& world);
};
constexpr Scenario kScenarios[] = {
    {"one-throws", one_throws}, {"all-throw", all_throw}, {"defect", defect},       {"computes", computes},
    {"chain", chain},           {"cycle", cycle},         {"stopped", stopped},     {"killed", killed},
    {"absent", absent},         {"endless", endless},     {"ends-well", ends_well},
};

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  automodel::comm::WorldOptions options;
  options.deadline = std::chrono::milliseconds(static_cast<long>(1000 * (argc > 2 ? std::stod(argv[2]) : 2.0)));
  for (const auto& scenario : automodel::kScenarios)
    if (argc > 1 && std::string(scenario.name) == argv[1]) {
      const auto world = automodel::comm::open_world("mpi", options);
      automodel::comm::run_guarded(*world, scenario.run);
      return 0;
    }
  return 2;
}
