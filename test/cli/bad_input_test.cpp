// Users' mistakes: each gives the right id at the right line and exit code 2, and writes nothing.
#include <algorithm>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sys/wait.h>

#include "base/problem_id.h"
#include "cli/program.h"

namespace automodel {
namespace {

const std::string kModel =
    "model: {config: {model_type: llama, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 8, "
    "num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 260, "
    "max_position_embeddings: 128}}\n";
const std::string kData = "dataset: {_target_: mock, vocab_size: 260, seq_length: 64}\n";
const std::string kSteps = "step_scheduler: {global_batch_size: 8, local_batch_size: 8}\n";
const std::string kBase = kModel + kData + kSteps;  // lines 1 to 3

/// A recipe's fourth line: two stages of these modules.
std::string split(const std::string& first, const std::string& second) {
  return "distributed: {pp_size: 2, pipeline: {module_fqns_per_model_part: [" + first + ", " + second + "]}}\n";
}

struct BadInput {
  const char* what;
  std::string recipe;  ///< text of r.yaml
  std::string words;   ///< after `plan r.yaml`
  std::string id;
  int line;  ///< 0: no line (command line)
  std::string key;
};

const std::vector<BadInput> kTable = {
    {"a section's name", kBase + "distributd: {}\n", "", "unknown-key", 4, "distributd"},
    {"a schedule's class", kBase + "lr_scheduler: {_target_: torch.optim.lr_scheduler.CosineAnnealingLR}\n", "",
     "bad-value", 4, "lr_scheduler._target_"},
    {"a key", kBase + "distributed: {pp_sise: 2}\n", "", "unknown-key", 4, "distributed.pp_sise"},
    {"a key two levels down", kBase + "distributed:\n  pp_size: 2\n  pipeline:\n    pp_shedule: 1f1b\n", "",
     "unknown-key", 7, "distributed.pipeline.pp_shedule"},
    {"a key in a list", kBase + "optimizer:\n  param_group_overrides:\n    - {pattern: x, wd_mul: 0}\n", "",
     "unknown-key", 6, "optimizer.param_group_overrides.0.wd_mul"},
    {"a key of the model", "model: {config: {model_type: llama, hidden_sise: 64}}\n" + kData + kSteps, "",
     "missing-key", 1, "model.config.hidden_size"},
    {"a key on the command line", kBase, "--distributed.pp_sise 2", "unknown-key", 0, "distributed.pp_sise"},
    {"an option", kBase, "--jsno", "usage", 0, ""},
    {"a word too many", kBase, "extra", "bad-override", 0, ""},
    {"a processor measured for GPUs", kBase + "device: cuda\n", "--calibrate", "no-device", 4, "device"},
    {"a text for a number", kBase + "seed: many\n", "", "bad-type", 4, "seed"},
    {"a list for a section", kBase + "optimizer: [1, 2]\n", "", "bad-type", 4, "optimizer"},
    {"a number for a list", kBase + "optimizer: {betas: 0.9}\n", "", "bad-type", 4, "optimizer.betas"},
    {"a number out of range", kBase + "distributed: {pp_size: 99999999999}\n", "", "bad-value", 4,
     "distributed.pp_size"},
    {"a negative rate", kBase + "optimizer: {lr: -1}\n", "", "bad-value", 4, "optimizer.lr"},
    {"a strategy that is none", kBase + "distributed: {strategy: fsdp3}\n", "", "bad-value", 4, "distributed.strategy"},
    {"another strategy's option", kBase + "distributed: {strategy: ddp, zero_dp_strategy: 3}\n", "", "unknown-key", 4,
     "distributed.zero_dp_strategy"},
    {"an optimizer that is none", kBase + "optimizer: {_target_: torch.optim.Adamw8}\n", "", "bad-value", 4,
     "optimizer._target_"},
    {"a dtype that torch has not", kBase + "distributed: {mp_policy: {param_dtype: int32}}\n", "", "bad-type", 4,
     "distributed.mp_policy.param_dtype"},
    {"a key twice", kBase + "seed: 1\nseed: 2\n", "", "duplicate-key", 5, "seed"},
    {"broken YAML", kBase + "a: [1, 2\n", "", "yaml-syntax", 4, ""},
    {"a tab", kBase + "optimizer:\n\tlr: 1\n", "", "yaml-syntax", 5, ""},
    {"an unset variable", kBase + "checkpoint: {checkpoint_dir: $AUTOMODEL_TEST_UNSET/x}\n", "", "environment", 4, ""},
    {"sizes that do not make the world", kBase + "distributed: {pp_size: 2, dp_size: 2, pipeline: {}}\n",
     "--world-size 6", "world-size-mismatch", 4, "distributed.dp_size"},
    {"a world that does not divide", kBase + "distributed: {tp_size: 4}\n", "--world-size 6", "indivisible", 4,
     "distributed.tp_size"},
    {"a batch that does not divide among ranks", kBase + "distributed: {dp_size: 3}\n", "", "indivisible", 3,
     "step_scheduler.global_batch_size"},
    {"a batch that does not divide into microbatches",
     kBase + "distributed: {pp_size: 2, pipeline: {pp_microbatch_size: 3}}\n", "", "indivisible", 4,
     "distributed.pipeline.pp_microbatch_size"},
    {"pp without a pipeline section", kBase + "distributed: {pp_size: 2}\n", "", "missing-key", 4,
     "distributed.pp_size"},
    {"more stages than layers", kBase + "distributed: {pp_size: 16, pipeline: {}}\n", "", "too-many-stages", 4,
     "distributed.pp_size"},
    {"more balanced stages than layers",
     kBase + "distributed: {pp_size: 8, pipeline: {layers_per_stage: auto, pp_schedule: Interleaved1F1B}}\n", "",
     "too-many-stages", 4, "distributed.pp_size"},
    {"layers that make no multiple of pp", kBase + "distributed: {pp_size: 3, pipeline: {layers_per_stage: 4}}\n", "",
     "indivisible", 4, "distributed.pipeline.layers_per_stage"},
    {"a schedule that is none", kBase + "distributed: {pp_size: 2, pipeline: {pp_schedule: 1f2b}}\n", "",
     "schedule-unknown", 4, "distributed.pipeline.pp_schedule"},
    {"microbatches that a schedule does not take",
     kBase + "distributed: {pp_size: 4, pipeline: {pp_schedule: DualPipeV}}\nmodel_parallel: "
             "{virtual_pipeline_model_parallel_size: 2}\n",
     "step_scheduler.local_batch_size=4 step_scheduler.global_batch_size=4", "schedule-microbatches", 4,
     "distributed.pipeline.pp_schedule"},
    {"a split that forgets a layer",
     kBase + "distributed: {pp_size: 2, pipeline: {module_fqns_per_model_part: [[model.embed_tokens, model.layers.0], "
             "[model.norm, lm_head]]}}\n",
     "", "missing-module", 4, "distributed.pipeline.module_fqns_per_model_part"},
    {"layers that do not add up", kBase + "distributed: {pp_size: 2, pipeline: {layers_per_stage: [3, 4]}}\n", "",
     "bad-value", 4, "distributed.pipeline.layers_per_stage"},
    {"a module that is none", kBase + split("[model.embed_tokens, model.layer.0]", "[model.norm, lm_head]"), "",
     "unknown-module", 4, "distributed.pipeline.module_fqns_per_model_part"},
    {"a module in two stages", kBase + split("[model.embed_tokens, model.layers.0]", "[model.layers.0, model.norm]"),
     "", "duplicate-module", 4, "distributed.pipeline.module_fqns_per_model_part"},
    {"an embedding in the last stage", kBase + split("[model.layers.0]", "[model.embed_tokens, model.norm]"), "",
     "stage-order", 4, "distributed.pipeline.module_fqns_per_model_part"},
    {"a configuration's class that is none",
     "model: {config: {_target_: transformers.AutoModel, pretrained_model_name_or_path: x}}\n" + kData + kSteps, "",
     "unknown-target", 1, "model.config._target_"},
    {"a schedule without its table",
     kBase + "distributed: {pp_size: 2, pipeline: {pp_schedule: PipelineScheduleMulti}}\n", "", "schedule-needs-csv", 4,
     "distributed.pipeline.pp_schedule"},
    {"a CSV file that is not there", kBase + "distributed: {pp_size: 2, pipeline: {pp_schedule_csv: no.csv}}\n", "",
     "missing-file", 4, "distributed.pipeline.pp_schedule_csv"},
    {"a model that is not there", "model: {pretrained_model_name_or_path: ./no-such-folder}\n" + kData + kSteps, "",
     "model-not-found", 1, "model.pretrained_model_name_or_path"},
    {"sequences longer than the model takes",
     "model: {config: {model_type: gpt2, n_embd: 64, n_layer: 2, n_head: 4, n_positions: 128, vocab_size: 260}}\n"
     "dataset: {_target_: mock, vocab_size: 260, seq_length: 129}\n" +
         kSteps,
     "", "sequence-too-long", 2, "dataset.seq_length"},
    {"a warm-up longer than the run",
     kModel + kData + "step_scheduler: {global_batch_size: 8, local_batch_size: 8, max_steps: 6}\n" +
         "lr_scheduler: {lr_warmup_steps: 10}\n",
     "", "bad-value", 4, "lr_scheduler.lr_warmup_steps"},
    {"a pattern that is none", kBase + "optimizer: {param_group_overrides: [{pattern: '(', wd_mult: 0}]}\n", "",
     "bad-value", 4, "optimizer.param_group_overrides.0.pattern"},
    {"Megatron's rule", kBase + "model_parallel: {sequence_parallel: true}\n", "", "bad-value", 4,
     "model_parallel.sequence_parallel"},
    {"a size given twice, differently",
     kBase + "distributed: {pp_size: 2, pipeline: {}}\nmodel_parallel: {pipeline_model_parallel_size: 4}\n", "",
     "size-conflict", 5, "model_parallel.pipeline_model_parallel_size"},
    {"virtual stages without a pipeline", kBase + "model_parallel: {virtual_pipeline_model_parallel_size: 2}\n", "",
     "bad-value", 4, "model_parallel.virtual_pipeline_model_parallel_size"},
    {"two backends", kBase + "dist_env: {backend: nccl}\ndistributed: {backend: gloo}\n", "", "backend-conflict", 5,
     "distributed.backend"},
    {"a backend that is none", kBase + "dist_env: {backend: smoke}\n", "", "bad-value", 4, "dist_env.backend"},
    {"a strategy beside another strategy's class",
     kBase + "distributed: {strategy: fsdp2, _target_: nemo_automodel.components.distributed.ddp.DDPManager}\n", "",
     "strategy-conflict", 4, "distributed._target_"},
    {"a strategy's class that is none", kBase + "distributed: {_target_: some.where.Nonsense}\n", "", "bad-value", 4,
     "distributed._target_"},
    {"a policy's class that is none", kBase + "distributed: {mp_policy: {_target_: Nonsense}}\n", "", "bad-value", 4,
     "distributed.mp_policy._target_"},
    {"an offload policy's class that is none", kBase + "distributed: {offload_policy: {_target_: Nonsense}}\n", "",
     "bad-value", 4, "distributed.offload_policy._target_"},
    {"stages planned for another length than the data's",
     kBase + "distributed: {pp_size: 2, pipeline: {pp_seq_len: 32}}\n", "", "length-conflict", 4,
     "distributed.pipeline.pp_seq_len"},
    {"two types of the weights", kBase + "model_parallel: {params_dtype: float32}\n", "--model.torch_dtype float16",
     "precision-conflict", 4, "model_parallel.params_dtype"},
    {"bf16 against the policy",
     kBase + "distributed: {mp_policy: {param_dtype: float16}}\nmodel_parallel: {bf16: true}\n", "",
     "precision-conflict", 5, "model_parallel.bf16"},
    {"two types of autocast",
     kBase + "distributed: {autocast_dtype: bfloat16}\nmodel_parallel: {enable_autocast: true, autocast_dtype: "
             "float16}\n",
     "", "precision-conflict", 5, "model_parallel.autocast_dtype"},
    {"two ways to divide the layers",
     kBase + "distributed: {pp_size: 2, pipeline: {layers_per_stage: 4, pipeline_model_parallel_layout: "
             "Etttt|ttttL}}\n",
     "", "split-conflict", 4, "distributed.pipeline.layers_per_stage"},
    {"a Python function", kBase + "model_parallel: {timers: mine.timers}\n", "", "bad-value", 4,
     "model_parallel.timers"},
    {"a switch that is not supported", kBase + "model_parallel: {hybrid_context_parallel: true}\n", "",
     "unsupported-option", 4, "model_parallel.hybrid_context_parallel"},
    {"offloading with a pipeline",
     kBase + "distributed: {pp_size: 2, pipeline: {}}\nmodel_parallel: {cpu_offloading: true, "
             "cpu_offloading_num_layers: 1}\n",
     "", "bad-value", 5, "model_parallel.cpu_offloading"},
    {"offloading with recomputation",
     kBase + "distributed: {activation_checkpointing: full}\nmodel_parallel: {cpu_offloading: true, "
             "cpu_offloading_num_layers: 1}\n",
     "", "bad-value", 5, "model_parallel.cpu_offloading"},
    {"offloading of all layers", kBase + "model_parallel: {cpu_offloading: true, cpu_offloading_num_layers: 8}\n", "",
     "bad-value", 4, "model_parallel.cpu_offloading_num_layers"},
    {"weight shards beyond the tensor-parallel ranks",
     kBase + "distributed: {tp_size: 2}\nmodel_parallel: {tensor_parallel_num_weight_shards: 4}\n", "",
     "unsupported-option", 5, "model_parallel.tensor_parallel_num_weight_shards"},
    {"Megatron's rule of weight shards",
     kBase + "distributed: {tp_size: 2}\nmodel_parallel: {tensor_parallel_num_weight_shards: 3}\n", "", "bad-value", 5,
     "model_parallel.tensor_parallel_num_weight_shards"},
    {"an option of nvFSDP that contradicts",
     kBase + "distributed: {strategy: nvfsdp, zero_dp_strategy: 1, data_parallel_sharding_strategy: optim_grads}\n", "",
     "duplicate-key", 4, "distributed.zero_dp_strategy"},
    {"a level of sharding that is none",
     kBase + "distributed: {strategy: nvfsdp, data_parallel_sharding_strategy: all}\n", "", "bad-value", 4,
     "distributed.zero_dp_strategy"},
    {"no model", kData + kSteps, "", "missing-key", 1, "model"},
    {"nothing at all", "", "", "missing-key", 1, ""},
};

}  // namespace

TEST_CASE("bad input is reported with id, line and key, ends with its id's exit code and writes nothing", "[cli]") {
  for (const auto& row : kTable) {
    INFO(row.what << "\n" << row.recipe << "\n" << row.words);
    const test::TemporaryFolder folder;
    folder.write("r.yaml", row.recipe);
    const auto outcome = test::run_program(folder, "plan r.yaml --json " + row.words);
    INFO(outcome.out << outcome.err);
    const auto id = ProblemId::named(row.id);
    REQUIRE(id);
    CHECK(outcome.code == static_cast<int>(id->exit()));
    const auto errors = nlohmann::json::parse(outcome.out)["errors"];
    REQUIRE_FALSE(errors.empty());
    const auto found = std::find_if(errors.begin(), errors.end(), [&](const auto& e) {
      return e["id"] == row.id && e["line"] == row.line && e["key"] == row.key;
    });
    CHECK(found != errors.end());
    for (const auto& error : errors) {
      CHECK_FALSE(error["message"].template get<std::string>().empty());
      CHECK_FALSE(error["file"].template get<std::string>().empty());
    }
    // The same in text output, and when training.
    const auto text = test::run_program(folder, "plan r.yaml " + row.words);
    CHECK(text.code == outcome.code);
    CHECK(text.out.empty());
    CHECK(text.err.find("error[" + row.id + "]") != std::string::npos);
    const auto train = test::run_program(
        folder, "train r.yaml " + (row.words.find("--world-size") == std::string::npos ? row.words : ""));
    CHECK(train.code == 2);
    std::size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
      files += entry.path().filename().string().starts_with(".") ? 0 : 1;
    CHECK(files == 1);
  }
}

TEST_CASE("a value from a recipe can neither control the terminal nor print a line of its own", "[cli]") {
  const test::TemporaryFolder folder;
  folder.write("r.yaml", kBase + "seed: \"\\e]0;x\\a\\u009b31m\\nrank 0: error[hang]: fake\"\n\"a\\e\\nb\": 1\n");
  for (const std::string words : {"plan r.yaml", "train r.yaml", "plan r.yaml --json", "plan r.yaml --$'k\\e[2J' 1"}) {
    const auto outcome = test::run_program(folder, words);
    INFO(words << "\n" << outcome.err << outcome.out);
    CHECK(outcome.code == 2);
    for (const char c : outcome.err + outcome.out) CHECK((c == '\n' || static_cast<unsigned char>(c) >= 0x20));
    CHECK((outcome.err + outcome.out).find("\xc2\x9b") == std::string::npos);
    CHECK(outcome.err.find("\nrank 0") == std::string::npos);
  }
}

TEST_CASE("of very many problems the first hundred are shown, and all are counted", "[cli]") {
  const test::TemporaryFolder folder;
  std::string text = "device: cpu\n";
  for (int i = 0; i < 300; ++i) text += "k" + std::to_string(i) + ": 1\n";
  folder.write("recipe.yaml", text);
  const auto said = test::run_program(folder, "plan recipe.yaml").err;
  CHECK_THAT(said, Catch::EndsWith(" problems in recipe.yaml, of which 100 are shown\n"));
  CHECK_THAT(said, Catch::Contains("unknown key 'k90'") && !Catch::Contains("unknown key 'k200'"));
}

TEST_CASE("mistakes in model, batch and schedule are reported together", "[cli]") {
  const test::TemporaryFolder folder;
  folder.write("three.yaml",
               "device: cpu\n"
               "model: {config: {model_type: llama, hiden_size: 64, intermediate_size: 160, num_hidden_layers: 8, "
               "num_attention_heads: 4, vocab_size: 100}}\n"
               "distributed: {strategy: ddp, pp_size: 2, dp_size: 2, pipeline: {pp_schedule: 1F2B}}\n"
               "dataset: {_target_: mock, seq_length: 32}\n"
               "step_scheduler: {global_batch_size: 15, local_batch_size: 8}\n");
  const auto outcome = test::run_program(folder, "plan three.yaml");
  CHECK(outcome.code == 2);
  for (const char* part : {"unknown key 'hiden_size'", "error[indivisible]", "three.yaml:3:", "1F2B"})
    CHECK(outcome.err.find(part) != std::string::npos);
}

TEST_CASE("sequences beyond computed positions give a warning, as whole rows but not as packs", "[cli]") {
  const test::TemporaryFolder folder;
  const auto warned = [&](const std::string& lines) {
    folder.write("r.yaml", kModel + kSteps + lines);
    const auto plan = test::run_program(folder, "plan r.yaml --json --no-files");
    INFO(plan.out << plan.err);
    REQUIRE(plan.code == 0);
    const auto warnings = nlohmann::json::parse(plan.out).at("warnings");
    return std::ranges::count_if(warnings, [](const auto& each) { return each["id"] == "beyond-positions"; });
  };
  CHECK(warned("dataset: {_target_: mock, seq_length: 128}\n") == 0);
  CHECK(warned("dataset: {_target_: mock, seq_length: 129}\n") == 1);
  CHECK(warned("dataset: {_target_: jsonl, path: x, tokenizer: bytes}\npacked_sequence: {packed_sequence_size: "
               "256}\n") == 0);
}

TEST_CASE("a checkpoint that the disk has no room for is a warning of plan, and refused by train", "[cli]") {
  const test::TemporaryFolder folder;
  const std::string huge =  // 32 TB with Adam's moments
      "device: cpu\nmodel: {config: {model_type: llama, hidden_size: 16384, intermediate_size: 53248, "
      "num_hidden_layers: 840, num_attention_heads: 128, num_key_value_heads: 8, vocab_size: 128256, "
      "max_position_embeddings: 128}}\n" +
      kData + kSteps;
  const auto warned = [&](const std::string& lines, const std::string& words) {
    folder.write("r.yaml", huge + lines);
    const auto plan = test::run_program(folder, "plan r.yaml --json " + words);
    INFO(plan.out.substr(0, 400) << plan.err);
    REQUIRE(plan.code == 0);
    const auto document = nlohmann::json::parse(plan.out);
    for (const auto& each : document["warnings"])
      if (each["id"] == "disk-space") return each["key"].get<std::string>();
    return std::string();
  };
  CHECK(warned("", "") == "checkpoint.checkpoint_dir");
  const auto train = test::run_program(folder, "train r.yaml");
  INFO(train.err);
  CHECK(train.code == 4);
  CHECK(train.err.find("error[disk-space]: a checkpoint takes ") != std::string::npos);
  CHECK(warned("", "--no-files").empty());
  CHECK(warned("checkpoint: {enabled: false}\n", "").empty());
}

TEST_CASE("a plan gives the hours of the whole run, and GPU hours on GPUs", "[cli]") {
  const test::TemporaryFolder folder;
  const auto time = [&](const std::string& lines, const std::string& words) {
    folder.write("r.yaml", kModel + kData + lines);
    const auto plan = test::run_program(folder, "plan r.yaml --no-files " + words);
    INFO(plan.err);
    REQUIRE(plan.code == 0);
    return plan.out;
  };
  const std::string steps = "step_scheduler: {global_batch_size: 8, local_batch_size: 4, max_steps: 1000}\n";
  const auto own = nlohmann::json::parse(time(steps, "--json --distributed.dp_size 2"))["time"];
  CHECK(own["run_steps"] == 1000);
  CHECK(own["run_hours"].get<double>() == Approx(1000 * own["step"].get<double>() / 3600));
  CHECK(own["run_rank_hours"].get<double>() == Approx(2 * own["run_hours"].get<double>()));
  CHECK(time(steps, "--device cuda --hardware.profile h100").find(" GPU hours") != std::string::npos);
  CHECK(time(steps, "--device cpu").find("the run's 1000 steps: ") != std::string::npos);
  CHECK_FALSE(nlohmann::json::parse(time(kSteps, "--json"))["time"].contains("run_hours"));
}

TEST_CASE("a model or tokenizer that is not here comes with the command that downloads it", "[cli]") {
  const test::TemporaryFolder folder;
  folder.write("r.yaml", "model: {pretrained_model_name_or_path: nobody/none-7b, revision: v2}\n" + kData + kSteps);
  const auto train = test::run_program(folder, "train r.yaml");
  CHECK(train.code == 2);
  CHECK(train.err.find("hf download nobody/none-7b --revision v2") != std::string::npos);
  folder.write("r.yaml", kModel + kSteps + "dataset: {_target_: squad, dataset_name: a/b, tokenizer: nobody/words}\n");
  CHECK(test::run_program(folder, "data r.yaml").err.find("hf download nobody/words") != std::string::npos);
}

TEST_CASE("init writes recipes that plan at once, and overwrites none", "[cli]") {
  const test::TemporaryFolder folder;
  folder.write("corpus.txt", std::string(4000, 'x'));
  for (const std::string words :
       {"pretrain", "sft", "lora", "lora --nproc-per-node 4 --seq-length 256 -o four.yaml",
        "pretrain --data corpus.txt -o text.yaml", "pretrain --model Qwen/Qwen3-0.6B -o own.yaml",
        "sft --data chats.jsonl --model meta-llama/Llama-3.2-1B -o chats.yaml"}) {
    const auto made = test::run_program(folder, "init " + words + " </dev/null");
    INFO(words << made.out << made.err);
    REQUIRE(made.code == 0);
    const auto at = made.out.find("automodel plan ");
    REQUIRE(at != std::string::npos);
    const auto line = made.out.substr(at + 10, made.out.find('\n', at) - at - 10);
    const auto plan = test::run_program(folder, line + " --json");
    INFO(plan.out << plan.err);
    CHECK(plan.code == 0);
    const auto document = nlohmann::json::parse(plan.out);
    for (const auto& warning : document.at("warnings")) CHECK(warning.at("id") == "slow-bfloat16");  // by processor
    CHECK(document.at("ignored").empty());
  }
  CHECK(folder.read("four.yaml").find("dp_size: 4") != std::string::npos);
  CHECK(folder.read("lora.yaml").find("peft:") != std::string::npos);
  const auto before = folder.read("sft.yaml");
  const auto again = test::run_program(folder, "init sft </dev/null");
  CHECK(again.code == 2);
  CHECK(again.err.find("'sft.yaml' exists") != std::string::npos);
  CHECK(folder.read("sft.yaml") == before);
  CHECK(test::run_program(folder, "init </dev/null").code == 2);
  CHECK(test::run_program(folder, "init lorra </dev/null").err.find("lora") != std::string::npos);
}

TEST_CASE("a model that cannot be split over the ranks is refused with exit code 3", "[cli]") {
  const test::TemporaryFolder folder;
  folder.write("r.yaml", kBase + "distributed: {tp_size: 8}\n");  // four heads
  const auto outcome = test::run_program(folder, "plan r.yaml --json");
  INFO(outcome.out << outcome.err);
  CHECK(outcome.code == 3);
  const auto error = nlohmann::json::parse(outcome.out)["errors"][0];
  CHECK(error["id"] == "indivisible");
  CHECK(error["key"] == "distributed.tp_size");
  CHECK(error["line"] == 4);
  folder.write("r.yaml", kBase + "distributed: {tp_size: 2, cp_size: 2}\n");
  const auto good = test::run_program(folder, "plan r.yaml");
  CHECK(good.code == 0);
  CHECK(good.out.find("tensor    weights split over 2 ranks") != std::string::npos);
  CHECK(good.out.find("context   sequences over 2 ranks: ring of 2") != std::string::npos);
}

TEST_CASE("what can be planned but not trained is listed by plan and refused by train", "[cli]") {
  const test::TemporaryFolder folder;
  folder.write(
      "r.yaml",
      kModel + kSteps + "dataset: {_target_: nemo_automodel.components.datasets.llm.seq2seq.make_seq2seq_dataset}\n");
  const auto plan = test::run_program(folder, "plan r.yaml --json");
  INFO(plan.out << plan.err);
  REQUIRE(plan.code == 0);
  CHECK(nlohmann::json::parse(plan.out)["unsupported"][0]["key"] == "dataset");
  const auto train = test::run_program(folder, "train r.yaml");
  CHECK(train.code == 3);
  CHECK(train.err.find("error[unsupported]") != std::string::npos);
}

TEST_CASE("mistakes in a CSV schedule are reported with line and column of the file", "[cli]") {
  const test::TemporaryFolder folder;
  folder.write("r.yaml",
               kBase + "distributed: {pp_size: 2, pipeline: {pp_schedule_csv: s.csv, pp_microbatch_size: 4}}\n");
  folder.write("s.csv", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1X1\n");
  const auto outcome = test::run_program(folder, "plan r.yaml --json");
  CHECK(outcome.code == 2);
  const auto error = nlohmann::json::parse(outcome.out)["errors"][0];
  CHECK(error["id"] == "schedule-csv-cell");
  CHECK(error["line"] == 2);
  CHECK(error["column"] == 14);
  folder.write("s.csv", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  CHECK(test::run_program(folder, "plan r.yaml").code == 0);
}

TEST_CASE("a chart that cannot be written is reported with the cause and leaves no partial file", "[cli]") {
  const test::TemporaryFolder folder;
  folder.write("r.yaml", kBase + "distributed: {pp_size: 2, pipeline: {}}\n");
  const auto full = test::run_program(folder, "plan r.yaml --timeline /dev/full");
  CHECK(full.code == 4);
  CHECK(full.err.find("error[cannot-write]: '/dev/full' cannot be written: No space left on device") !=
        std::string::npos);
  CHECK(full.err.find("free space") != std::string::npos);
  // With the shell's limit on file sizes the file is begun but cannot be finished.
  const int status = std::system(("cd '" + folder.path().string() +
                                  "' && ulimit -f 1 && trap '' XFSZ && '" AUTOMODEL_PROGRAM
                                  "' plan r.yaml --trace t.json >/dev/null 2>err")
                                     .c_str());
  INFO(folder.read("err"));
  CHECK(WEXITSTATUS(status) == 4);
  CHECK(folder.read("err").find("'t.json' cannot be written: File too large") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder.path() / "t.json"));
}

TEST_CASE("ranking checkpoints by a validation set that does not exist gives a warning", "[cli]") {
  const test::TemporaryFolder folder;
  const auto warning = [&](const std::string& lines, const std::string& words = "") {
    folder.write("r.yaml", kBase + lines);
    const auto plan = nlohmann::json::parse(test::run_program(folder, "plan r.yaml --json" + words).out);
    for (const auto& each : plan.at("warnings"))
      if (each.at("key") == "checkpoint.best_metric_key") return each.at("message").get<std::string>();
    return std::string();
  };
  const std::string set = ": {_target_: mock, vocab_size: 260, seq_length: 64}\n";
  const std::string ranked = "checkpoint: {best_metric_key: nights}\n";
  CHECK(warning("") == "");
  CHECK(warning("validation_dataset" + set) == "");
  CHECK(warning("validation_dataset_nights" + set + ranked) == "");
  CHECK(warning(ranked) == "no validation set is named 'nights', so no checkpoint becomes LOWEST_VAL");
  CHECK(warning("validation_dataset" + set + ranked) != "");
  CHECK(warning("validation_dataset" + set + ranked, " --step_scheduler.early_stopping_patience 2") ==
        "no validation set is named 'nights', so no checkpoint becomes LOWEST_VAL and the run never ends early");
  CHECK(warning("validation_dataset_days" + set + ranked) != "");
  CHECK(warning("validation_dataset_days" + set) ==
        "no validation set is named 'default', so no checkpoint becomes LOWEST_VAL");
}

TEST_CASE("a value of the wrong type is reported with a help line", "[cli]") {
  const test::TemporaryFolder folder;
  folder.write("r.yaml", kBase +
                             "distributed: {pp_size: 2, pipeline: {layers_per_stage: none at all}}\n"
                             "checkpoint: {resume: [1, 2]}\n");
  const auto wrong = test::run_program(folder, "plan r.yaml");
  CHECK(wrong.code == 2);
  CHECK(wrong.err.find("help: write a whole number such as 4, auto, or a list such as [3, 5]") != std::string::npos);
  CHECK(wrong.err.find("help: write one of these words") != std::string::npos);
}

TEST_CASE("unknown commands and missing recipes end with exit code 2, --help and --version work", "[cli]") {
  const test::TemporaryFolder folder;
  CHECK(test::run_program(folder, "plam r.yaml").code == 2);
  CHECK(test::run_program(folder, "plam r.yaml").err.find("did you mean 'plan'?") != std::string::npos);
  CHECK(test::run_program(folder, "plam r.yaml").err.find("unknown command 'plam'") != std::string::npos);
  const auto usage = test::run_program(folder, "plan");
  CHECK(usage.code == 2);
  CHECK(usage.err.find("error[usage]") != std::string::npos);
  CHECK(usage.err.find("see automodel plan --help") != std::string::npos);
  const auto nothing = test::run_program(folder, "");
  CHECK(nothing.code == 2);
  CHECK(nothing.err.find("train|plan") != std::string::npos);
  CHECK(test::run_program(folder, "plan --help").out.find("Usage: automodel plan RECIPE") != std::string::npos);
  const auto missing = test::run_program(folder, "plan nowhere.yaml");
  CHECK(missing.code == 2);
  CHECK(missing.err.find("error[missing-file]: recipe 'nowhere.yaml' cannot be read: No such file") !=
        std::string::npos);
  CHECK(test::run_program(folder, "plan .").err.find("recipe '.' cannot be read: Is a directory") != std::string::npos);
  CHECK(test::run_program(folder, "--help").code == 0);
  CHECK(test::run_program(folder, "--help").out.find("Exit codes:") != std::string::npos);
  CHECK(test::run_program(folder, "--version").out.starts_with("0."));
}

TEST_CASE("invalid options and option values are refused with a usage error", "[cli]") {
  const test::TemporaryFolder folder;
  folder.write("r.yaml", kBase);
  const auto says = [&](const std::string& words, const std::string& message, const std::string& help) {
    const auto run = test::run_program(folder, words);
    INFO(words << ": " << run.err);
    CHECK(run.code == 2);
    CHECK(run.err == "command line: error[usage]: " + message + "\n    help: " + help + "\n");
  };
  says("plan r.yaml --world-size 0", "--world-size: '0' is not a whole number from 1 to 16777216",
       "see automodel plan --help");
  says("plan r.yaml --world-size four", "--world-size: 'four' is not a whole number from 1 to 16777216",
       "see automodel plan --help");
  says("generate x --top-p 2", "--top-p: '2' is not a number from 1e-09 to 1", "see automodel generate --help");
  says("plan r.yaml --actions computed", "--actions: 'computed' is not one of compute, lowered",
       "did you mean 'compute'?");
  says("checkpoint lss x", "ACTION: 'lss' is not one of ls, verify, export, import", "did you mean 'ls'?");
  says("checkpoint ls x --recipe r.yaml", "--recipe is for import",
       "for example 'automodel checkpoint import SOURCE DIR --recipe RECIPE'");
  says("checkpoint ls x y", "ls takes one folder", "for example 'automodel checkpoint ls DIR'");
  says("checkpoint ls x --gguf", "--gguf is for export",
       "for example 'automodel checkpoint export DIR MODEL.gguf --gguf --type q8_0'");
  says("checkpoint export x y --gguf --merge", "--gguf takes neither --dtype nor --merge",
       "for example 'automodel checkpoint export DIR MODEL.gguf --gguf --type q8_0'");
  says("checkpoint import x", "import needs a second folder", "for example 'automodel checkpoint import SOURCE DIR'");
  says("plan r.yaml --world-size", "--world-size needs a value", "see automodel plan --help");
  says("plan r.yaml --timelin a.svg", "'--timelin' is neither an option nor a key of the recipe",
       "did you mean '--timeline'?");
  says("generate x --tempreature 1", "generate has no option --tempreature", "did you mean '--temperature'?");
  says("generate x --unlike=3", "generate has no option --unlike", "see automodel generate --help");
  says("generate x ---", "generate has no option ---", "see automodel generate --help");
  says("generate x y", "generate takes no further argument: 'y'", "see automodel generate --help");
  // As with overrides, the last one wins.
  const auto twice = test::run_program(folder, "plan r.yaml --world-size 0x --world-size 1 --world-size 2");
  CHECK(twice.code == 2);
  CHECK(test::run_program(folder, "plan r.yaml --world-size 3 --world-size 1").code == 0);
}

TEST_CASE("an output folder or worker that the machine lacks ends with exit code 4", "[cli]") {
  const test::TemporaryFolder folder;
  folder.write("r.yaml", kBase + "distributed: {pp_size: 2, pipeline: {}}\n");
  for (const auto* option : {"--timeline", "--trace"}) {
    const auto outcome = test::run_program(folder, std::string("plan r.yaml ") + option + " no/such/folder/file");
    CHECK(outcome.code == 4);
    CHECK(outcome.err.find("error[cannot-write]") != std::string::npos);
  }
  folder.write("one.yaml", kBase);
  setenv("AUTOMODEL_WORKER", "/no/such/worker", 1);
  for (const auto* words : {"train one.yaml", "train one.yaml step_scheduler.local_batch_size=4 --nproc-per-node 2"}) {
    const auto outcome = test::run_program(folder, words);
    CHECK(outcome.code == 4);
    CHECK(outcome.err.find("error[cannot-start]") != std::string::npos);
    CHECK(outcome.err.find("AUTOMODEL_WORKER") != std::string::npos);
  }
  unsetenv("AUTOMODEL_WORKER");
}

TEST_CASE("a rank killed by a signal is reported, and the exit code is passed on", "[cli]") {
  const test::TemporaryFolder folder;
  folder.write("one.yaml", kBase);
  folder.write("mpirun", "#!/bin/sh\nexit 137\n");
  std::filesystem::permissions(folder.path() / "mpirun", std::filesystem::perms::owner_all);
  const std::string path = std::getenv("PATH");
  setenv("PATH", (folder.path().string() + ":" + path).c_str(), 1);
  setenv("AUTOMODEL_WORKER", (folder.path() / "mpirun").c_str(), 1);
  const auto outcome = test::run_program(folder, "train one.yaml step_scheduler.local_batch_size=4 --nproc-per-node 2");
  setenv("PATH", path.c_str(), 1);
  unsetenv("AUTOMODEL_WORKER");
  CHECK(outcome.code == 137);
  CHECK(outcome.err.find("error[rank-killed]: a rank was killed by signal 9 (Killed)") != std::string::npos);
}

TEST_CASE("OpenMP threads of ranks spin only briefly unless the environment says otherwise", "[cli]") {
  const test::TemporaryFolder folder;
  folder.write("one.yaml", kBase);
  folder.write("worker", "#!/bin/sh\necho \"spins ${GOMP_SPINCOUNT-unset}\"\n");
  std::filesystem::permissions(folder.path() / "worker", std::filesystem::perms::owner_all);
  setenv("AUTOMODEL_WORKER", (folder.path() / "worker").c_str(), 1);
  const auto spins = [&] { return test::run_program(folder, "train one.yaml").out; };
  unsetenv("GOMP_SPINCOUNT");
  unsetenv("OMP_WAIT_POLICY");
  CHECK(spins() == "spins 1000\n");
  setenv("GOMP_SPINCOUNT", "7", 1);
  CHECK(spins() == "spins 7\n");
  unsetenv("GOMP_SPINCOUNT");
  setenv("OMP_WAIT_POLICY", "active", 1);
  CHECK(spins() == "spins unset\n");
  unsetenv("OMP_WAIT_POLICY");
  unsetenv("AUTOMODEL_WORKER");
}

TEST_CASE("plan --require-fit ends with exit code 3 if the plan does not fit or memory is unknown", "[cli]") {
  const test::TemporaryFolder folder;
  folder.write("r.yaml", kBase);
  const auto large = test::run_program(folder, "plan r.yaml --require-fit --memory 10MiB");
  CHECK(large.code == 3);
  CHECK(large.err.find("error[does-not-fit]") != std::string::npos);
  const auto unknown = test::run_program(folder, "plan r.yaml --require-fit --device cuda");
  CHECK(unknown.code == 3);
  CHECK(unknown.err.find("error[memory-unknown]") != std::string::npos);
  CHECK(test::run_program(folder, "plan r.yaml --require-fit --memory 80GiB").code == 0);
}

TEST_CASE("settings that work but are probably unintended give a warning with their line", "[cli]") {
  struct Row {
    std::string recipe;
    std::string id;
    int line;
  };
  std::string with_experts = kBase;
  with_experts.replace(with_experts.find("llama"), 5, "mixtral");
  with_experts.insert(with_experts.find("}}"), ", num_local_experts: 4, num_experts_per_tok: 2");
  const std::vector<Row> rows = {
      {kBase + "distributed: {pipeline: {pp_microbatch_size: 4}}\n", "no-effect", 4},
      {kBase + "distributed: {moe: {}}\n", "no-effect", 4},
      {kModel + "dataset: {_target_: jsonl, paths: [a.jsonl]}\n" + kSteps, "length-unknown", 2},
      {with_experts + "distributed: {tp_size: 2, ep_size: 2}\n", "expert-tensor-parallel", 1},
      {kBase + "distributed: {pp_size: 4, pipeline: {pp_schedule: 1f1b, pp_microbatch_size: 4}}\n", "few-microbatches",
       4},
  };
  for (const auto& row : rows) {
    INFO(row.recipe);
    const test::TemporaryFolder folder;
    folder.write("r.yaml", row.recipe);
    const auto outcome = test::run_program(folder, "plan r.yaml --json --no-files");
    INFO(outcome.out << outcome.err);
    REQUIRE(outcome.code == 0);
    const auto warnings = nlohmann::json::parse(outcome.out)["warnings"];
    CHECK(std::any_of(warnings.begin(), warnings.end(),
                      [&](const auto& w) { return w["id"] == row.id && w["line"] == row.line; }));
    CHECK(test::run_program(folder, "plan r.yaml").err.find("warning[" + row.id + "]") != std::string::npos);
  }
}

TEST_CASE("a valid recipe is planned, in text and as one JSON document", "[cli]") {
  const test::TemporaryFolder folder;
  folder.write("r.yaml", kBase +
                             "distributed: {strategy: ddp, dp_size: 2, pp_size: 2, pipeline: {pp_schedule: "
                             "interleaved_1f1b, pp_microbatch_size: 1}}\nci: {x: 1}\n");
  const auto json = test::run_program(folder, "plan r.yaml --json --actions lowered step_scheduler.local_batch_size=4");
  INFO(json.out << json.err);
  REQUIRE(json.code == 0);
  const auto plan = nlohmann::json::parse(json.out);
  CHECK(plan["ok"] == true);
  CHECK(plan["mesh"]["world_size"] == 4);
  CHECK(plan["mesh"]["groups"]["pp"] == nlohmann::json::parse("[[0,2],[1,3]]"));
  CHECK(plan["moe_mesh"].is_null());
  CHECK(plan["pipeline"]["schedule"] == "Interleaved1F1B");
  CHECK(plan["pipeline"]["num_stages"] == 4);
  CHECK(plan["pipeline"]["stages"][0]["fqns"][0] == "model.embed_tokens");
  CHECK(plan["pipeline"]["stages"][0]["inputs"][0]["dtype"] == "int64");
  CHECK(plan["pipeline"]["stages"][3]["outputs"][0]["shape"] == nlohmann::json::parse("[1,64,260]"));
  CHECK(plan["pipeline"]["actions"]["ranks"].size() == 2);
  CHECK(plan["pipeline"]["deadlock_free"] == true);
  CHECK(plan["ignored"][0]["key"] == "ci");
  const auto text = test::run_program(
      folder, "plan r.yaml --dry-run --timeline t.svg --trace t.json step_scheduler.local_batch_size=4");
  CHECK(text.code == 0);
  CHECK(std::count(text.out.begin(), text.out.end(), '\n') < 40);
  CHECK(folder.read("t.svg").starts_with("<svg"));
  CHECK(nlohmann::json::parse(folder.read("t.json")).contains("traceEvents"));
  const auto config = test::run_program(folder, "config r.yaml optimizer.lr=0.5");
  CHECK(config.out.find("optimizer.lr: 0.5  # command line (optimizer.lr=0.5)\n") != std::string::npos);
  CHECK(config.out.find("distributed.pp_size: 2  # r.yaml:4\n") != std::string::npos);
  // On a CPU a model computes in its own dtype unless the recipe has a policy.
  const std::string sharded = "config r.yaml --distributed.strategy fsdp2";
  CHECK(test::run_program(folder, sharded + " --device cpu")
            .out.find("\ndistributed.mp_policy: null  # default on a cpu: the model's own dtype\n") !=
        std::string::npos);
  const auto either = test::run_program(folder, sharded + " --device auto").out;
  CHECK(either.find("mp_policy.param_dtype: \"bfloat16\"  # default on cuda; none on a cpu\n") != std::string::npos);
  CHECK(either.find("mp_policy.cast_forward_inputs: false  # default on cuda; none on a cpu\n") != std::string::npos);
  const auto policy = test::run_program(folder, sharded + " --distributed.mp_policy.reduce_dtype float32");
  CHECK(policy.out.find("distributed.mp_policy.param_dtype: null  # default\n") != std::string::npos);
  CHECK(nlohmann::json::parse(test::run_program(folder, "schema").out)["properties"].contains("model"));
  for (const auto* shell : {"bash", "zsh", "fish"})
    CHECK(test::run_program(folder, std::string("completion ") + shell).out.find("distributed.pp_size") !=
          std::string::npos);
}

}  // namespace automodel
