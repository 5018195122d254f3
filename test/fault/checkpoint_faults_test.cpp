// Faults injected into real runs: damaged files, full disks, folders that cannot be written to, signals, kill -9.
#include <chrono>
#include <csignal>
#include <random>
#include <thread>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/format/manifest.h"
#include "checkpoint/format/root_folder.h"
#include "checkpoint/format/run_state.h"
#include "cli/program.h"

using namespace automodel;
using namespace std::chrono_literals;
using test::Outcome;
using test::run_program;
using test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

constexpr const char* kRecipe =
    "model: {config: {model_type: llama, hidden_size: 64, intermediate_size: 96, num_hidden_layers: 2, "
    "num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 128, max_position_embeddings: 64, "
    "tie_word_embeddings: true}, torch_dtype: float32}\n"
    "dataset: {_target_: mock, vocab_size: 128, seq_length: 16, num_samples: 100000}\n"
    "step_scheduler: {global_batch_size: 4, local_batch_size: 2, max_steps: 4, num_epochs: null, ckpt_every_steps: 2}\n"
    "optimizer: {lr: 0.01}\n"
    "distributed: {strategy: fsdp2}\n"
    "device: cpu\n"
    "logging: {tensorboard: false, progress: false}\n"
    "checkpoint: {checkpoint_dir: run, max_recent_checkpoints: 3}\n";

struct Run {
  Run() { folder.write("r.yaml", kRecipe); }
  Outcome train(const std::string& words = "") const { return run_program(folder, "train r.yaml " + words); }
  fs::path root() const { return folder.path() / "run"; }
  /// The problems that a full check of a checkpoint finds; "" if there are none.
  std::string check(const fs::path& checkpoint) const {
    Diagnostics problems;
    if (const auto manifest = checkpoint::read_manifest(checkpoint, problems)) {
      checkpoint::check_sizes(checkpoint, *manifest, problems);
      for (const auto& entry : manifest->files) checkpoint::check_content(checkpoint, entry, problems);
    }
    return to_text(problems);
  }
  TemporaryFolder folder;
};

std::int64_t newest_step(const fs::path& root) {
  const auto newest = checkpoint::newest_checkpoint(root);
  return newest.empty() ? -1 : checkpoint::parse_checkpoint_name(newest.filename().native())->step;
}

std::vector<checkpoint::ManifestEntry> tensors(const fs::path& checkpoint) {
  Diagnostics problems;
  auto manifest = checkpoint::read_manifest(checkpoint, problems);
  REQUIRE(manifest);
  std::erase_if(manifest->files, [](const auto& entry) { return !entry.file.ends_with(".safetensors"); });
  return manifest->files;
}

void flip_byte(const fs::path& file, std::streamoff back) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(-back, std::ios::end);
  const auto byte = static_cast<char>(stream.get() ^ 0x10);
  stream.seekp(-back, std::ios::end);
  stream.put(byte);
}

bool has_leftovers(const fs::path& root) {
  for (const auto& each : fs::directory_iterator(root))
    if (each.path().filename().native().ends_with(".partial")) return true;
  return false;
}

/// The program, running in the background.
class Child {
 public:
  Child(const TemporaryFolder& folder, const std::vector<std::string>& words) {
    std::vector<std::string> all = {AUTOMODEL_PROGRAM};
    all.insert(all.end(), words.begin(), words.end());
    std::fflush(nullptr);
    pid_ = fork();
    if (pid_ != 0) return;
    std::vector<char*> argv;
    for (auto& word : all) argv.push_back(word.data());
    argv.push_back(nullptr);
    if (chdir(folder.path().c_str()) != 0 || freopen(".out", "w", stdout) == nullptr ||
        freopen(".err", "w", stderr) == nullptr)
      _exit(126);
    execv(argv[0], argv.data());
    _exit(127);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    wait();
  }
  pid_t pid() const { return pid_; }
  bool running() {
    if (pid_ > 0 && waitpid(pid_, &status_, WNOHANG) == pid_) pid_ = 0;
    return pid_ > 0;
  }
  int wait() {
    if (pid_ > 0) waitpid(pid_, &status_, 0);
    pid_ = 0;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  }

