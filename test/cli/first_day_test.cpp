// What a user meets on the first day of training, tested with the programs themselves: runs that end, resume and are
// mixed up.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "golden_folder.h"

namespace automodel {
namespace {

namespace fs = std::filesystem;

const std::string kGolden = automodel::golden_folder();

/// A run of four steps over rows of instructions.
struct FirstRun {
  test::TemporaryFolder folder;

  FirstRun() {
    folder.write("a.jsonl", rows("day"));
    folder.write("b.jsonl", rows("night"));
    folder.write("r.yaml",
                 "seed: 3\ndevice: cpu\n"
                 "model: {config: {model_type: llama, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2, "
                 "num_attention_heads: 2, num_key_value_heads: 2, vocab_size: 260, max_position_embeddings: 64}}\n"
                 "distributed: {strategy: ddp}\n"
                 "dataset: {_target_: jsonl, path: a.jsonl, tokenizer: bytes, cache: false}\n"
                 "step_scheduler: {global_batch_size: 4, local_batch_size: 4, max_steps: 4, num_epochs: null}\n"
                 "optimizer: {lr: 0.001}\n"
                 "lr_scheduler: {lr_warmup_steps: 1}\n"
                 "logging: {tensorboard: false}\n"
                 "checkpoint: {checkpoint_dir: run}\n");
  }
  static std::string rows(const std::string& word) {
    std::string out;
    for (int i = 0; i < 8; ++i)
      out += fmt::format("{{\"prompt\": \"{} {}\", \"response\": \"good {}\"}}\n", word, i, word);
    return out;
  }
  test::Outcome train(const std::string& words = "") const {
    return test::run_program(folder, "train r.yaml " + words);
  }
};

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string last_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

TEST_CASE("A plan uses what it just measured, also for rows that only the data tells the length of", "[first-day]") {
  const FirstRun run;
  const char* set = std::getenv("AUTOMODEL_CALIBRATION");
  const auto before = set == nullptr ? std::nullopt : std::optional<std::string>(set);
  setenv("AUTOMODEL_CALIBRATION", (run.folder.path() / "rates.json").c_str(), 1);
  const auto planned = test::run_program(run.folder, "plan r.yaml --calibrate");
  before ? setenv("AUTOMODEL_CALIBRATION", before->c_str(), 1) : unsetenv("AUTOMODEL_CALIBRATION");
  INFO(planned.out << planned.err);
  REQUIRE(planned.code == 0);
  CHECK(holds(planned.out, "estimates assume 14 tokens each"));
  CHECK(holds(planned.out, "(cpu: calibrated 2"));
  CHECK_FALSE(holds(planned.out, "at other sizes"));
}

TEST_CASE("A run ends by printing its losses, its model's path and what to do with the model", "[first-day]") {
  const FirstRun run;
  const auto first = run.train();
  INFO(first.out << first.err);
  REQUIRE(first.code == 0);
  CHECK(first.out.find("\nestimate ") == std::string::npos);  // the rates of an uncalibrated machine are a guess
  CHECK(holds(first.out, "\nloss      first "));
  CHECK(holds(first.out, " (step 0), last "));
  CHECK(holds(first.out, "\nmodel     run/epoch_1_step_3/model: a Hugging Face folder"));
  CHECK(holds(first.out, "\ntry       automodel generate run/epoch_1_step_3 --prompt "));
  CHECK(last_line(first.out) == "export    automodel checkpoint export run/epoch_1_step_3 NEW_FOLDER");
  const auto blank = run.train("--checkpoint.checkpoint_dir \"it's here\"");
  CHECK(last_line(blank.out) == R"(export    automodel checkpoint export 'it'\''s here/epoch_1_step_3' NEW_FOLDER)");
  const auto nothing = run.train("--checkpoint.enabled false --checkpoint.checkpoint_dir other");
  CHECK(last_line(nothing.out) == "model     not saved: checkpoint.enabled is false");
  SECTION("the commands that are printed work") {
    const auto tried = test::run_program(run.folder, "generate run/epoch_1_step_3 --prompt Once --max-new-tokens 4");
    INFO(tried.out << tried.err);
    CHECK(tried.code == 0);
    const auto again = run.train("--generation.prompts '[\"Once\"]' --generation.max_new_tokens 4");
    INFO(again.out << again.err);
    CHECK(again.code == 0);
    CHECK(holds(again.out, "all 4 steps are done"));
    CHECK(holds(again.out, "--- Once"));
    const auto exported = test::run_program(run.folder, "checkpoint export run new");
    INFO(exported.err);
    CHECK(exported.code == 0);
    CHECK(holds(exported.out, "epoch_1_step_3"));  // which checkpoint was exported
    CHECK(fs::exists(run.folder.path() / "new/config.json"));
  }
}

TEST_CASE("A run that needs more memory than there is says so before it builds its model", "[first-day]") {
  const FirstRun run;
  const auto outcome = run.train("--hardware.memory 1MiB");
  INFO(outcome.out << outcome.err);
  CHECK(outcome.code == 0);
  CHECK(holds(outcome.err, "warning[does-not-fit]: pp rank 0 needs "));
  CHECK(holds(outcome.err, "; the device has 1.00 MiB"));
  std::ifstream events(run.folder.path() / "run/events.jsonl");
  CHECK(holds(std::string{std::istreambuf_iterator<char>(events), {}}, "\"id\": \"does-not-fit\""));
  // Where building fails, this is the first thing to be seen.
  const auto failed = run.train("--hardware.memory 1MiB --checkpoint.restore_from nowhere");
  INFO(failed.err);
  CHECK(failed.code == 13);
  CHECK(failed.err.find("warning[does-not-fit]") < failed.err.find("error["));
  CHECK_FALSE(holds(run.train().err, "does-not-fit"));
}

TEST_CASE("A run with another model, dataset or method does not resume from a checkpoint unasked", "[first-day]") {
  const FirstRun run;
  REQUIRE(run.train("--step_scheduler.max_steps 2").code == 0);
  const std::vector<std::pair<std::string, std::string>> others = {
      {"--dataset.path b.jsonl", "the data set is jsonl b.jsonl (8 rows), the checkpoint's is jsonl a.jsonl (8 rows)"},
      {"--dataset.mask_prompt false",
       "the data set is jsonl a.jsonl (8 rows), as in the checkpoint, but its content differs"},
      {"--model.config.rope_theta 1234", "the model is inline (llama, "},
      {"--peft.dim 4", "the method is adapters of rank 4, the checkpoint's is training of all parameters"}};
  for (const auto& [words, text] : others) {
    const auto outcome = run.train(words);
    INFO(words << "\n" << outcome.out << outcome.err);
    CHECK(outcome.code == 2);
    CHECK(holds(outcome.err, "r.yaml:"));
    CHECK(holds(outcome.err, "error[checkpoint-of-another-run]: 'run/epoch_0_step_1' was saved by another run: "));
    CHECK(holds(outcome.err, text));
  }
  SECTION("another dataset is refused even if all steps are done") {
    CHECK(run.train("--step_scheduler.max_steps 2 --dataset.path b.jsonl").code == 2);
  }
  SECTION("a checkpoint that is named explicitly is used, and the differences are listed") {
    const auto outcome = run.train("--dataset.path b.jsonl --checkpoint.restore_from LATEST");
    INFO(outcome.out << outcome.err);
    CHECK(outcome.code == 0);
    CHECK(holds(outcome.out, "resume    run/epoch_0_step_1: step 1 is done"));
    CHECK(holds(outcome.out, "resume    the data set is jsonl b.jsonl (8 rows), the checkpoint's is"));
  }
  SECTION("resume: never starts a new run") {
    const auto outcome = run.train("--dataset.path b.jsonl --checkpoint.resume never");
    CHECK(outcome.code == 0);
    CHECK(holds(outcome.out, "step 0 |"));
    CHECK(holds(run.train("--dataset.path b.jsonl").out, "all 4 steps are done"));
  }
  SECTION("moved data files and another dtype still count as the same run") {
    fs::create_directories(run.folder.path() / "elsewhere");
    fs::rename(run.folder.path() / "a.jsonl", run.folder.path() / "elsewhere/a.jsonl");
    const auto outcome = run.train("--dataset.path elsewhere/a.jsonl --model.torch_dtype float64");
    INFO(outcome.out << outcome.err);
    CHECK(outcome.code == 0);
    CHECK(holds(outcome.out, "step 2 |"));
  }
}

TEST_CASE("Changes since the checkpoint are listed on resume, including learning rates", "[first-day]") {
  const FirstRun run;
  REQUIRE(run.train("--step_scheduler.max_steps 2").code == 0);
  const auto kept = run.train("--optimizer.lr 0.5");
  INFO(kept.out << kept.err);
  REQUIRE(kept.code == 0);
  CHECK(holds(kept.out, "resume    changed: step_scheduler.max_steps 4 (was 2), optimizer.lr 0.5 (was 0.001)"));
  CHECK(holds(kept.out, "resume    rates are the checkpoint's, not the recipe's: "));
  CHECK(holds(kept.out, "max_lr 0.001 (was 0.5)") == false);
  CHECK(holds(kept.out, "max_lr 0.001 (the recipe's 0.5)"));
  CHECK(holds(kept.out, "override_opt_param_scheduler"));
  const auto taken = run.train(
      "--step_scheduler.max_steps 6 --optimizer.lr 0.5 "
      "--lr_scheduler.override_opt_param_scheduler true");
  INFO(taken.out << taken.err);
  REQUIRE(taken.code == 0);
  CHECK(holds(taken.out, "resume    rates are the recipe's: "));
  CHECK(holds(taken.out, "max_lr 0.5 (was 0.001)"));
  const auto same = run.train(
      "--step_scheduler.max_steps 6 --optimizer.lr 0.5 "
      "--lr_scheduler.override_opt_param_scheduler true");
  CHECK_FALSE(holds(same.out, "resume    changed"));
  CHECK_FALSE(holds(same.out, "resume    rates"));
}

TEST_CASE("A saved model has the tokenizer and chat template that it was trained with", "[first-day]") {
  const FirstRun run;
  const auto base = run.folder.path() / "base";
  fs::copy(kGolden + "/hf/e2e_llama_sft", base);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
    fs::copy(kGolden + "/tokenizer/llama3/" + name, base / name);
  run.folder.write("base/generation_config.json", "{\"of\": \"base\"}");
  run.folder.write("mine.jinja", "{% for m in messages %}{{ m['content'] }}<|im_end|>{% endfor %}");
  const std::string model = "--model '{pretrained_model_name_or_path: base}' ";
  const auto saved = [&](const std::string& words, const std::string& root) {
    const auto outcome = run.train(model + words + " --step_scheduler.max_steps 2 --checkpoint.checkpoint_dir " + root);
    INFO(outcome.out << outcome.err);
    REQUIRE(outcome.code == 0);
    return run.folder.path() / root / "LATEST/model";
  };
  const auto text = [](const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string{std::istreambuf_iterator<char>(file), {}};
  };
  const auto other = saved("--dataset.tokenizer " + kGolden + "/tokenizer/qwen2", "qwen");
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
    CHECK(text(other / name) == text(fs::path(kGolden + "/tokenizer/qwen2") / name));
  CHECK(text(other / "generation_config.json") == "{\"of\": \"base\"}");
  const auto templated = saved("--dataset.tokenizer base --dataset.chat_template mine.jinja", "mine");
  CHECK(text(templated / "tokenizer.json") == text(base / "tokenizer.json"));
  CHECK(text(templated / "chat_template.jinja") == run.folder.read("mine.jinja"));
  const auto bytes = saved("--dataset.tokenizer bytes", "bytes");
  CHECK_FALSE(fs::exists(bytes / "tokenizer.json"));
  // A model that was made here ends its texts as its tokenizer does, in transformers too.
  const auto made = run.train("--step_scheduler.max_steps 2 --checkpoint.checkpoint_dir made");
  REQUIRE(made.code == 0);
  const auto generation = text(run.folder.path() / "made/LATEST/model/generation_config.json");
  CHECK(holds(generation, "\"bos_token_id\": 256"));
  CHECK(holds(generation, "\"eos_token_id\": 257"));
}

TEST_CASE("verify --json compares each step and gradient in one document", "[first-day]") {
  const FirstRun run;
  const auto words = "verify r.yaml --json --nproc-per-node 2 --step_scheduler.local_batch_size 1 ";
  const auto outcome = test::run_program(run.folder, words);
  INFO(outcome.out << outcome.err);
  REQUIRE(outcome.code == 0);
  const auto made = nlohmann::json::parse(outcome.out);
  CHECK(made["equal"] == true);
  CHECK(made["ranks"] == 2);
  CHECK(made["steps"][0]["loss"].get<double>() == Approx(made["steps"][0]["loss_on_one_rank"].get<double>()));
  CHECK(made["difference"]["gradient"].get<double>() <= made["tolerance"].get<double>());
  CHECK(made["gradients"].size() > 10);
  const auto refused = test::run_program(run.folder, "verify r.yaml --json");
  CHECK(refused.code != 0);
  CHECK(nlohmann::json::parse(refused.out)["errors"][0]["id"] == "one-rank");
}

TEST_CASE("Exporting adapters without --merge is refused", "[first-day]") {
  const FirstRun run;
  REQUIRE(run.train("--peft.dim 4 --step_scheduler.max_steps 2").code == 0);
  const auto alone = test::run_program(run.folder, "checkpoint export run new");
  INFO(alone.err);
  CHECK(alone.code == 2);
  CHECK(holds(alone.err, "error[missing-option]"));
  CHECK(holds(alone.err, "add --merge"));
}

TEST_CASE("A second run in the folder of a run in progress is refused", "[first-day]") {
  const FirstRun run;
  const std::string train = "'" AUTOMODEL_PROGRAM "' train r.yaml --step_scheduler.max_steps 1000000 ";
  run.folder.write("two.sh",
                   train +
                       ">out 2>err & pid=$!\n"
                       "until [ -s run/training.jsonl ] || ! kill -0 $pid 2>/dev/null; do sleep 0.05; done\n" +
                       train + "2>err2; echo $? >code2\nkill -INT $pid\nwait $pid\n");
  const int status = std::system(("cd '" + run.folder.path().string() + "' && timeout 120 bash two.sh").c_str());
  const auto err = run.folder.read("err"), second = run.folder.read("err2");
  INFO(err << second);
  CHECK(WEXITSTATUS(status) == 10);
  CHECK(run.folder.read("code2") == "4\n");
  CHECK(holds(last_line(second), "rank 0: error[folder-in-use]: another run is writing to 'run' (process "));
}

TEST_CASE("Ctrl-C saves a checkpoint and says how to resume", "[first-day]") {
  for (const std::string ranks : {"", "--nproc-per-node 2 --step_scheduler.local_batch_size 2 "}) {
    const FirstRun run;
    // In a script file, so that the shell that runs it expands its variables.
    run.folder.write("stop.sh",
                     "'" AUTOMODEL_PROGRAM "' train r.yaml " + ranks +
                         "--step_scheduler.max_steps 1000000 --step_scheduler.ckpt_every_steps 1000000 "
                         "--step_scheduler.save_checkpoint_every_epoch false >out 2>err & pid=$!\n"
                         "until [ -s run/training.jsonl ] || ! kill -0 $pid 2>/dev/null; do sleep 0.05; done\n"
                         "kill -" +
                         (ranks.empty() ? "INT" : "USR1") + " $pid\nwait $pid\n");
    const int status = std::system(("cd '" + run.folder.path().string() + "' && timeout 120 bash stop.sh").c_str());
    const auto out = run.folder.read("out"), err = run.folder.read("err");
    INFO(ranks << out << err);
    CHECK(WEXITSTATUS(status) == 10);
    const auto said = out.find("Saved at step ");
    REQUIRE(said != std::string::npos);
    CHECK(last_line(out) ==
          fmt::format("Saved at step {}. Run the same command to resume.", std::atoi(&out[said + 14])));
    CHECK(fs::exists(run.folder.path() / "run/LATEST/state.json"));
    if (!ranks.empty()) CHECK(last_line(err) == "Stopped as asked (exit code 10). Run the same command to resume.");
  }
}

TEST_CASE("verify compares several ranks, and says so if there is only one", "[first-day]") {
  const FirstRun run;
  const auto one = test::run_program(run.folder, "verify r.yaml");
  CHECK(one.code == 2);
  CHECK(holds(one.err, "error[one-rank]: the mesh is one rank: there is nothing to compare it with"));
  for (const char* ranks : {"--nproc-per-node 2", "--world-size 2"}) {
    const auto two =
        test::run_program(run.folder, std::string("verify r.yaml --step_scheduler.local_batch_size 2 ") + ranks);
    INFO(two.out << two.err);
    CHECK(two.code == 0);
    CHECK(holds(two.out, "\nequal: "));
  }
}

TEST_CASE("verify draws rows with pictures by the files beside the model, and says so if they are not here",
          "[first-day]") {
  const FirstRun run;
  const auto there =
      test::run_program(run.folder,
                        "verify r.yaml --nproc-per-node 2 --step_scheduler.local_batch_size 2 --model.config "
                        "null --model.pretrained_model_name_or_path Qwen/Qwen3-VL-8B-Instruct");
  INFO(there.out << there.err);
  CHECK(there.code == 2);
  CHECK(holds(there.err,
              "error[missing-file]: rows with pictures need the tokenizer and the processor of "
              "'Qwen/Qwen3-VL-8B-Instruct', which are not here"));
}

TEST_CASE("Words of other launchers and keys without a value are explained", "[first-day]") {
  const FirstRun run;
  CHECK(holds(run.train("--nproc 2").err, "write --nproc-per-node N"));
  CHECK(holds(run.train("-n 2").err, "write --nproc-per-node N"));
  CHECK(holds(run.train("--lr 1e-3").err, "write --optimizer.lr VALUE"));
  CHECK(holds(run.train("--peft.r 8").err, "write --peft.dim VALUE"));
  const auto bare = run.train("--checkpoint.checkpoint_dir");
  CHECK(bare.code == 2);
  CHECK(holds(bare.err, "checkpoint.checkpoint_dir needs a value"));
  CHECK(holds(run.train("--device gpu").err, "did you mean 'cuda'?"));
  CHECK(test::run_program(run.folder, "plan r.yaml --nproc-per-node 1").code == 0);
  CHECK(holds(run.train("--world-size 1 --checkpoint.checkpoint_dir other").out, "loss      first "));
}

TEST_CASE("A run that ends early says why, and exports the checkpoint with the lowest validation loss", "[first-day]") {
  const FirstRun run;
  // The rate of the second step is absurd: from then on every validation is worse than the first.
  const std::string words =
      "--validation_dataset._target_ jsonl --validation_dataset.path b.jsonl --validation_dataset.tokenizer bytes "
      "--validation_dataset.cache false --step_scheduler.val_every_steps 1 --step_scheduler.ckpt_every_steps 1 "
      "--step_scheduler.early_stopping_patience 2 --step_scheduler.max_steps 9 --optimizer.lr 1 "
      "--lr_scheduler.lr_warmup_steps 1 --lr_scheduler.lr_decay_style constant --checkpoint.max_recent_checkpoints 1";
  const auto ended = run.train(words);
  INFO(ended.out << ended.err);
  REQUIRE(ended.code == 0);
  CHECK(holds(ended.out, "\nended early after step 2: the validation loss was not lower than "));
  CHECK(holds(ended.out, "\nmodel     run/epoch_1_step_2/model: "));
  CHECK(holds(ended.out, "\nbest      run/LOWEST_VAL: the lowest loss on validation data of a checkpoint, "));
  CHECK(last_line(ended.out) == "export    automodel checkpoint export run/LOWEST_VAL NEW_FOLDER");
  CHECK(holds(run.folder.read("run/events.jsonl"), "\"event\": \"early-stop\""));
  // It is kept beside the newest.
  const auto exported = test::run_program(run.folder, "checkpoint export run/LOWEST_VAL new");
  CHECK(exported.code == 0);
  CHECK(holds(exported.out, "epoch_0_step_0"));
  CHECK(run.folder.read("new/model.safetensors") == run.folder.read("run/epoch_0_step_0/model/model.safetensors"));
  const auto again = run.train(words);
  CHECK(holds(again.out, "ended early after step 2: nothing is left to train, since "));
  CHECK(last_line(again.out) == last_line(ended.out));
}

TEST_CASE("A run that was resumed ends with the losses of all its steps", "[first-day]") {
  const FirstRun run;
  const std::string validated =
      "--validation_dataset._target_ jsonl --validation_dataset.path b.jsonl --validation_dataset.tokenizer bytes "
      "--validation_dataset.cache false --step_scheduler.val_every_steps 2 ";
  REQUIRE(run.train(validated).code == 0);
  const auto more = run.train(validated + "--step_scheduler.max_steps 6");
  INFO(more.out << more.err);
  REQUIRE(more.code == 0);
  CHECK(holds(more.out, "\nloss      first "));
  CHECK(holds(more.out, " (step 0), last "));
  CHECK(holds(more.out, " (step 5), best "));
}

TEST_CASE("A run that has no memory left says what needs less, and its last line names the rank", "[first-day]") {
  const FirstRun run;
  // Logits of 16 x 1024 tokens over 32000 words are 2 GB.
  run.folder.write(
      "r.yaml",
      "device: cpu\n"
      "model: {config: {model_type: llama, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1, "
      "num_attention_heads: 2, num_key_value_heads: 2, vocab_size: 32000, max_position_embeddings: 1024}}\n"
      "dataset: {_target_: mock, vocab_size: 32000, seq_length: 1024}\n"
      "loss_fn: {_target_: masked_ce}\n"
      "step_scheduler: {global_batch_size: 16, local_batch_size: 16, max_steps: 1, num_epochs: null}\n"
      "checkpoint: {enabled: false}\nhardware: {memory: 100 GiB}\n");
  const int status = std::system(("cd '" + run.folder.path().string() +
                                  "' && ulimit -v 2000000 && '" AUTOMODEL_PROGRAM "' train r.yaml >.out 2>.err")
                                     .c_str());
  const auto err = run.folder.read(".err");
  INFO(err);
  CHECK(WEXITSTATUS(status) == 4);
  CHECK(holds(err, "\n    help: a smaller step_scheduler.local_batch_size"));
  CHECK(last_line(err).starts_with("rank 0: error[out-of-memory]: the host's memory is used up"));
}

}  // namespace automodel
