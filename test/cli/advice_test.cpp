// What the front end says before anything runs: files that a run would miss, and advice that fits the command.
#include <cstdlib>
#include <filesystem>
#include <optional>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/problem_id.h"
#include "cli/program.h"
#include "golden_folder.h"

namespace automodel {
namespace {

namespace fs = std::filesystem;

const std::string kGolden = automodel::golden_folder();
const std::string kModel =
    "device: cpu\n"
    "model: {config: {model_type: llama, hidden_size: 16, intermediate_size: 24, num_hidden_layers: 2, "
    "num_attention_heads: 2, num_key_value_heads: 2, vocab_size: 300, max_position_embeddings: 16}}\n"
    "step_scheduler: {global_batch_size: 4, local_batch_size: 4, max_steps: 3}\n";
const std::string kMock = "dataset: {_target_: mock, vocab_size: 67, seq_length: 16}\n";

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

test::Outcome run(const test::TemporaryFolder& folder, const std::string& recipe, const std::string& words) {
  folder.write("r.yaml", recipe);
  return test::run_program(folder, words);
}

}  // namespace

TEST_CASE("plan reports missing and unusable files before train needs them", "[cli]") {
  const test::TemporaryFolder folder;
  folder.write("rows.jsonl", "{\"prompt\": \"a\", \"response\": \"b\"}\n");
  folder.write("bad.jsonl", "{\"prompt\": \"a\"}\n");
  folder.write("bad.jinja", "{% for m in messages %}");
  fs::create_directories(folder.path() / "model");
  fs::copy(kGolden + "/hf/e2e_llama_sft/config.json", folder.path() / "model/config.json");
  folder.write("file", "in the way");
  const std::string jsonl = "dataset: {_target_: jsonl, path: rows.jsonl, tokenizer: bytes}\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"--dataset.path none.jsonl", "error[missing-file]: there is no"},
      {"--dataset.path bad.jsonl", "error[bad-row]"},
      {"--dataset.tokenizer nowhere", "dataset.tokenizer"},
      {"--dataset.tokenizer " + kGolden + "/tokenizer/qwen2", "error[token-out-of-range]"},
      {"--dataset.chat_template none.jinja", "error[missing-file]"},
      {"--validation_dataset '{_target_: tokens, path: none.jsonl}'", "error[missing-file]"},
      {"--checkpoint.checkpoint_dir file/run", "error[cannot-write]"},
      {"--checkpoint.restore_from LATEST", "error[checkpoint-missing]"},
      {"--model '{pretrained_model_name_or_path: model}'", "error[missing-weights]"}};
  for (const auto& [words, text] : cases) {
    const auto outcome = run(folder, kModel + jsonl, "plan r.yaml " + words);
    INFO(words << "\n" << outcome.err);
    const auto id = text.starts_with("error[") ? ProblemId::named(text.substr(6, text.find(']') - 6)) : std::nullopt;
    CHECK(outcome.code == static_cast<int>(id ? id->exit() : ExitCode::kBadInput));
    CHECK((holds(outcome.err, text) || holds(outcome.err, text.substr(0, text.find(' ')))));
    CHECK(holds(outcome.out, "plan of r.yaml"));  // the plan is shown anyway
    CHECK(run(folder, kModel + jsonl, "plan r.yaml --no-files " + words).code == 0);
    const auto json = run(folder, kModel + jsonl, "plan r.yaml --json " + words);
    CHECK(json.code == outcome.code);
    CHECK(json.out.starts_with("{\"errors\""));
  }
  CHECK(run(folder, kModel + jsonl, "plan r.yaml").code == 0);
  CHECK_FALSE(fs::exists(folder.path() / "checkpoints"));  // checked, not created
}