 private:
  pid_t pid_ = 0;
  int status_ = 0;
};

/// Processes whose parent is `parent`.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> out;
  std::error_code error;
  for (fs::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().native();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream stat(it->path() / "stat");
    std::string text;
    std::getline(stat, text);
    const auto close = text.rfind(')');
    if (close == std::string::npos) continue;
    char state = 0;
    int ppid = 0;
    if (std::sscanf(text.c_str() + close + 1, " %c %d", &state, &ppid) == 2 && ppid == parent && state != 'Z')
      out.push_back(std::stoi(name));
  }
  return out;
}

/// The ranks of a job that `automodel train --nproc-per-node` runs: children of its mpirun.
std::vector<pid_t> ranks_of(pid_t program) {
  const auto mpirun = children_of(program);
  return mpirun.empty() ? mpirun : children_of(mpirun.front());
}

/// The end of a run's output.
std::string last_words(const TemporaryFolder& folder) {
  const auto text = folder.read(".out") + folder.read(".err");
  return text.size() > 2000 ? text.substr(text.size() - 2000) : text;
}

template <class Done>
bool wait_until(Done&& done, std::chrono::milliseconds most = 60s) {
  const auto end = std::chrono::steady_clock::now() + most;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(2ms);
  }
  return true;
}

std::int64_t lines_of(const TemporaryFolder& folder, const std::string& file) {
  const auto text = folder.read(file);
  return std::count(text.begin(), text.end(), '\n');
}

}  // namespace

TEST_CASE("A damaged, truncated or incomplete checkpoint is refused by name, and the one before works") {
  const Run run;
  REQUIRE(run.train().code == 0);
  REQUIRE(newest_step(run.root()) == 3);
  const auto before = run.root() / "epoch_0_step_1", newest = run.root() / "epoch_0_step_3";
  const auto kept = run.folder.path() / "kept";
  fs::copy(newest, kept, fs::copy_options::recursive);
  const std::vector<std::pair<std::string, std::function<void(const fs::path&)>>> faults = {
      {"model/model.safetensors", [](const fs::path& file) { flip_byte(file, 5000); }},
      {"optim/optim.safetensors", [](const fs::path& file) { fs::resize_file(file, fs::file_size(file) - 1); }},
      {"optim/optim.safetensors", [](const fs::path& file) { fs::remove(file); }},
      {"state.json", [](const fs::path& file) { flip_byte(file, 20); }},
      {"manifest.json", [](const fs::path& file) { fs::resize_file(file, fs::file_size(file) / 2); }}};
  for (const auto& [name, fault] : faults) {
    fault(newest / name);
    const auto outcome = run.train("--step_scheduler.max_steps 6");
    INFO(name << "\n" << outcome.err);
    CHECK(outcome.code == 13);
    CHECK(outcome.err.find((fs::path("run/epoch_0_step_3") / name).native()) != std::string::npos);
    CHECK(outcome.err.find("run/epoch_0_step_1") != std::string::npos);
    CHECK(run_program(run.folder, "checkpoint verify run").code == 13);
    CHECK(run.check(before).empty());
    fs::remove_all(newest);
    fs::copy(kept, newest, fs::copy_options::recursive);
  }
  CHECK(run_program(run.folder, "checkpoint verify run").code == 0);
  flip_byte(newest / "model/model.safetensors", 100);
  const auto outcome = run.train("--checkpoint.restore_from epoch_0_step_1");
  INFO(outcome.err);
  CHECK(outcome.code == 0);
  CHECK(tensors(newest) == tensors(kept));  // the same steps again, the damaged one replaced
  CHECK(run.check(newest).empty());
}

