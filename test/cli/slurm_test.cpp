// Options of `automodel slurm`; test/launch/slurm_test.py runs its script under a real Slurm.
#include <catch2/catch.hpp>

#include "cli/program.h"

namespace automodel {
namespace {

constexpr const char* kRecipe = R"(device: cpu
model: {config: {model_type: llama, hidden_size: 16, intermediate_size: 24, num_hidden_layers: 2,
  num_attention_heads: 2, num_key_value_heads: 2, vocab_size: 67, max_position_embeddings: 16}}
dataset: {_target_: mock, vocab_size: 67, seq_length: 16}
step_scheduler: {global_batch_size: 4, local_batch_size: 4, max_steps: 3}
)";

test::Outcome script(const std::string& words) {
  const test::TemporaryFolder folder;
  folder.write("r.yaml", kRecipe);
  return test::run_program(folder, "slurm r.yaml --nodes 1 --ranks-per-node 1 " + words);
}

}  // namespace

TEST_CASE("slurm accepts sbatch's time formats and refuses others", "[cli]") {
  for (const char* time : {"7", "6:01", "0:06:01", "1-0", "1-0:0", "1-00:00:00", "0-0:6:01", "UNLIMITED", "infinite"}) {
    INFO(time);
    const auto made = script("--time " + std::string(time));
    CHECK(made.code == 0);
    CHECK(made.out.find("#SBATCH --time=" + std::string(time) + "\n") != std::string::npos);
  }
  for (const char* time : {"4h", "1:", ":1", "1-", "1-2-3", "-5", "1:2:3:4", "1-1:2:3:4", "1.5"}) {
    INFO(time);
    const auto refused = script("--time=" + std::string(time));
    CHECK(refused.code == 2);
    CHECK(refused.out.empty());
    CHECK(refused.err.find("is not a time that Slurm accepts") != std::string::npos);
  }
}

TEST_CASE("slurm refuses a time limit that leaves no time to train before the warning signal", "[cli]") {
  // The default warning of 300 s and Slurm's own 60 s.
  for (const char* words : {"--time 5", "--time 6", "--time 6:00", "--time 0-0:6", "--time 10 --warning 540"}) {
    INFO(words);
    const auto refused = script(words);
    CHECK(refused.code == 2);
    CHECK(refused.out.empty());
    CHECK(refused.err.find("error[usage]") != std::string::npos);
    CHECK(refused.err.find("leaves no time to train") != std::string::npos);
  }
  CHECK(script("--time 5 --warning 60").code == 0);
}

TEST_CASE("a job's output is in its own log, and per rank on request", "[cli]") {
  const auto one = script("");
  CHECK(one.out.find("#SBATCH --output=%x-%j.log\n") != std::string::npos);
  CHECK(one.out.find("mkdir") == std::string::npos);
  CHECK(one.out.find("%t") == std::string::npos);
  const auto many = script("--logs out");
  CHECK(many.out.find("mkdir -p out\n") != std::string::npos);
  CHECK(many.out.find("--output=out/%x-%j-%t.log") != std::string::npos);
  CHECK(script("--logs out --launcher mpirun").out.find("--output-filename out/") != std::string::npos);
  const auto refused = script("--logs out --max-restarts 3");
  CHECK(refused.code == 2);
  CHECK(refused.err.find("help: leave --logs out") != std::string::npos);
}

TEST_CASE("a job that may restart once is supervised", "[cli]") {
  const auto once = script("--max-restarts 1"), never = script("--max-restarts 0");
  CHECK(once.code == 0);
  CHECK(once.out.find(" --max-restarts 1 ") != std::string::npos);
  CHECK(once.out.find("--start-with \"") != std::string::npos);
  CHECK(once.out.find(" --overlap") != std::string::npos);
  CHECK(never.code == 0);
  CHECK(never.out.find("--start-with") == std::string::npos);
}

}  // namespace automodel