TEST_CASE("plan checks all but the rows of data that is too large to read", "[cli]") {
  const test::TemporaryFolder folder;
  std::string rows =
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": ";
  rows += "\"" + std::string(5 << 20, 'b') + "\"}]}\n";
  folder.write("rows.jsonl", rows);
  const std::string tokenizers = kGolden + "/tokenizer/", chat = "_target_: chat, path_or_dataset_id: rows.jsonl, ";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"_target_: jsonl, path: rows.jsonl", "jsonl needs a tokenizer"},
      {"_target_: jsonl, path: [rows.jsonl, none.jsonl], tokenizer: bytes", "for 'none.jsonl'"},
      {"_target_: jsonl, path: rows.jsonl, tokenizer: bytes, chat_template: chatml", "needs a tokenizer with special"},
      {"_target_: text, paths: rows.jsonl, seq_length: 16, tokenizer: nowhere", "there is no tokenizer 'nowhere'"},
      {chat + "seq_length: 8", "the model has no folder to take the tokenizer from"},
      {chat + "tokenizer: bytes", "there is no tokenizer 'bytes' here"},
      {chat + "tokenizer: " + tokenizers + "gpt2", "conversations need a chat template"},
      {chat + "tokenizer: " + tokenizers + "qwen2, chat_template: none.jinja",
       "there is no chat template 'none.jinja'"},
      {"_target_: column_mapped, path_or_dataset_id: rows.jsonl, column_mapping: {question: a}, tokenizer: " +
           tokenizers + "gpt2",
       "column_mapping has no answer"},
      {"_target_: mixture, datasets: [{weight: 1, dataset: {" + chat + "tokenizer: nowhere}}]",
       "there is no tokenizer 'nowhere' here"}};
  for (const auto& [section, text] : cases) {
    const auto outcome =
        run(folder, kModel, "plan r.yaml --model.config.vocab_size 2000 --dataset '{" + section + "}'");
    INFO(section << "\n" << outcome.err);
    CHECK(outcome.code == 2);
    CHECK(holds(outcome.err, text));
  }
  const std::string good = "plan r.yaml --dataset '{" + chat + "tokenizer: " + tokenizers + "qwen2}'";
  CHECK(run(folder, kModel, good + " --model.config.vocab_size 2000").code == 0);  // the only row is not read
  CHECK(holds(run(folder, kModel, good).err, "the tokenizer has 1305 ids, the model's vocabulary 300"));
  CHECK(run(folder, kModel, "plan r.yaml --dataset '{_target_: tokens, path: rows.jsonl}'").code == 0);
  CHECK(
      holds(run(folder, kModel, "plan r.yaml --dataset '{_target_: tokens, path: /dev/null}'").err, "cannot be read"));
  if (geteuid() == 0) return;  // who may read everything
  fs::create_directories(folder.path() / "texts/closed");
  folder.write("texts/a.txt", "some text to train on");
  fs::permissions(folder.path() / "texts/closed", fs::perms::none);
  CHECK(run(folder, kModel, "plan r.yaml --dataset '{_target_: text, paths: texts, seq_length: 4}'").code == 0);
  fs::permissions(folder.path() / "texts/closed", fs::perms::owner_all);
}

