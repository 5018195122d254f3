// How a run ends when something goes wrong: the right diagnostic and exit code on the rank that noticed.
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <thread>

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "checkpoint/agreement.h"
#include "comm/backends.h"
#include "comm/loopback/loopback.h"
#include "comm/nccl/nccl.h"
#include "config/recipe.h"
#include "temporary_folder.h"
#include "torch_catch.h"
#include "train/run.h"
#include "train/setup.h"
#include "train/torch_version.h"
#include "train/verify.h"
#include "train/verify_run.h"
#include "train/world_settings.h"

namespace automodel::train {
namespace {

/// A recipe of a tiny model whose files go to `folder`.
config::LoadedRecipe recipe(const test::TemporaryFolder& folder, const std::vector<std::string>& words = {}) {
  Diagnostics problems;
  const std::string text =
      "device: cpu\n"
      "model: {config: {model_type: llama, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2, "
      "num_attention_heads: 2, num_key_value_heads: 2, vocab_size: 64, max_position_embeddings: 32}}\n"
      "distributed: {strategy: ddp}\n"
      "dataset: {_target_: mock, vocab_size: 64, seq_length: 8, num_samples: 64}\n"
      "step_scheduler: {global_batch_size: 4, local_batch_size: 2, max_steps: 4}\n"
      "checkpoint: {enabled: false, checkpoint_dir: " +
      folder.path().string() + "}\n";
  auto loaded = config::read_recipe(text, "r.yaml", config::parse_overrides(words, problems),
                                    [](const std::string&) { return std::nullopt; });
  REQUIRE(to_text(problems) + to_text(loaded.problems) == "");
  return loaded;
}

/// The id of the first problem of an Error that `make` throws.
template <class Make>
std::string id_of(ExitCode code, Make make) {
  try {
    make();
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return error.problems().at(0).id;
  }
  return "no error";
}

}  // namespace

TEST_CASE("an unknown backend and a missing device are refused", "[train]") {
  CHECK(id_of(ExitCode::kBadInput, [] { comm::open_world("gossip", {}); }) == "unknown-backend");
  // LibTorch has no CUDA device before the CUDA half is loaded.
  CHECK(id_of(ExitCode::kEnvironment, [] { comm::open_world("loopback", {.device = at::kCUDA}); }) == "no-device");
}

TEST_CASE("device: auto explains why it uses the CPU", "[train]") {
  const std::string old = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.12  Release Build";
  const auto note = train::cpu_chosen("", old, 2, 4);
  CHECK(note.id == "no-gpu-used");
  CHECK(note.key == "device");
  CHECK(note.message ==
        "device: auto uses the CPU: driver 535 runs CUDA 12; this program needs CUDA 13, driver 580 or later");
  CHECK(train::cpu_chosen("", "", 2, 4).message == "device: auto uses the CPU: 2 of 4 ranks see no CUDA device");
  // Without the CUDA half, the driver is not queried.
  CHECK(train::cpu_chosen("it is not there", old, 2, 4).message == "device: auto uses the CPU: it is not there");
}

TEST_CASE("a backend that this build or machine lacks is refused", "[train]") {
  CHECK(id_of(ExitCode::kEnvironment, [] { comm::open_world("nccl", {}); }) == "backend-unavailable");
}

TEST_CASE("states of another optimizer and an untied head for a tied model are not loaded", "[train]") {
  const test::TemporaryFolder folder;
  const auto train = [&](const std::vector<std::string>& words) {
    const auto loaded = recipe(folder, words);
    return comm::run_ranks(1, [&](comm::World& world) { run_training(loaded, world); });
  };
  const std::vector<std::string> first = {"checkpoint.enabled=true", "step_scheduler.max_steps=2"};
  REQUIRE(train(first).ok());
  const auto other = train({"checkpoint.enabled=true", "optimizer.amsgrad=true"});
  INFO(other.text);
  CHECK(other.code == ExitCode::kCheckpoint);
  CHECK(other.text.find("error[optimizer-differs]") != std::string::npos);

  const auto model = folder.path() / "epoch_0_step_1/model";
  REQUIRE(std::filesystem::exists(model / "config.json"));
  std::ifstream in(model / "config.json");
  std::string config(std::istreambuf_iterator<char>(in), {});
  const std::string untied = "\"tie_word_embeddings\": false";
  REQUIRE(config.find(untied) != std::string::npos);
  config.replace(config.find(untied), untied.size(), "\"tie_word_embeddings\": true");
  std::ofstream(model / "config.json") << config;
  const auto tied = train({"model={pretrained_model_name_or_path: " + model.native() + "}"});
  INFO(tied.text);
  CHECK(tied.code == ExitCode::kBadInput);
  CHECK(tied.text.find("error[weights-not-tied]") != std::string::npos);
}

TEST_CASE("verification in one process refuses a mesh with too many ranks", "[train]") {
  const test::TemporaryFolder folder;
  const auto loaded = recipe(folder, {"distributed.dp_size=128", "step_scheduler.global_batch_size=256"});
  CHECK(id_of(ExitCode::kRefused, [&] { run_verification_alone(loaded); }) == "too-many-ranks");
}

TEST_CASE("only the LibTorch that the program was compiled for is accepted", "[train]") {
  CHECK_FALSE(torch_problem());
  const auto loaded = loaded_torch();
  CHECK_FALSE(torch_problem(loaded + 1));  // another tag of the same version
  const auto patch = torch_problem(loaded + (1ULL << 40U)), next = torch_problem((2ULL << 56U) + (99ULL << 48U));
  REQUIRE((patch && next));
  CHECK(next->exit() == ExitCode::kEnvironment);
  CHECK(next->message == "this is LibTorch 2.99.0; automodel-worker is made for " + torch_version_text(loaded));
  CHECK(next->help.find("torch==" + torch_version_text(loaded)) != std::string::npos);
}

TEST_CASE("a value that is not a number is different from every other", "[train]") {
  const double nan = std::nan("");
  const auto vector = [](double x) { return at::full({2}, x, at::kDouble); };
  const Trace good{{1, 2}, {3, 4}, {{"a", vector(1)}, {"b", vector(1)}}};
  CHECK(compare(good, good).within(0));
  const Trace losses{{nan, 2}, {3, 4}, good.gradients}, norms{{1, 2}, {nan, 4}, good.gradients};
  const Trace gradients{{1, 2}, {3, 4}, {{"a", vector(nan)}, {"b", vector(1)}}};
  for (const auto* each : {&losses, &norms, &gradients}) {
    CHECK_FALSE(compare(*each, good).within(1));
    CHECK_FALSE(compare(good, *each).within(1));
    CHECK_FALSE(compare(*each, *each).within(1));
  }
  CHECK(compare(gradients, good).worst == "a");
}

TEST_CASE("a non-finite loss ends the run", "[train]") {
  const test::TemporaryFolder folder;
  const auto loaded = recipe(folder, {"optimizer.lr=1e30"});
  const auto outcome = comm::run_ranks(1, [&](comm::World& world) { run_training(loaded, world); });
  INFO(outcome.text);
  CHECK(outcome.code == ExitCode::kNonFinite);
  CHECK(outcome.text.find("error[non-finite]") != std::string::npos);
}

TEST_CASE("ranks with different plans stop before training", "[train]") {
  const test::TemporaryFolder folder;
  const auto one = recipe(folder);
  const auto other = recipe(folder, {"dataset.seq_length=16"});
  const auto outcome =
      comm::run_ranks(2, [&](comm::World& world) { const Setup setup(world.rank() == 0 ? one : other, world); });
  INFO(outcome.text);
  CHECK(outcome.code == ExitCode::kEnvironment);
  CHECK(outcome.text.find("error[plans-differ]") != std::string::npos);
}

TEST_CASE("running out of memory and internal defects end the job with their own exit codes", "[train]") {
  const auto memory = comm::run_ranks(2, [](comm::World& world) {
    if (world.rank() == 1) throw std::bad_alloc();
    world.control().barrier()->wait();
  });
  CHECK(memory.rank == 1);
  CHECK(memory.code == ExitCode::kEnvironment);
  CHECK(memory.text.find("error[out-of-memory]") != std::string::npos);
  CHECK(memory.text.find("help: a smaller step_scheduler.local_batch_size") != std::string::npos);
  const auto tensor = comm::run_ranks(1, [](comm::World&) { at::empty({std::int64_t{1} << 50}); });
  CHECK(tensor.code == ExitCode::kEnvironment);
  CHECK(tensor.text.find("error[out-of-memory]") != std::string::npos);
  CHECK(tensor.text.find("help: a smaller step_scheduler.local_batch_size") != std::string::npos);
  const auto defect = comm::run_ranks(2, [](comm::World& world) {
    AUTOMODEL_CHECK(world.rank() != 0, "rank 0 is broken");
    world.control().barrier()->wait();
  });
  CHECK(defect.rank == 0);
  CHECK(defect.code == ExitCode::kInternal);
  CHECK(defect.text.find("error[internal]") != std::string::npos);
  CHECK(defect.text.find("rank 0 is broken") != std::string::npos);
}

TEST_CASE("device errors end the job as problems of the machine", "[train]") {
  const auto outcome_of = [](const std::function<void()>& fails) {
    const auto outcome = comm::run_ranks(1, [&](comm::World&) { fails(); });
    CHECK(outcome.code == ExitCode::kEnvironment);
    CHECK((outcome.text.find("out-of-memory") == std::string::npos) ==
          (outcome.text.find("help: a smaller") == std::string::npos));
    return outcome.text;
  };
  const c10::SourceLocation here{"f", "file", 1};
  const auto starts = [](const std::string& text, const char* with) { return text.find(with) == 0; };
  CHECK(starts(outcome_of([&] { throw c10::OutOfMemoryError(here, "CUDA out of memory."); }), "error[out-of-memory]"));
  CHECK(starts(outcome_of([&] { throw c10::AcceleratorError(here, 700, "CUDA error: an illegal memory access"); }),
               "error[cuda-failed]: the device failed: CUDA error: an illegal"));
  CHECK(starts(outcome_of([&] { throw c10::AcceleratorError(here, 2, "CUDA error: out of memory"); }),
               "error[out-of-memory]: pinned memory"));
  CHECK(starts(outcome_of([&] { throw c10::Error(here, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling x"); }),
               "error[out-of-memory]: a library"));
  for (const char* text : {"CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling x", "CUDA driver error: unknown",
                           "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", "cuDNN Frontend error: no engine"})
    CHECK(starts(outcome_of([&] { throw c10::Error(here, text); }), "error[cuda-failed]: the device failed"));
}

TEST_CASE("a rank whose peer does not respond reports a hang after the deadline", "[train]") {
  const auto outcome = comm::run_ranks(2,
                                       [](comm::World& world) {
                                         const auto pair = world.group({0, 1}, "pair");
                                         if (world.rank() == 0) pair->barrier()->wait();
                                         if (world.rank() == 1)
                                           std::this_thread::sleep_for(std::chrono::milliseconds(900));
                                       },
                                       {.deadline = std::chrono::milliseconds(300), .background_progress = false});
  INFO(outcome.text);
  CHECK(outcome.code == ExitCode::kHang);
  CHECK(outcome.text.find("error[hang]") != std::string::npos);
}

TEST_CASE("a job that ends because of one rank's problem names that rank", "[train]") {
  for (const int culprit : {0, 2}) {
    const auto outcome = comm::run_ranks(3, [&](comm::World& world) {
      checkpoint::together(world.control(), [&] {
        if (world.rank() == culprit)
          throw Error(ExitCode::kCheckpoint, Diagnostic{"cannot-write", "the disk is full", "", {}, ""});
      });
    });
    CHECK(outcome.code == ExitCode::kCheckpoint);
    CHECK(outcome.rank == culprit);
    CHECK(outcome.text.find("error[cannot-write]: the disk is full") == 0);
    // Running out of memory is not reported as a problem of the disk.
    const auto memory = comm::run_ranks(3, [&](comm::World& world) {
      checkpoint::together(world.control(), [&] {
        if (world.rank() == culprit) throw std::bad_alloc();
      });
    });
    CHECK(memory.code == ExitCode::kEnvironment);
    CHECK(memory.text.find("error[out-of-memory]") == 0);
  }
}

}  // namespace automodel::train
