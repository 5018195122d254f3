// Whole runs in this process: a run must write the same on every mesh.
#include "train/run.h"

#include <atomic>
#include <cmath>
#include <fstream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include "comm/loopback/loopback.h"
#include "config/recipe.h"
#include "temporary_folder.h"
#include "torch_catch.h"
#include "train/tensor_memory.h"

namespace automodel::train {
namespace {

struct Row {
  double loss = 0, norm = 0, lr = 0;
  double work = 0;  ///< MFU times seconds; 0: no MFU
};

/// Trains a tiny model with the overrides `words` on `ranks` loopback ranks; returns the rows of the log.
std::vector<Row> train(const std::vector<std::string>& words, int ranks = 1, const std::string& data = "",
                       const test::TemporaryFolder& folder = {}) {
  if (!data.empty()) folder.write("rows.jsonl", data);
  const std::string text =
      "seed: 3\n"
      "device: cpu\n"
      "model: {config: {model_type: llama, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2, "
      "num_attention_heads: 2, num_key_value_heads: 2, vocab_size: 260, max_position_embeddings: 32, "
      "tie_word_embeddings: true}, torch_dtype: float64}\n"
      "distributed: {strategy: ddp}\n" +
      (data.empty() ? std::string("dataset: {_target_: mock, vocab_size: 64, seq_length: 8, num_samples: 64}\n")
                    : "dataset: {_target_: jsonl, path: " + folder.path().string() +
                          "/rows.jsonl, tokenizer: bytes}\n"
                          "dataloader: {shuffle: false}\n") +
      "step_scheduler: {global_batch_size: 8, local_batch_size: 4, max_steps: 4, num_epochs: null}\n"
      "logging: {tensorboard: false}\n"
      "checkpoint: {enabled: false, checkpoint_dir: " +
      folder.path().string() + "/run}\n";
  Diagnostics problems;
  const auto loaded = config::read_recipe(text, "r.yaml", config::parse_overrides(words, problems),
                                          [](const std::string&) { return std::nullopt; });
  REQUIRE(to_text(problems) + to_text(loaded.problems) == "");
  const auto outcome = comm::run_ranks(ranks, [&](comm::World& world) { run_training(loaded, world); });
  INFO(outcome.text);
  REQUIRE(outcome.ok());
  std::vector<Row> rows;
  std::ifstream log(folder.path() / "run/training.jsonl");
  for (std::string line; std::getline(log, line);) {
    const auto row = nlohmann::json::parse(line);
    const auto& norm = row.at("grad_norm");  // text where it is not finite
    const auto& mfu = row.at("mfu");
    rows.push_back({row.at("loss"), norm.is_number() ? norm.get<double>() : INFINITY, row.at("lr"),
                    mfu.is_null() ? 0 : mfu.get<double>() * row.at("step_time").get<double>()});
  }
  return rows;
}

const std::vector<std::string> kPipeline = {"distributed.pp_size=2",
                                            "distributed.pipeline={pp_schedule: 1F1B, pp_microbatch_size: 2}"};

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

TEST_CASE("a run in 16-bit types trains with a finite loss", "[train]") {
  for (const char* type : {"bfloat16", "float16"}) {
    INFO(type);
    const auto rows = train({std::string("model.torch_dtype=") + type});
    REQUIRE(rows.size() == 4);
    CHECK(std::isfinite(rows.back().loss));
  }
  CHECK(train({"model.torch_dtype=float32", "distributed={strategy: fsdp2, mp_policy: {param_dtype: bfloat16}}"})
            .size() == 4);
}

TEST_CASE("a run records MFU where the peak is known", "[train]") {
  CHECK(train({}).front().work == 0);
  const auto slow = train({"hardware.peak_tflops=1"}), fast = train({"hardware.peak_tflops=4"}, 2);
  REQUIRE(slow.front().work > 0);
  for (const auto& row : slow) CHECK(row.work == Approx(slow.front().work));
  CHECK(fast.front().work == Approx(slow.front().work / 8));  // the same work of two ranks with four times the peak
}

TEST_CASE("a validation loss is the mean over label tokens for every batch size", "[train]") {
  // Six rows with 2 to 12 label tokens, so that a mean of means is another number.
  std::string rows;
  for (int row = 0; row < 6; ++row)
    rows +=
        "{\"prompt\": \"abc\", \"response\": \"" + std::string(static_cast<std::size_t>(1 + 2 * row), 'd') + "\"}\n";
  const test::TemporaryFolder data;
  const auto path = data.write("validation.jsonl", rows).native();
  const auto losses = [&](std::vector<std::string> words, int batch, int ranks) {  // `batch` rows on each rank
    words.push_back("validation_dataset={_target_: jsonl, path: " + path + ", tokenizer: bytes}");
    words.push_back("step_scheduler.local_batch_size=" + std::to_string(batch));
    words.push_back("step_scheduler.val_every_steps=2");
    const test::TemporaryFolder folder;
    CHECK(train(words, ranks, "", folder).size() == 4);
    std::vector<double> out;
    std::ifstream log(folder.path() / "run/validation.jsonl");
    for (std::string line; std::getline(log, line);) {
      const auto row = nlohmann::json::parse(line);
      CHECK(row.at("num_label_tokens") == 42);
      out.push_back(row.at("val_loss"));
    }
    REQUIRE(out.size() == 2);
    return out;
  };
  const auto whole = losses({}, 8, 1);  // all six rows in one batch
  for (const auto& [words, batch, ranks] : std::vector<std::tuple<std::vector<std::string>, int, int>>{
           {{}, 2, 1}, {{}, 1, 1}, {{}, 1, 2}, {kPipeline, 2, 2}}) {
    const auto parts = losses(words, batch, ranks);
    for (std::size_t i = 0; i < whole.size(); ++i) CHECK(parts[i] == Approx(whole[i]).epsilon(1e-9));
  }
}

TEST_CASE("a run ends early when its validation loss stays, also when it was resumed, on every mesh", "[train]") {
  // Without a learning rate every validation has the same loss: the second and the third are not lower.
  const std::vector<std::string> words = {
      "checkpoint.enabled=true", "optimizer={_target_: adamw, lr: 0}", "step_scheduler.val_every_steps=1",
      "validation_dataset={_target_: mock, vocab_size: 64, seq_length: 8, num_samples: 8}",
      "step_scheduler.early_stopping_patience=2"};
  const auto steps = [&](const std::string& most, int ranks, const test::TemporaryFolder& folder) {
    return train(words + std::vector<std::string>{"step_scheduler.max_steps=" + most}, ranks, "", folder).size();
  };
  for (const int ranks : {1, 2}) {
    const test::TemporaryFolder whole, parts;
    CHECK(steps("9", ranks, whole) == 3);
    CHECK(std::filesystem::exists(whole.path() / "run/epoch_0_step_2/manifest.json"));
    CHECK(steps("9", ranks, whole) == 3);  // nothing is left to train
    CHECK(steps("2", ranks, parts) == 2);
    CHECK(steps("9", ranks, parts) == 3);
    // A larger patience lets it go on.
    CHECK(train(words +
                    std::vector<std::string>{"step_scheduler.max_steps=9", "step_scheduler.early_stopping_patience=4"},
                ranks, "", parts)
              .size() == 5);
  }
}

TEST_CASE("optimizer overrides of a tied weight reach its copy on the last stage", "[train]") {
  for (const char* pattern : {"embed_tokens", "lm_head"}) {
    INFO(pattern);
    const std::vector<std::string> words = {
        std::string("optimizer={_target_: adamw, lr: 0.01, param_group_overrides: [{pattern: ") + pattern +
        ", lr_mult: 0.1}]}"};
    const auto one = train(words), two = train(words + kPipeline, 2);
    REQUIRE(one.size() == two.size());
    for (std::size_t i = 0; i < one.size(); ++i) {
      CHECK(std::abs(one[i].loss - two[i].loss) < 1e-9 * one[i].loss);
      CHECK(std::abs(one[i].norm - two[i].norm) < 1e-9 * one[i].norm);
    }
  }
}

TEST_CASE("scale_grads_in_schedule ignores the padding rows of an epoch's last step", "[train]") {
  std::string data;
  for (int row = 0; row < 10; ++row) data += "{\"prompt\": \"abc\", \"response\": \"defghij\"}\n";
  const auto rows =
      train(kPipeline + std::vector<std::string>{"distributed.pipeline.scale_grads_in_schedule=true", "optimizer.lr=0"},
            2, data);
  REQUIRE(rows.size() == 4);  // 8 rows, 2 rows, 8, 2
  for (const auto& row : rows) {
    CHECK(std::abs(row.loss - rows[0].loss) < 1e-9 * row.loss);
    CHECK(std::abs(row.norm - rows[0].norm) < 1e-9 * row.norm);
  }
}

TEST_CASE("ranks of one process start counting tensor memory together", "[train]") {
  std::atomic<int> waiting = 8;
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < 8; ++rank)
    ranks.emplace_back([&] {
      --waiting;
      while (waiting > 0) continue;
      count_tensor_memory();
      at::ones({1000});
    });
  ranks.clear();
  take_tensor_peak();
  at::ones({100000});
  const auto peak = take_tensor_peak();
  CHECK(peak >= 400000);
  CHECK(peak < 500000);
}

TEST_CASE("large blocks are kept for the next step, within the most that was in use", "[train]") {
  count_tensor_memory();
  constexpr std::int64_t kMebibyte = 1 << 20;
  const auto block = [](std::int64_t mebibytes) { return at::empty({mebibytes * kMebibyte}, at::kByte); };
  const auto used = block(400);
  { const auto most = block(300); }
  const auto first_byte = [](const at::Tensor& x) { return static_cast<std::uint8_t*>(x.data_ptr()); };
  // What is mapped anew is 0.
  const auto stays = [&](std::int64_t before, std::int64_t after) {
    *first_byte(block(before)) = 7;
    const auto other = at::empty({1000});
    return *first_byte(block(after)) == 7;
  };
  for (const std::int64_t size : {32, 33, 90}) {
    CAPTURE(size);
    CHECK(stays(size, size));
  }
  CHECK(stays(200, 190));  // wastes less than an eighth
  CHECK_FALSE(stays(110, 90));
}

TEST_CASE("steps skipped in float16 do not advance the warm-up", "[train]") {
  const auto rows = train({"model.torch_dtype=float16", "step_scheduler.max_steps=30", "optimizer.lr=0.01",
                           "lr_scheduler={lr_warmup_steps: 5, lr_decay_style: constant}"});
  REQUIRE(rows.size() == 30);
  double most = 0;  // the scale begins at 2^32: many steps are skipped, and each rate is used before the next
  for (std::size_t i = 1; i < rows.size(); ++i) {
    CHECK(rows[i].lr > rows[i - 1].lr - 1e-12);
    most = std::max(most, rows[i].lr - rows[i - 1].lr);
  }
  CHECK(rows[5].lr == rows[0].lr);
  CHECK(most < 0.0025);
}

}  // namespace automodel::train