TEST_CASE("advice uses the options and keys of the command that was run", "[cli]") {
  const test::TemporaryFolder folder;
  const auto said = [&](const std::string& words, const std::string& more = "") {
    const auto outcome = run(folder, kModel + kMock + more, words);
    INFO(words << "\n" << outcome.err);
    CHECK(outcome.code == 2);
    return outcome.err;
  };
  CHECK(holds(said("plan r.yaml --wrld-size 3"), "did you mean '--world-size'?"));
  CHECK(holds(said("train r.yaml --plan"), "unknown key 'plan'"));
  CHECK(holds(said("train r.yaml --gpus 2"), "help: write --nproc-per-node N\n"));
  CHECK(holds(said("train r.yaml --epochs=2"), "help: write --step_scheduler.num_epochs VALUE\n"));
  CHECK(holds(said("plan r.yaml --seq_length 8"), "help: write --dataset.seq_length VALUE\n"));
  CHECK(holds(said("plan r.yaml --foo 1"), "help: known: "));
  CHECK(holds(said("completion tcsh"), "help: known: bash, zsh, fish\n"));
  CHECK(holds(said("plan r.yaml --memory 80"), "'80' is not the memory of a device\n    help: a number with a unit"));
  CHECK(holds(said("plan r.yaml --step_scheduler.max_steps 0"),
              "must be at least 1, got '0'\n    help: step_scheduler.max_steps: Optimizer steps"));
  CHECK(holds(said("train r.yaml --distributed.dp_size 4 --step_scheduler.local_batch_size 1"),
              "start 4 ranks: '--nproc-per-node 4' on this machine"));
  CHECK(holds(said("slurm r.yaml --nodes 3 --ranks-per-node 1 --distributed.pp_size 2 --distributed.pipeline "
                   "'{pp_schedule: 1F1B}'"),
              "help: --nodes 2 fit the recipe with 1 rank per node"));
  CHECK(holds(said("plan r.yaml --distributed.pp_microbatch_size 2"), "it belongs under distributed.pipeline"));
  // A name that a neighbour has below it, and a value where keys belong.
  CHECK(holds(said("plan r.yaml --hardware.gpu h100"), "under hardware.failures; known here: profile, memory, "));
  CHECK(holds(said("plan r.yaml --hardware h100"), "as {key: value}; known: profile, memory, "));
  CHECK(holds(said("plan r.yaml --optimizer.learning_rate 2"), "did you mean 'lr'?"));
  CHECK(holds(said("plan r.yaml --model.config.num_kv_heads 2"), "did you mean 'num_key_value_heads'?"));
  const auto optimizer = said("plan r.yaml --optimizer._target_ torch.optim.Adagrad");
  CHECK(holds(optimizer, "'torch.optim.Adagrad' is not a valid optimizer._target_"));
  CHECK(holds(optimizer, "help: there are adamw, adam, sgd, muon, dion_muon"));
  CHECK(holds(said("plan r.yaml --optimizer._target_ lion"), "help: there are adamw, adam, sgd, muon, dion_muon"));
  CHECK(holds(said("plan r.yaml --optimizer._target_ adamv"), "did you mean 'adamw'?"));
  // Every optimizer named in NeMo AutoModel's recipes is supported, or refused with a list of those that are.
  for (const char* name : {"torch.optim.Adam", "torch.optim.AdamW", "transformer_engine.pytorch.optimizers.FusedAdam",
                           "transformer_engine.pytorch.optimizers.fused_adam.FusedAdam", "flashoptim.FlashAdamW"}) {
    INFO(name);
    CHECK(run(folder, kModel + kMock, std::string("plan r.yaml --optimizer._target_ ") + name).code == 0);
  }
  for (const char* name : {"optim.Muon", "torch.optim.Muonn"})
    CHECK(holds(said(std::string("plan r.yaml --optimizer '{_target_: ") + name + ", mu: 0.95}'"),
                "did you mean 'torch.optim.Muon'? there are adamw, adam, sgd, muon, dion_muon"));
  CHECK(holds(said("plan r.yaml --optimizer '{_target_: muon, ns_steps: 100}'"), "below 100"));
  CHECK(holds(said("plan r.yaml --distributed.strategy fsdp3"), "'fsdp3' is not a valid distributed.strategy"));
  CHECK(holds(said("plan r.yaml --optimizer '{_target_: sgd, nesterov: true}'"), "nesterov needs momentum above 0"));
  const auto quantized = run(folder, kModel + kMock, "train r.yaml --qat '{enabled: true}'");
  CHECK(quantized.code == 3);
  CHECK(holds(quantized.err, "qat is not supported: "));
  CHECK(holds(said("plan r.yaml --quantization '{load_in_4bit: true}'"), "there are no adapters to train instead"));
}