TEST_CASE("A full disk ends the run with the cause, and the previous checkpoint stays valid") {
  const Run run;
  REQUIRE(run.train("--step_scheduler.max_steps 2").code == 0);
  SECTION("a file size limit") {
    const std::string command =
        "cd '" + run.folder.path().string() + "' && ulimit -f 100 && '" AUTOMODEL_PROGRAM "' train r.yaml >.out 2>.err";
    const int status = std::system(("bash -c \"" + command + "\"").c_str());
    const auto err = run.folder.read(".err");
    INFO(err);
    CHECK(WEXITSTATUS(status) == 13);
    CHECK(err.find("cannot-write") != std::string::npos);
    CHECK(err.find("safetensors' cannot have") != std::string::npos);
    CHECK(err.find("File too large") != std::string::npos);
  }
  SECTION("a small file system") {
    const auto place = run.folder.path() / "small";
    fs::create_directory(place);
    if (mount("tmpfs", place.c_str(), "tmpfs", 0, "size=2000k") != 0) {
      WARN("no permission to mount a tmpfs: not tested");
      return;
    }
    fs::copy(run.root(), place / "run", fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    // A checkpoint takes 820 KiB: at the start there is room for a second one, not for the third.
    const auto outcome = run.train("--checkpoint.checkpoint_dir small/run --step_scheduler.ckpt_every_steps 1");
    const bool good = run.check(place / "run/epoch_0_step_1").empty(), left = has_leftovers(place / "run");
    const auto again = run.train("--checkpoint.checkpoint_dir small/run --checkpoint.max_recent_checkpoints 1");
    umount(place.c_str());
    INFO(outcome.err);
    CHECK(outcome.code == 13);
    CHECK(outcome.err.find("No space left on device") != std::string::npos);
    CHECK(outcome.err.find("free space on this disk") != std::string::npos);
    CHECK(good);
    CHECK_FALSE(left);
    CHECK(again.code == 4);  // known beforehand: the new one is written before the old one is deleted
    CHECK(again.err.find("disk-space") != std::string::npos);
  }
  CHECK(newest_step(run.root()) == 1);
  CHECK(run.check(run.root() / "epoch_0_step_1").empty());
  CHECK_FALSE(has_leftovers(run.root()));
  CHECK(run.train().code == 0);
  CHECK(newest_step(run.root()) == 3);
}

TEST_CASE("An unwritable checkpoint folder is reported before the first step") {
  const Run run;
  run.folder.write("file", "in the way");
  // Root may write everywhere but into the kernel's own file systems.
  for (const char* place : {"file/run", "/sys/automodel-run"}) {
    const auto outcome = run.train(std::string("--checkpoint.checkpoint_dir ") + place);
    INFO(place << "\n" << outcome.err);
    CHECK(outcome.code == 4);
    CHECK(outcome.err.find("cannot-write") != std::string::npos);
    CHECK(outcome.err.find(place) != std::string::npos);
    CHECK(outcome.out.find("step 0") == std::string::npos);
  }
}

TEST_CASE("A requested checkpoint that is missing is an error, and without any checkpoint a new run starts") {
  const Run run;
  for (const char* from : {"LATEST", "epoch_0_step_9", "none/at/all"}) {
    const auto outcome = run.train(std::string("--checkpoint.restore_from ") + from);
    INFO(outcome.err);
    CHECK(outcome.code == 13);
    CHECK(outcome.err.find("checkpoint-missing") != std::string::npos);
  }
  // A folder gets a checkpoint's name only when it is complete: without a manifest it has lost that.
  fs::create_directories(run.root() / "epoch_0_step_77/model");
  const auto lost = run.train();
  INFO(lost.err);
  CHECK(lost.code == 13);
  CHECK(lost.err.find("checkpoint-damaged") != std::string::npos);
  fs::remove_all(run.root() / "epoch_0_step_77");
  CHECK(run.train().code == 0);
  CHECK(newest_step(run.root()) == 3);
  const auto other = run.train("--checkpoint.restore_from LATEST --model.config.hidden_size 32");
  INFO(other.err);
  CHECK(other.code == 13);
  CHECK(other.err.find("weights-shape") != std::string::npos);
}

TEST_CASE("A run stopped by a signal saves within a step, ends with exit code 10 and can be resumed") {
  const Run run;
  REQUIRE(run.train("--checkpoint.checkpoint_dir whole --step_scheduler.max_steps 40").code == 0);
  const std::vector<std::string> words = {
      "train", "r.yaml", "--step_scheduler.ckpt_every_steps", "1000000", "--step_scheduler.max_steps", "1000000"};
  const auto stop = [&](int signal, const std::vector<std::string>& more) {
    auto all = words;
    all.insert(all.end(), more.begin(), more.end());
    const auto before = newest_step(run.root());
    Child child(run.folder, all);
    REQUIRE(wait_until([&] { return lines_of(run.folder, "run/training.jsonl") > before + 3 || !child.running(); }));
    kill(child.pid(), signal);
    const int code = child.wait();
    INFO(last_words(run.folder));
    CHECK(code == 10);
    CHECK(newest_step(run.root()) > before);
    CHECK(newest_step(run.root()) == lines_of(run.folder, "run/training.jsonl") - 1);
    CHECK(run.check(checkpoint::newest_checkpoint(run.root())).empty());
  };
  stop(SIGTERM, {});
  stop(SIGUSR1, {});
  stop(SIGINT, {});
  stop(SIGTERM, {"--checkpoint.is_async", "true"});
  stop(SIGUSR1, {"--nproc-per-node", "2"});
  stop(SIGTERM, {"--nproc-per-node", "2"});
  const auto end = std::to_string(newest_step(run.root()) + 3);
  CHECK(run.train("--step_scheduler.max_steps " + end).code == 0);
  CHECK(run.train("--checkpoint.checkpoint_dir again --step_scheduler.max_steps " + end).code == 0);
  CHECK(newest_step(run.folder.path() / "again") == newest_step(run.root()));
}

TEST_CASE("A run killed sixteen times around saves resumes from complete checkpoints to identical weights") {
  const Run run;
  std::minstd_rand random(20261121);
  std::int64_t last = -1, between = 0;
  for (int round = 0; round < 16; ++round) {
    Child child(run.folder,
                {"train", "r.yaml", "--nproc-per-node", "2", "--step_scheduler.ckpt_every_steps", "1",
                 "--step_scheduler.max_steps", "1000000", "--checkpoint.is_async", round % 2 == 0 ? "false" : "true"});
    const auto before = newest_step(run.root());
    REQUIRE(wait_until([&] { return newest_step(run.root()) > before || !child.running(); }));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60000));
    const auto ranks = ranks_of(child.pid());
    if (!ranks.empty()) kill(ranks[random() % ranks.size()], SIGKILL);
    const int code = child.wait();
    INFO("round " << round << ", exit " << code << "\n" << last_words(run.folder));
    REQUIRE(ranks.size() == 2);
    REQUIRE(code != 0);
    if (has_leftovers(run.root())) ++between;
    REQUIRE(newest_step(run.root()) > last);
    last = newest_step(run.root());
    REQUIRE(run.check(checkpoint::newest_checkpoint(run.root())).empty());
  }
  WARN(fmt::format("{} of 16 kills came inside a save; {} steps were done", between, last + 1));
  CHECK(between > 1);
  const auto end = " --step_scheduler.max_steps " + std::to_string(last + 3);
  REQUIRE(run.train("--nproc-per-node 2" + end).code == 0);
  REQUIRE(run.train("--nproc-per-node 2 --checkpoint.checkpoint_dir whole" + end).code == 0);
  const auto whole = run.folder.path() / "whole";
  CHECK(newest_step(whole) == last + 2);
  CHECK(tensors(checkpoint::newest_checkpoint(whole)) == tensors(checkpoint::newest_checkpoint(run.root())));
}
