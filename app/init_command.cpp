// `automodel init`: writes a recipe to begin with.
#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <string>

#include <fmt/format.h>
#include <unistd.h>

#include "base/shell_word.h"
#include "base/spelling.h"
#include "commands.h"
#include "config/value.h"
#include "report.h"

namespace automodel::app {
namespace {

namespace fs = std::filesystem;

constexpr int kUsualLength = 512;
constexpr const char* kUsualModel = "Qwen/Qwen3-0.6B";

constexpr const char* kSmallModel = R"(model:
  # A small model of its own, with random weights. For a known one: pretrained_model_name_or_path: Qwen/Qwen3-0.6B
  config:
    model_type: llama
    hidden_size: 256
    intermediate_size: 688
    num_hidden_layers: 4
    num_attention_heads: 4
    num_key_value_heads: 4
    vocab_size: 260  # bytes and special tokens; with another tokenizer, at least its vocabulary
    max_position_embeddings: 1024
)";

/// A YAML scalar that is read back as `text`.
std::string quoted(const std::string& text) {
  return config::to_json(config::Value(text));
}

std::string model_section(const Options& options) {
  if (options.model.empty()) return kSmallModel;
  const char* key = options.kind == "pretrain" ? "config" : "pretrained_model_name_or_path";
  return fmt::format("model:\n  {}: {}  # a folder, or a name in the local Hugging Face cache\n", key,
                     quoted(options.model));
}

std::string data_section(const Options& options) {
  const auto& data = options.data;
  const bool text = options.kind == "pretrain";
  std::string out = "dataset:\n";
  if (data.empty())
    return out + fmt::format(
                     "  _target_: mock  # random tokens, to try a plan and a first step; your own data:\n{}"
                     "  seq_length: {}\n",
                     text ? "  # _target_: text\n  # paths: [corpus.txt]\n"
                          : "  # _target_: jsonl  # {\"messages\": [{\"role\", \"content\"}, ...]} or {\"prompt\", "
                            "\"response\"}\n  # path: chats.jsonl\n",
                     options.seq_length.value_or(kUsualLength));
  if (text)
    return out + fmt::format("  _target_: text\n  paths: [{}]\n  seq_length: {}\n", quoted(data),
                             options.seq_length.value_or(kUsualLength));
  return out + fmt::format(
                   "  _target_: jsonl  # {{\"messages\": [{{\"role\", \"content\"}}, ...]}} or {{\"prompt\", "
                   "\"response\"}}\n"
                   "  path: {}\n  seq_length: {}\n  truncation: true  # false: a longer row is an error\n"
                   "  # chat_template: chatml  # if the tokenizer has no template of its own\n",
                   quoted(data), options.seq_length.value_or(kUsualLength));
}

std::string recipe_text(const Options& options) {
  const auto& kind = options.kind;
  const bool adapters = kind == "lora", text = kind == "pretrain";
  const int ranks = options.nproc_per_node.value_or(1);
  std::string out = fmt::format(
      "# {}\n# Written by automodel init. Every key: docs/recipe-reference.md, or automodel schema --markdown.\n"
      "#   automodel plan {}    what would run, its memory and time\n"
      "#   automodel train {}{}\n"
      "seed: 42\ndevice: auto  # cuda, cpu, or what the machine has\n\n{}\n",
      text       ? "Trains a language model from random weights."
      : adapters ? "Trains low-rank adapters of a pretrained model on conversations."
                 : "Trains all weights of a pretrained model on conversations.",
      options.output, options.output, ranks > 1 ? fmt::format(" --nproc-per-node {}", ranks) : "",
      model_section(options));
  if (adapters) out += "peft:\n  target_modules: [\"*_proj\"]  # attention and MLP\n  dim: 16\n  alpha: 32\n\n";
  out += fmt::format(
      "distributed:\n  strategy: fsdp2\n  dp_size: {}  # data-parallel ranks; tp_size, pp_size, cp_size split the "
      "model\n\n",
      ranks);
  out += data_section(options) + "\n";
  out += fmt::format(
      "step_scheduler:\n  global_batch_size: {}  # sequences per step, over all ranks\n  local_batch_size: 1  # per "
      "rank at a time; more is faster, and takes more memory\n  max_steps: {}\n  ckpt_every_steps: 100\n\n",
      8 * ranks, text ? 1000 : 200);
  out += fmt::format(
      "optimizer:\n  _target_: adamw\n  lr: {}\n  weight_decay: {}\n\n"
      "lr_scheduler:\n  lr_decay_style: cosine\n  lr_warmup_steps: 20\n\n"
      "checkpoint:\n  checkpoint_dir: {}  # run again to go on from the newest checkpoint in it\n",
      text       ? "3.0e-4"
      : adapters ? "2.0e-4"
                 : "1.0e-5",
      adapters ? "0.0" : "0.1", quoted("runs/" + fs::path(options.output).stem().string()));
  return out;
}

/// The answer, or `otherwise` for an empty line.
std::string ask(const std::string& question, const std::string& otherwise) {
  err(fmt::format("{} [{}]: ", question, otherwise));
  std::string line;
  std::getline(std::cin, line);
  return line.empty() ? otherwise : line;
}

/// Asks for what the command line leaves open, if somebody is there to answer.
void complete(Options& options) {
  const bool asks = isatty(STDIN_FILENO) != 0 && isatty(STDERR_FILENO) != 0;
  if (options.kind.empty() && asks) options.kind = ask("pretrain, sft or lora?", "sft");
  constexpr std::array<std::string_view, 3> kKinds = {"pretrain", "sft", "lora"};
  if (std::ranges::find(kKinds, options.kind) == kKinds.end())
    throw wrong_words(options.kind.empty() ? "init needs to know what to train" : "unknown kind '" + options.kind + "'",
                      options.kind.empty() ? "'automodel init pretrain', sft or lora"
                                           : suggestion(options.kind, {kKinds.begin(), kKinds.end()}));
  const bool text = options.kind == "pretrain";
  if (options.model.empty() && asks)
    options.model = ask("model: a folder or a name on the Hugging Face hub", text ? "a small one" : kUsualModel);
  if (options.model == "a small one") options.model.clear();
  if (options.model.empty() && !text) options.model = kUsualModel;
  if (options.data.empty() && asks) options.data = ask(text ? "text file" : "JSON lines of conversations", "none yet");
  if (options.data == "none yet") options.data.clear();
  if (options.output.empty()) options.output = options.kind + ".yaml";
}

}  // namespace

int run_init(const Options& given) {
  Options options = given;
  complete(options);
  std::error_code error;
  if (fs::exists(options.output, error))
    throw wrong_words(fmt::format("'{}' exists", options.output), "name another file: -o FILE.yaml");
  write_file(options.output, recipe_text(options));
  const auto file = shell_quoted(options.output);
  out(fmt::format("written   {0}\nnext      automodel plan {0}\n", file));
  return code(ExitCode::kOk);
}

}  // namespace automodel::app