TEST_CASE("nothing is measured that could not be kept", "[cli]") {
  const test::TemporaryFolder folder;
  const char* set = std::getenv("AUTOMODEL_CALIBRATION");
  const auto before = set == nullptr ? std::nullopt : std::optional<std::string>(set);
  setenv("AUTOMODEL_CALIBRATION", "", 1);
  for (const auto* words : {"plan r.yaml --calibrate", "plan --calibrate"}) {
    const auto outcome = run(folder, kModel + kMock, words);
    CHECK(outcome.code == 4);
    CHECK(holds(outcome.err, "error[cannot-write]: AUTOMODEL_CALIBRATION is empty"));
  }
  before ? setenv("AUTOMODEL_CALIBRATION", before->c_str(), 1) : unsetenv("AUTOMODEL_CALIBRATION");
}

TEST_CASE("mesh sizes that an error suggests suit the model and the batch", "[cli]") {
  const test::TemporaryFolder folder;
  const std::string model =
      "device: cpu\n"
      "model: {config: {model_type: llama, hidden_size: 128, intermediate_size: 64, num_hidden_layers: 8, "
      "num_attention_heads: 64, num_key_value_heads: 8, vocab_size: 300, max_position_embeddings: 16}}\n"
      "step_scheduler: {global_batch_size: 16, local_batch_size: 1, max_steps: 3}\n"
      "distributed: {tp_size: 8, pp_size: 4, pipeline: {pp_schedule: 1F1B}}\n";
  const auto outcome = run(folder, model + kMock, "plan r.yaml --world-size 60");
  INFO(outcome.err);
  CHECK(outcome.code == 2);
  // 64 heads and 8 key-value heads: neither 5 nor 15 ranks divide them, and one would make 15 data-parallel ranks.
  CHECK(holds(outcome.err, "must divide the number of ranks; use 32 ranks or 64 ranks\n"));
  CHECK(run(folder, model + kMock, "plan r.yaml --world-size 32").code == 0);
  CHECK(run(folder, model + kMock, "plan r.yaml --world-size 64").code == 0);
}

TEST_CASE("a name that is nearly right is found, and what a folder or a name needs is said", "[cli]") {
  const test::TemporaryFolder folder;
  folder.write("chat.jsonl", "{\"messages\": []}\n");
  folder.write("adapters/adapter_config.json", "{}");
  const auto said = [&](const std::string& words) { return run(folder, kModel + kMock, words).err; };
  const std::string rows = "data r.yaml --dataset '{_target_: squad, tokenizer: " + kGolden + "/tokenizer/qwen2, ";
  CHECK(holds(said(rows + "dataset_name: chat.jsnl}'"), "did you mean 'chat.jsonl'?"));
  CHECK(holds(said(rows + "dataset_name: acme/unknown}'"), "'hf download --repo-type dataset acme/unknown' does that"));
  const std::string model = " r.yaml --model '{pretrained_model_name_or_path: ";
  CHECK(holds(said("plan" + model + "adapters}'"), "it holds adapters, not a model"));
  CHECK(holds(said("plan" + model + "adapters}'"), "'automodel checkpoint export DIR NEW_FOLDER --merge'"));
  CHECK(holds(said("train" + model + "acme/unknown}'"), "nothing is downloaded: 'hf download acme/unknown' does that"));
  CHECK(holds(said("train" + model + "./unknown}'"), "nothing is downloaded\n"));
  CHECK(holds(said("plan q.yaml"), "give the path of a YAML file; did you mean 'r.yaml'?\n"));
  CHECK(holds(said("plan adapters"), "give the path of a YAML file\n"));
  folder.write("a.csv", "q;a\nHi;Yo\n");
  CHECK(holds(said("data r.yaml --dataset '{_target_: column_mapped, path_or_dataset_id: a.csv, tokenizer: " + kGolden +
                   "/tokenizer/qwen2, column_mapping: {question: q, answer: a}}'"),
              "no row has the column for the answer of column_mapping; the columns are q;a\n"));
  const std::string chat =
      "data r.yaml --dataset '{_target_: chat, tokenizer: " + kGolden + "/tokenizer/qwen2, path_or_dataset_id: ";
  CHECK(holds(said(chat + "chats.jsonl}'"), "there is no file 'chats.jsonl'"));
  CHECK(holds(said(chat + "chats.jsonl}'"), "in the working directory; did you mean 'chat.jsonl'?\n"));
  CHECK(holds(said(chat + "zzzzzzzzz.csv}'"), "in the working directory\n"));
}

