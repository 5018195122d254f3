// Cost of `automodel plan` for large meshes, from process start to exit: wall time, CPU time and memory against the
// number of ranks, with every group and the schedule's proof in the output (--json).
//   plan_scale AUTOMODEL [--json] [--runs N]
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json_writer.h"

namespace {

namespace fs = std::filesystem;

struct Case {
  std::string_view name;
  int layers, pp, tp, dp, microbatches;
  int ranks() const { return pp * tp * dp; }
};

constexpr std::array kCases = {
    Case{"one rank", 4, 1, 1, 1, 1},        Case{"a pair", 4, 2, 1, 1, 4},
    Case{"a node", 32, 2, 2, 2, 8},         Case{"16 nodes", 80, 4, 8, 4, 16},
    Case{"128 nodes", 126, 16, 8, 8, 64},   Case{"512 nodes", 126, 16, 8, 32, 64},
    Case{"16k ranks", 126, 16, 8, 128, 64}, Case{"32k ranks", 126, 16, 8, 256, 64},
    Case{"64k ranks", 126, 16, 8, 512, 64}, Case{"100k ranks", 126, 16, 8, 782, 64},
};

struct Cost {
  double wall_ms = 0, processor_ms = 0, memory_mib = 0;
};

std::string recipe_of(const Case& c) {
  return fmt::format(
      "model:\n  config: {{model_type: llama, hidden_size: 16384, intermediate_size: 53248, num_hidden_layers: {},\n"
      "    num_attention_heads: 128, num_key_value_heads: 8, vocab_size: 128256, max_position_embeddings: 131072}}\n"
      "distributed:\n  strategy: fsdp2\n  pp_size: {}\n  tp_size: {}\n  dp_size: {}\n"
      "  pipeline: {{pp_schedule: {}, pp_microbatch_size: 1}}\n"
      "dataset: {{_target_: mock, seq_length: 8192}}\n"
      "step_scheduler: {{global_batch_size: {}, local_batch_size: {}}}\n",
      c.layers, c.pp, c.tp, c.dp, c.layers >= 2 * c.pp ? "Interleaved1F1B" : "1F1B", c.microbatches * c.dp,
      c.microbatches);
}

double milliseconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_usec) / 1e3;
}

/// One run; its output goes to /dev/null.
Cost run_once(const char* program, const std::string& recipe) {
  const auto begin = std::chrono::steady_clock::now();
  const pid_t child = fork();
  if (child == 0) {
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, 1);
    dup2(null, 2);
    execl(program, program, "plan", recipe.c_str(), "--json", nullptr);
    _exit(127);
  }
  int status = 0;
  rusage used{};
  if (child < 0 || wait4(child, &status, 0, &used) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    fmt::print(stderr, "'{} plan {} --json' failed\n", program, recipe);
    std::exit(1);
  }
  const double wall = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  return {wall, milliseconds(used.ru_utime) + milliseconds(used.ru_stime), static_cast<double>(used.ru_maxrss) / 1024};
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  bool json = false;
  int runs = 15;
  for (int i = 2; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--json") json = true;
    if (std::string_view(argv[i]) == "--runs" && i + 1 < argc) runs = std::max(1, std::atoi(argv[i + 1]));
  }
  if (argc < 2) {
    std::fputs("usage: plan_scale AUTOMODEL [--json] [--runs N]\n", stderr);
    return 2;
  }
  std::string folder = (fs::temp_directory_path() / "plan-scale-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return 4;
  automodel::JsonWriter out;
  out.begin_array();
  if (!json)
    fmt::print("{:<12} {:>8} {:>10} {:>10} {:>10} {:>9}\n", "mesh", "ranks", "median ms", "best ms", "cpu ms", "MiB");
  for (const auto& each : kCases) {
    const std::string recipe = folder + "/recipe.yaml";
    std::ofstream(recipe) << recipe_of(each);
    std::vector<double> wall, processor, memory;
    for (int i = 0; i < runs; ++i) {
      const auto cost = run_once(argv[1], recipe);
      wall.push_back(cost.wall_ms);
      processor.push_back(cost.processor_ms);
      memory.push_back(cost.memory_mib);
    }
    const double best = *std::min_element(wall.begin(), wall.end());
    if (!json)
      fmt::print("{:<12} {:>8} {:>10.2f} {:>10.2f} {:>10.2f} {:>9.1f}\n", each.name, each.ranks(), median(wall), best,
                 median(processor), median(memory));
    out.begin_object();
    out.member("name", each.name);
    out.member("ranks", each.ranks());
    out.member("median_ms", median(wall));
    out.member("best_ms", best);
    out.member("cpu_ms", median(processor));
    out.member("mib", median(memory));
    out.end_object();
  }
  out.end_array();
  if (json) fmt::print("{}\n", out.take());
  fs::remove_all(folder);
  return 0;
}
