#include "rank_suite.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "comm/backends.h"
#include "comm/carrier.h"
#include "comm/loopback/loopback.h"

namespace automodel::test {
namespace {

struct SuiteOptions {
  std::string backend = "mpi";
  std::string name = {};
  int ranks = 1;
  comm::WorldOptions world = {.deadline = std::chrono::seconds(30)};
};

SuiteOptions parse(int argc, char** argv) {
  SuiteOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const auto value = [&] { return std::string(i + 1 < argc ? argv[++i] : ""); };
    if (flag == "--backend")
      options.backend = value();
    else if (flag == "--ranks")
      options.ranks = std::stoi(value());
    else if (flag == "--case")
      options.name = value();
    else if (flag == "--deadline")
      options.world.deadline = std::chrono::milliseconds(static_cast<long>(std::stod(value()) * 1000));
    else if (flag == "--stage")
      options.world.stage_all = true;
    else if (flag == "--no-progress")
      options.world.background_progress = false;
    else
      throw Error(ExitCode::kBadInput, {"usage", "unknown option " + flag});
  }
  return options;
}

bool chosen(const RankCase& row, const SuiteOptions& options, int ranks) {
  if (ranks < row.least_ranks || ranks > row.most_ranks) return false;
  if (options.name.empty()) return !row.only_by_name;
  return std::string_view(row.name).find(options.name) != std::string_view::npos;
}

void run_case(const RankCase& row, comm::World& world) {
  try {
    row.run(world);
  } catch (const Error& error) {
    throw Error(error.code(), {"internal", fmt::format("'{}': {}", row.name, error.what())});
  } catch (const InternalError& error) {
    throw InternalError(fmt::format("'{}': {}", row.name, error.what()));
  }
}

int run_threads(const SuiteOptions& options, const std::vector<RankCase>& cases) {
  int ran = 0, code = 0;
  for (const RankCase& row : cases) {
    if (!chosen(row, options, options.ranks)) continue;
    const auto outcome = comm::run_ranks(
        options.ranks, [&](comm::World& world) { run_case(row, world); }, carried(options.world));
    if (!outcome.ok()) {
      std::fprintf(stderr, "rank %d: %s\n", outcome.rank, outcome.text.c_str());
      code = static_cast<int>(outcome.code);
      continue;  // continue, to report further problems
    }
    if (const auto mistake = carrier_mistake(); !mistake.empty()) {
      std::fprintf(stderr, "'%s': %s\n", row.name, mistake.c_str());
      return 1;
    }
    ++ran;
  }
  std::printf("%d cases passed on %d threads\n", ran, options.ranks);
  return code != 0 ? code : ran > 0 ? 0 : 1;
}

int run_processes(const SuiteOptions& options, const std::vector<RankCase>& cases) {
  int ran = 0;
  const auto world = comm::open_world(options.backend, options.world);
  comm::run_guarded(*world, [&](comm::World& all) {
    for (const RankCase& row : cases) {
      if (!chosen(row, options, all.size())) continue;
      run_case(row, all);
      all.control().barrier()->wait();
      ++ran;
    }
    if (all.rank() == 0) std::printf("%d cases passed on %d ranks\n", ran, all.size());
  });
  return ran > 0 ? 0 : 1;
}

}  // namespace

void rank_check_failed(const char* file, int line, const std::string& what) {
  const char* name = std::strrchr(file, '/');
  throw Error(ExitCode::kInternal,
              {"internal", fmt::format("{}:{}: {}", name != nullptr ? name + 1 : file, line, what)});
}

int run_rank_suite(int argc, char** argv, const std::vector<RankCase>& cases) {
  setenv("AUTOMODEL_CALIBRATION", "", 1);  // tests must not depend on this machine's calibration
  try {
    const SuiteOptions options = parse(argc, argv);
    return options.backend == "loopback" ? run_threads(options, cases) : run_processes(options, cases);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace automodel::test