TEST_CASE("tokens that cannot be kept are a problem of the folder that was named", "[cli]") {
  const test::TemporaryFolder folder;
  folder.write("rows.jsonl", "{\"prompt\": \"a\", \"response\": \"b\"}\n");
  const std::string jsonl = "dataset: {_target_: jsonl, path: rows.jsonl, tokenizer: bytes}\n";
  const char* set = std::getenv("TMPDIR");
  const auto before = set == nullptr ? std::nullopt : std::optional<std::string>(set);
  setenv("TMPDIR", (folder.path() / "gone").c_str(), 1);
  const auto outcome = run(folder, kModel + jsonl, "plan r.yaml");
  INFO(outcome.err);
  CHECK(outcome.code == 4);
  CHECK(holds(outcome.err, "r.yaml:4:1: error[cannot-write]: tokens cannot be kept in '"));
  CHECK(holds(outcome.err, "/gone': No such file or directory\n"));
  CHECK(holds(outcome.err, "    help: set TMPDIR to a folder"));
  CHECK(holds(outcome.out, "plan of r.yaml"));
  const auto cached = run(folder, kModel + jsonl, "data r.yaml --dataset.cache_dir rows.jsonl/cache");
  CHECK(holds(cached.err, "'rows.jsonl/cache': Not a directory\n    help: set dataset.cache_dir to a folder"));
  before ? setenv("TMPDIR", before->c_str(), 1) : unsetenv("TMPDIR");
}

TEST_CASE("an error about a line that is indented too far names that line", "[cli]") {
  const test::TemporaryFolder folder;
  const auto outcome =
      run(folder, kModel + "optimizer:\n  lr: 0.1\n    eps: 1.0e-8\n  weight_decay: 0\n" + kMock, "plan r.yaml");
  INFO(outcome.err);
  CHECK(outcome.code == 2);
  CHECK(holds(outcome.err, "r.yaml:6:5: error[yaml-syntax]: this line is indented by 4 and belongs to no key"));
  CHECK(holds(outcome.err, "'lr' above it has a value already; indent this line by 2"));
  const auto shallow = run(folder, kModel + "optimizer:\n    lr: 0.1\n  eps: 1.0e-8\n" + kMock, "plan r.yaml");
  CHECK(holds(shallow.err, "r.yaml:6:3: error[yaml-syntax]"));
  const auto tab = run(folder, kModel + "optimizer:\n\tlr: 0.1\n" + kMock, "plan r.yaml");
  CHECK(holds(tab.err, "r.yaml:5:1: error[yaml-syntax]: this line is indented with a tab"));
  const auto alias = run(folder, "model: &m\n  config: *m\n", "plan r.yaml");
  CHECK(holds(alias.err, "r.yaml:2:11: error[yaml-syntax]: this alias is inside its own anchor"));
  CHECK(holds(alias.err, "help: name an anchor that ends before it\n"));
  const auto large = run(folder, std::string(5 << 20, '#') + "\n", "plan r.yaml");
  CHECK(holds(large.err, "it has more than 4194304 bytes\n    help: a recipe is a page of text"));
  const auto deep = run(folder, "model: " + std::string(100000, '[') + "\n", "plan r.yaml");
  CHECK(holds(deep.err, "lists and mappings are nested more than "));
}

