// Time and bandwidth of the communicators' operations, by size. For example
//
//   mpirun -np 2 comm_bench [--backend mpi] [--device cpu] [--dtype float32] [--whole KiB] [--chunk KiB] [--lanes N]
//
// One row per size: microseconds per operation on the slowest rank (the best of several repetitions, each the mean of
// many operations), and the bytes of the larger tensor per second.
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <ATen/DeviceAccelerator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include "base/bytes.h"
#include "base/text_table.h"
#include "comm/backends.h"
#include "cuda_half/cuda_half.h"

namespace automodel {
namespace {

using comm::ReduceOp;

struct Options {
  std::string backend = "mpi";
  std::string dtype = "float32";
  comm::WorldOptions world = {};
};

Options parse(int argc, char** argv) {
  std::map<std::string, std::string> given;
  for (int i = 1; i + 1 < argc; i += 2) given[argv[i]] = argv[i + 1];
  Options options;
  const auto take = [&](const char* name, const auto& use) {
    if (const auto found = given.find(name); found != given.end()) use(found->second);
  };
  take("--backend", [&](const std::string& value) { options.backend = value; });
  take("--dtype", [&](const std::string& value) { options.dtype = value; });
  take("--device", [&](const std::string& value) { options.world.device = at::Device(value); });
  take("--whole", [&](const std::string& value) { options.world.limits.whole = std::stol(value) << 10; });
  take("--chunk", [&](const std::string& value) { options.world.limits.chunk = std::stol(value) << 10; });
  take("--lanes", [&](const std::string& value) { options.world.limits.lanes = std::stoi(value); });
  take("--progress", [&](const std::string& value) { options.world.background_progress = value != "0"; });
  return options;
}

/// Seconds per call on the slowest rank.
double measure(comm::Communicator& all, bool device, int repeat, const std::function<void()>& operation) {
  // On a GPU, wait() returns when the operation has been launched, not when it is complete.
  const auto settle = [device] {
    if (device) at::accelerator::synchronizeDevice(at::accelerator::getDeviceIndex());
  };
  double best = 1e9;
  for (int round = 0; round < 4; ++round) {
    settle();
    all.barrier()->wait();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < repeat; ++i) operation();
    settle();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    best = std::min(best, time.count() / repeat);
  }
  const at::Tensor slowest = at::full({1}, best, at::TensorOptions().dtype(at::kDouble));
  all.all_reduce(slowest, ReduceOp::kMax)->wait();
  return *slowest.const_data_ptr<double>();
}

void run(comm::World& world, const Options& options) {
  std::vector<int> ranks;
  for (int r = 0; r < world.size(); ++r) ranks.push_back(r);
  const auto all = world.group(ranks, "all");
  const int me = all->rank();
  const int n = all->size();
  const auto dtype = options.dtype == "bfloat16" ? at::kBFloat16 : options.dtype == "float16" ? at::kHalf : at::kFloat;
  const auto like = at::TensorOptions().dtype(dtype).device(world.device());
  TextTable table({"size", "one way us", "GB/s", "both ways us", "GB/s", "all_reduce us", "GB/s", "all_gather us",
                   "GB/s", "reduce_scatter us", "GB/s"});
  for (std::int64_t bytes = 1 << 10; bytes <= 64 << 20; bytes *= 4) {
    const std::int64_t count = bytes / static_cast<std::int64_t>(c10::elementSize(dtype)) / n * n;
    const at::Tensor a = at::full({count}, 1, like);
    const at::Tensor b = at::full({count}, 1, like);
    const at::Tensor shard = at::full({count / n}, 1, like);
    const int repeat = bytes < 1 << 16 ? 2000 : bytes < 4 << 20 ? 200 : 10;
    const bool device = !like.device().is_cpu();
    const auto ping_pong = [&] {
      if (me == 0) {
        all->exchange({{a, 1, 0}}, {})->wait();
        all->exchange({}, {{b, 1, 0}})->wait();
      } else if (me == 1) {
        all->exchange({}, {{b, 0, 0}})->wait();
        all->exchange({{a, 0, 0}}, {})->wait();
      }
    };
    const auto ring = [&] { all->exchange({{a, (me + 1) % n, 0}}, {{b, (me + n - 1) % n, 0}})->wait(); };
    std::vector<std::string> row{format_bytes(static_cast<double>(bytes))};
    const auto add = [&](double seconds) {
      row.push_back(fmt::format("{:.1f}", seconds * 1e6));
      row.push_back(fmt::format("{:.2f}", static_cast<double>(bytes) / seconds * 1e-9));
    };
    add(measure(*all, device, repeat, ping_pong) / 2);
    add(measure(*all, device, repeat, ring));
    add(measure(*all, device, repeat, [&] { all->all_reduce(a, ReduceOp::kSum)->wait(); }));
    add(measure(*all, device, repeat, [&] { all->all_gather(a, shard)->wait(); }));
    add(measure(*all, device, repeat, [&] { all->reduce_scatter(shard, a, ReduceOp::kSum)->wait(); }));
    table.add(row);
  }
  if (world.rank() == 0) std::fputs(table.text().c_str(), stdout);
}

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  const auto options = automodel::parse(argc, argv);
  try {
    if (!options.world.device.is_cpu()) automodel::require_cuda_half();
    const auto world = automodel::comm::open_world(options.backend, options.world);
    if (world->size() < 2) {
      std::fputs("comm_bench measures messages between ranks: start it with mpirun -np 2, or more\n", stderr);
      return 2;
    }
    automodel::comm::run_guarded(*world, [&](automodel::comm::World& all) { automodel::run(all, options); });
  } catch (const automodel::Error& error) {
    std::fputs(error.what(), stderr);
    return static_cast<int>(error.code());
  }
  return 0;
}