TEST_CASE("a plan labels the ideal and the estimated bubble and says what is split", "[cli]") {
  const test::TemporaryFolder folder;
  const auto outcome = run(
      folder, kModel + kMock + "distributed: {pp_size: 2, tp_size: 2, pipeline: {pp_schedule: 1F1B}}\n", "plan r.yaml");
  INFO(outcome.out << outcome.err);
  CHECK(holds(outcome.out, ", ideal bubble "));
  CHECK(holds(outcome.out, "(estimated bubble "));
  CHECK(holds(outcome.out, "tensor    weights split over 2 ranks"));
  CHECK_FALSE(holds(outcome.out, "between stages"));
  const std::string piped = kModel + kMock + "distributed: {pp_size: 2, pipeline: {pp_schedule: 1F1B}}\n";
  const std::string words = "plan r.yaml --model_parallel.pipeline_dtype bfloat16";
  CHECK(holds(run(folder, piped, words).out, ", gradients float32, between stages bfloat16"));
  // Logits are computed for the loss, in float32.
  const auto json = nlohmann::json::parse(run(folder, piped, words + " --json").out);
  CHECK(json["pipeline"]["stages"][0]["outputs"][0]["dtype"] == "bfloat16");
  CHECK(json["pipeline"]["stages"][1]["outputs"][0]["dtype"] == "float32");
}

TEST_CASE("slurm inserts a preamble, and mounts folders named in the recipe into the container", "[cli]") {
  const test::TemporaryFolder folder, elsewhere;
  folder.write("pre.sh", "module load openmpi\nexport A=1\n");
  elsewhere.write("data/rows.jsonl", "{\"prompt\": \"a\", \"response\": \"b\"}\n");
  const std::string data =
      "dataset: {_target_: jsonl, path: " + (elsewhere.path() / "data/rows.jsonl").string() + ", tokenizer: bytes}\n";
  const std::string words = "slurm r.yaml --nodes 1 --ranks-per-node 1 ";
  const auto plain = run(folder, kModel + data, words + "--preamble pre.sh");
  INFO(plain.out << plain.err);
  CHECK(plain.code == 0);
  CHECK(holds(plain.out, "\nmodule load openmpi\nexport A=1\n"));
  CHECK(plain.out.find("module load") < plain.out.find("srun --kill"));
  const auto contained =
      run(folder, kModel + data,
          words + "--container image.sqsh --program /opt/automodel/bin/automodel --mount /scratch:/s");
  INFO(contained.out << contained.err);
  CHECK(holds(contained.out, "/scratch:/s"));
  const auto mounted = (elsewhere.path() / "data").string();
  CHECK(holds(contained.out, mounted + ":" + mounted));
  CHECK(holds(contained.out, "/opt/automodel/bin/automodel train"));
  CHECK(run(folder, kModel + data, words + "--mount /scratch").code == 2);
  CHECK(run(folder, kModel + data, words + "--preamble none.sh").code == 2);
}

TEST_CASE("plan says which keys do nothing beside which others, and refuses what cannot be", "[cli]") {
  const test::TemporaryFolder folder;
  struct Row {
    std::string keys, message;
    int code = 0;  ///< 0: a warning
  };
  const std::string offloading = "--model_parallel.cpu_offloading true ";
  const std::string stages = "--distributed.pp_size 2 --world-size 2 ";
  for (const auto& row : std::vector<Row>{
           {"--model_parallel.cpu_offloading_num_layers 1", "has no effect without cpu_offloading"},
           {offloading + "--model_parallel.cpu_offloading_num_layers 0", "cpu_offloading_num_layers is 0"},
           {offloading +
                "--model_parallel.cpu_offloading_num_layers 1 --model_parallel.cpu_offloading_activations false",
            "cpu_offloading_activations is false"},
           {offloading + "--model_parallel.cpu_offloading_num_layers 2", "0 to 1: the last layer is the first", 2},
           {"--fp8.recipe_name rowwise --fp8.enabled false", "fp8.recipe_name has no effect without fp8.enabled"},
           {"--quantization.bnb_4bit_quant_type nf4", "bnb_4bit_quant_type has no effect without load_in_4bit"},
           {"--model_parallel.num_microbatches_with_partial_activation_checkpoints=-1",
            "microbatches cannot keep their activations", 2},
           {"--model_parallel.num_microbatches_with_partial_activation_checkpoints 1",
            "every microbatch keeps its activations: activation checkpointing is off"},
           {"--distributed.activation_checkpointing full --distributed.activation_checkpointing_scope vision",
            "no activations are recomputed: the scope excludes the language tower"},
           {"--distributed.activation_checkpointing full --model_parallel.recompute_modules [mlp]",
            "activation_checkpointing already decides what is recomputed"},
           {stages + "--distributed.pipeline '{pp_schedule: 1F1B}' --loss_fn._target_ chunked_ce "
                     "--model_parallel.gradient_accumulation_fusion true "
                     "--model_parallel.defer_embedding_wgrad_compute true",
            "the head's weight gradient is not deferred"},
           {"--model._target_ nemo_automodel.NeMoAutoModelForSequenceClassification.from_config --model.num_labels 3 "
            "--loss_fn._target_ "
            "chunked_ce "
            "--dataset '{_target_: mock, seq_length: 16}'",
            "the scores of a classifier are few"},
           {"--lr_scheduler.lr_decay_style constant --lr_scheduler.lr_decay_steps 5", "lr_decay_steps has no effect"},
           {"--lr_scheduler.min_lr=-1", "min_lr", 2},
           {"--model_parallel.cp_comm_type a2a", "cp_comm_type has no effect with cp_size 1"},
           {"--distributed.cp_size 4 --world-size 4 --model_parallel.cp_comm_type a2a+p2p "
            "--model_parallel.hierarchical_context_parallel_sizes [4]",
            "is not a list of two sizes", 2},
           {"--distributed.tp_plan '{model.layers.*.mlp.up_proj: colwise}'", "tp_plan has no effect with tp_size 1"},
           {"--model_parallel.tp_comm_overlap true", "tp_comm_overlap has no effect with tp_size 1"},
           {stages + "--distributed.pipeline '{pp_schedule: searched, search: {memory_limit: much}}'",
            "'much' is not a memory size", 2},
           {stages + "--distributed.pipeline '{pp_schedule: 1F1B}' "
                     "--model_parallel.microbatch_group_size_per_vp_stage 2",
            "microbatch_group_size_per_vp_stage has no effect under 1F1B"},
           {"--model_parallel.overlap_p2p_comm true --model_parallel.batch_p2p_comm true " + stages +
                "--distributed.pipeline '{pp_schedule: 1F1B}'",
            "overlap_p2p_comm and batch_p2p_comm cannot both be true", 2},
           {"--model._target_ NeMoAutoModelForSequenceClassification",
            "did you mean 'nemo_automodel.NeMoAutoModelForSequenceClassification.from_pretrained'?", 2},
           {"--dist_env.backend nccl", "nccl is for GPUs; on a CPU the ranks communicate over MPI"},
           {"--dataset '{_target_: chat, seq_length: 4, path_or_dataset_id: rows}' --no-files",
            "seq_length has no effect: rows are neither truncated nor padded to it"},
           {"--dataset '{_target_: agent_chat, path: rows, truncate_history: true}' --no-files",
            "truncate_history has no effect without seq_length"},
       }) {
    const auto outcome = run(folder, kModel + kMock, "plan r.yaml " + row.keys);
    INFO(row.keys << "\n" << outcome.err);
    CHECK(outcome.code == row.code);
    CHECK(holds(outcome.err, row.message));
    CHECK(holds(outcome.err, "    help: "));
  }
  const std::string chat = "plan r.yaml --no-files --dataset '{_target_: chat, path_or_dataset_id: rows, seq_length: 4";
  CHECK_FALSE(holds(run(folder, kModel, chat + "}'").out, "4 tokens each"));
  CHECK(holds(run(folder, kModel, chat + ", truncation: true}'").out, "4 tokens each"));
}

}  // namespace automodel
