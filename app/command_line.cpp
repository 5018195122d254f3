#include "command_line.h"

#include <algorithm>
#include <array>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "base/error.h"
#include "base/spelling.h"
#include "base/terminal.h"
#include "base/version.h"
#include "config/reference.h"
#include "from_option.h"
#include "option_checks.h"
#include "report.h"
#include "report/plan_json.h"

namespace automodel::app {
namespace {

constexpr const char* kFooter =
    "Overrides change keys of the recipe: --a.b.c VALUE, --a.b.c=VALUE or a.b.c=VALUE; the last one wins.\n\n"
    "Exit codes:\n"
    "   0  ok\n"
    "   2  bad recipe, command line or input file\n"
    "   3  plan refused: cannot run or does not fit\n"
    "   4  environment: MPI, GPU, files, permissions\n"
    "  10  stopped by a signal; run again to resume\n"
    "  11  loss or gradient not finite\n"
    "  12  a rank hung\n"
    "  13  a checkpoint could not be written or read\n"
    "  70  a defect of this program\n";

/// Of help that is not read at a terminal.
constexpr int kHelpColumns = 80;

/// CLI11's help with the usage text from the table of commands, and with readable types.
class Help : public CLI::Formatter {
 public:
  explicit Help(std::span<const Command> commands) : commands_(commands) {}

  std::string make_usage(const CLI::App* app, std::string /*name*/) const override {
    const auto command = std::find_if(commands_.begin(), commands_.end(),
                                      [&](const Command& each) { return each.name == app->get_name(); });
    return fmt::format("\nUsage: automodel {}\n",
                       command == commands_.end() ? "COMMAND ...\n       automodel RECIPE.yaml ...  (the same as train)"
                                                  : command->usage);
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string type = option->get_type_name();
    if (const auto values = words_of(*option); !values.empty()) return " " + CLI::detail::join(values, "|");
    if (option->get_positional() || type.empty()) return "";
    return " " + (type.starts_with("INT") ? "N" : type.substr(0, type.find(':')));
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    const auto value = option->get_default_str();
    const auto doc = option->get_description();
    return value.empty() || doc.find("default:") != std::string::npos ? doc
                                                                      : fmt::format("{} (default: {})", doc, value);
  }

 private:
  std::span<const Command> commands_;
};

/// The number of ranks, which every command takes under each of its names; the help shows the first one.
CLI::Option* add_ranks(CLI::App& sub, std::optional<int>& ranks, const char* first, const std::string& doc) {
  std::string names = first;
  for (const char* other : {"--nproc-per-node", "--nproc_per_node", "--world-size", "--world_size"})
    if (std::string_view(other) != first) names += fmt::format(",{}", other);
  return sub.add_option(names, ranks, doc)->check(whole_number());
}

void add_restart_options(CLI::App& sub, Options& options) {
  sub.add_option("--max-restarts", options.max_restarts,
                 "Restart the ranks from the newest checkpoint up to this many times after one died, hung or lost "
                 "its host (fault_tolerance.max_restarts)")
      ->check(whole_number(0));
  sub.add_option("--min-ranks", options.min_ranks,
                 "Continue with at least this many ranks on the remaining hosts (fault_tolerance.min_ranks)")
      ->check(whole_number());
}

/// How many ranks a job has.
void add_node_options(CLI::App& sub, Options& options) {
  sub.add_option("--nodes", options.nodes, "Machines")->required()->check(whole_number());
  sub.add_option("--gpus-per-node,--ranks-per-node,--nproc-per-node,--nproc_per_node", options.gpus_per_node,
                 "Ranks per machine (default: by device)")
      ->check(whole_number());
  sub.add_option("--world-size,--world_size", options.world_size, "Number of ranks, in place of ranks per machine")
      ->check(whole_number());
}

void add_k8s_options(CLI::App& sub, Options& options) {
  add_node_options(sub, options);
  sub.add_option("--kind", options.kind, "Controller: Kubeflow's MPI operator, Kubeflow Trainer, or JobSet")
      ->check(one_of({"mpijob", "trainjob", "jobset"}))
      ->default_str("mpijob");
  sub.add_option("--image", options.image, "Image with automodel, Open MPI and sshd")
      ->type_name("IMAGE")
      ->capture_default_str();
  sub.add_option("--namespace", options.space, "Namespace (default: kubectl's)")->type_name("NAME");
  sub.add_option("--volume", options.volumes, "Persistent volume claim and where the ranks see it; may be repeated")
      ->type_name("NAME=PATH")
      ->type_size(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  sub.add_option("--max-restarts", options.max_restarts,
                 "Let Kubernetes start the job again, from the newest checkpoint, up to this many times "
                 "(fault_tolerance.max_restarts)")
      ->check(whole_number(0));
}

void add_slurm_options(CLI::App& sub, Options& options) {
  add_node_options(sub, options);
  sub.add_option("--cpus-per-rank", options.cpus_per_rank, "CPU cores per rank")->check(whole_number());
  sub.add_option("--time", options.time, "Time limit, as in sbatch: 4:00:00")->type_name("TIME");
  sub.add_option("--partition", options.partition, "Slurm partition")->type_name("NAME");
  sub.add_option("--account", options.account, "Slurm account")->type_name("NAME");
  sub.add_option("--qos", options.qos, "Slurm quality of service")->type_name("NAME");
  sub.add_option("--container", options.container, "Container image (pyxis)")->type_name("IMAGE");
  sub.add_option("--mount", options.mounts,
                 "Folder mounted in the container (DIR or DIR:INSIDE), in addition to those that the recipe names")
      ->type_name("DIR")
      ->type_size(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  sub.add_option("--program", options.program, "Path of automodel on the nodes (default: the path of this program)")
      ->type_name("PATH");
  sub.add_option("--preamble", options.preamble,
                 "File of shell commands that the job runs first (modules, environment)")
      ->type_name("FILE");
  sub.add_option("--job-name", options.job_name, "Job name (default: the recipe's name)")->type_name("NAME");
  sub.add_option("--logs", options.logs, "Folder for a log per rank (default: all in the job's own log)")
      ->type_name("DIR");
  sub.add_option("--warning", options.warning, "Seconds before the end at which ranks save and stop")
      ->check(whole_number())
      ->capture_default_str();
  sub.add_option("--launcher", options.launcher, "Who starts the ranks")
      ->check(one_of({"srun", "mpirun"}))
      ->capture_default_str();
  add_restart_options(sub, options);
}

void add_init_options(CLI::App& sub, Options& options) {
  sub.add_option("KIND", options.kind, "pretrain, sft or lora; asked for on a terminal");
  sub.add_option("--model", options.model, "A folder, or a model's name on the Hugging Face hub")->type_name("NAME");
  sub.add_option("--data", options.data, "Text file (pretrain) or JSON lines of conversations (sft, lora)")
      ->type_name("FILE");
  sub.add_option("--seq-length", options.seq_length, "Tokens per sequence (default: 512)")->check(whole_number());
  add_ranks(sub, options.nproc_per_node, "--nproc-per-node", "Number of data-parallel ranks");
  sub.add_option("-o,--output", options.output, "Output file (default: KIND.yaml)")->type_name("FILE.yaml");
}

void add_estimate_options(CLI::App& sub, Options& options) {
  sub.add_option("--memory", options.memory, "Device memory per rank, for example 80GiB (hardware.memory)")
      ->type_name("SIZE");
  sub.add_flag("--verbose", options.verbose,
               "Show memory by rank and phase, FLOPs, traffic by axis and microbatches in flight");
  sub.add_flag("--require-fit", options.require_fit, "Exit with 3 if the plan does not fit in memory");
  sub.add_flag(
      "--no-files", options.no_files,
      "Plan for another machine: do not look at the data, tokenizer, weights and folders that the recipe names");
  sub.add_flag("--calibrate", options.calibrate,
               "Measure this machine first (takes seconds): the parts of the recipe's model, or of common models "
               "without RECIPE");
  sub.add_flag("--search", options.search,
               "Rank combinations of mesh, schedule, microbatch size and recomputation by throughput");
  sub.add_flag("--compare-schedules", options.compare_schedules,
               "Compare every schedule for this recipe: a table, and with --timeline one chart of all");
  sub.add_flag("--failures", options.failures,
               "Show what losing hosts means, and what failures do to the run: goodput, when it ends, what would help");
  sub.add_option("--diff", options.diff,
                 "Print what differs from another recipe's plan: keys, decisions with what each changes, memory, time")
      ->type_name("OTHER.yaml");
  sub.add_option("--apply", options.apply, "Write the recipe with the best plan of a search")->type_name("FILE.yaml");
}

void add_checkpoint_options(CLI::App& sub, Options& options) {
  sub.add_option(
         "ACTION", options.action,
         "ls: a table; verify: read everything and compare checksums; export: write a "
         "Hugging Face folder; import: take over a run of torchtitan, NeMo AutoModel or accelerate, or any that "
         "torch.distributed.checkpoint saved")
      ->required()
      ->check(one_of({"ls", "verify", "export", "import"}));
  sub.add_option("DIR", options.folder,
                 "A checkpoint (RUN/LOWEST_VAL: the best one), or a folder of checkpoints; import: the folder with "
                 ".metadata, NeMo's epoch_*_step_*, or accelerate's with pytorch_model_fsdp_0")
      ->required();
  sub.add_option("OUTPUT", options.output, "export, import: the new folder");
  auto* gguf = sub.add_flag("--gguf", options.gguf, "export: OUTPUT is a GGUF file for llama.cpp");
  sub.add_option("--dcp", options.dcp,
                 "export: OUTPUT is a distributed checkpoint of PyTorch, with optimizer and step, in Hugging Face's "
                 "names (torch), torchtitan's (titan) or NeMo AutoModel's (nemo)")
      ->check(one_of({"torch", "titan", "nemo"}))
      ->excludes(gguf);
  sub.add_option("--type", options.gguf_type, "export --gguf: type of the matrices (default: f16)")
      ->check(one_of({"f32", "f16", "bf16", "q8_0"}))
      ->needs(gguf);
  sub.add_option("--recipe", options.recipe,
                 "import: recipe of the run that goes on (batch size, and the model if SOURCE "
                 "has no config.json)")
      ->type_name("RECIPE");
  sub.add_option("--dtype", options.dtype, "export: dtype of the weights (default: as stored)")->type_name("DTYPE");
  sub.add_flag("--merge", options.merge, "export: merge LoRA adapters into their base model");
  sub.add_option("--base", options.base, "export --merge: folder of the base model")->type_name("DIR");
}

void add_schedule_options(CLI::App& sub, Options& options) {
  sub.add_option("NAME", options.schedule, "A schedule's name, a table in PyTorch's CSV format, or search")->required();
  sub.add_option("--pp-size", options.pipeline_ranks, "Pipeline ranks")->check(whole_number());
  sub.add_option("--microbatches", options.microbatches, "Microbatches of a step")->check(whole_number());
  sub.add_option("--stages-per-rank", options.stages_per_rank, "Stages per rank (default: the schedule's own)")
      ->check(whole_number());
  sub.add_option("--style", options.style, "Placement of the stages (default: the schedule's own; search: loop)")
      ->check(one_of({"loop", "v"}));
  sub.add_option("--costs", options.costs,
                 "forward, backward_input, backward_weight, activation and kept, each a number or one per stage, and "
                 "comm (default: 1, and comm 0); or the output of plan --json")
      ->type_name("FILE.json");
  sub.add_option("--memory-limit", options.memory_limit, "Most activations of a rank, in the unit of the costs")
      ->type_name("X");
  sub.add_option("--timeline", options.timeline, "Write the schedule as an SVG chart")->type_name("FILE.svg");
  sub.add_option("-o,--output", options.output, "Write the table in PyTorch's CSV format")->type_name("FILE.csv");
  sub.add_option("--format", options.format,
                 "What -o writes: computations only, with communication, or with the waits of PyTorch 2.15 too")
      ->check(one_of({"compute", "lowered", "lowered-2.15"}))
      ->capture_default_str();
}

void add_generate_options(CLI::App& sub, Options& options) {
  sub.add_option(
         "DIR", options.folder,
         "Checkpoint (RUN/LOWEST_VAL: the best one), folder of checkpoints (its newest), export, Hugging Face folder, "
         "or folder of LoRA adapters")
      ->required();
  sub.add_option("--prompt", options.prompts, "Text to continue; may be repeated (default: standard input)")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  sub.add_option("--image", options.images,
                 "Picture (JPEG, PNG, WebP) that the prompt is about, in the chat template; may be repeated")
      ->type_name("FILE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  sub.add_flag("--chat", options.chat, "Chat with the chat template: each line of standard input is a message");
  sub.add_option("--system", options.system, "System message of the conversation");
  auto* logits = sub.add_flag("--logits", options.logits,
                              "Instead of text: the logits behind each prompt, one for each token, as JSON");
  sub.add_option("--max-new-tokens", options.max_new_tokens, "Maximum number of new tokens")
      ->check(whole_number())
      ->excludes(logits)
      ->capture_default_str();
  sub.add_option("--temperature", options.temperature, "Sampling temperature; 0: always the most likely token")
      ->check(number_between(0, 1e6))
      ->excludes(logits)
      ->capture_default_str();
  sub.add_option("--top-k", options.top_k, "Sample from the k most likely tokens; 0: from all")
      ->check(whole_number(0))
      ->excludes(logits)
      ->capture_default_str();
  sub.add_option("--top-p", options.top_p, "Sample from the most likely tokens whose probabilities add up to this")
      ->check(number_between(1e-9, 1))
      ->excludes(logits)
      ->capture_default_str();
  sub.add_option("--seed", options.seed, "Seed of the sampling")
      ->check(whole_number(0, 1 << 30))
      ->excludes(logits)
      ->capture_default_str();
  sub.add_option("--tokenizer", options.tokenizer, "Folder with tokenizer.json, or bytes (default: the model's)");
  sub.add_option("--base", options.base, "Folder of the model that adapters belong to (default: the one they name)")
      ->type_name("DIR");
  sub.add_option("--dtype", options.dtype, "Dtype to compute in (default: that of the weights)")->type_name("DTYPE");
  sub.add_option("--device", options.device, "Where to compute")
      ->check(one_of({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  add_ranks(sub, options.nproc_per_node, "--nproc-per-node", "Ranks on this machine (default: tp-size x pp-size)");
  sub.add_option("--tp-size", options.tp_size, "Tensor-parallel ranks on this machine (default: 1)")
      ->check(whole_number());
  sub.add_option("--pp-size", options.pp_size, "Pipeline stages, one rank on this machine each")
      ->check(whole_number())
      ->capture_default_str();
}

void add_options(CLI::App& sub, const Command& command, Options& options) {
  if (command.takes & kRecipe) {
    auto* recipe =
        sub.add_option("RECIPE", options.recipe,
                       "Recipe (YAML); relative paths in it are resolved beside it, then in the working directory");
    // --calibrate and --against work without a recipe.
    if (!(command.takes & (kEstimates | kThreads))) recipe->required();
    sub.allow_extras();
  }
  if (command.takes & kJson)
    sub.add_flag("--json", options.json,
                 command.takes & kProcesses
                     ? "Print the run's events as JSON lines on standard output, and nothing else"
                 : command.takes & kRows ? "Print one JSON object per row on standard output"
                                         : "Print one JSON document on standard output");
  if (command.takes & kRows) {
    sub.add_option("--rows", options.rows, "Rows to show")->check(whole_number())->capture_default_str();
    sub.add_flag("--validation", options.validation, "Rows of validation_dataset instead of dataset");
    sub.add_option("--html", options.html, "Write the rows, or packs of them, as one HTML page with their pictures")
        ->type_name("FILE.html");
  }
  if (command.takes & kWorldSize) {
    add_ranks(sub, options.world_size, "--world-size", "Number of ranks (default: the product of the recipe's sizes)");
    sub.add_option("--gpus-per-node", options.gpus_per_node, "Ranks per node")->check(whole_number());
  }
  if (command.takes & kThreads)
    add_ranks(sub, options.nproc_per_node, "--nproc-per-node",
              "Number of ranks, as threads of one process (default: the product of the recipe's sizes)");
  if (command.takes & kThreads) {
    sub.add_option("--against", options.against,
                   "Compare the loss and gradients that another trainer wrote (docs/verify-against.md) instead of a "
                   "recipe's")
        ->type_name("DIR");
    sub.add_option("--tolerance", options.tolerance,
                   "--against: largest relative difference of a tensor (default: by dtype, depth and sizes)")
        ->check(number_between(0, 1))
        ->type_name("X");
  }
  if (command.takes & kDryRun)
    sub.add_flag("--dry-run", options.dry_run, "Accepted for clarity: a plan never runs anything");
  if (command.takes & kPictures) {
    sub.add_option("--actions", options.actions, "List each rank's actions: computations only, or with communication")
        ->check(one_of({"compute", "lowered"}));
    sub.add_option("--timeline", options.timeline, "Write the schedule as an SVG chart")->type_name("FILE.svg");
    sub.add_option("--trace", options.trace, "Write the schedule as Chrome trace events")->type_name("FILE.json");
    sub.add_option("--html", options.html, "Write the plan as one HTML page: memory, time line, time, traffic")
        ->type_name("FILE.html");
  }
  if (command.takes & kSlurm) add_slurm_options(sub, options);
  if (command.takes & kK8s) add_k8s_options(sub, options);
  if (command.takes & kEstimates) add_estimate_options(sub, options);
  if (command.takes & kEstimates) add_from_options(sub, options);
  if (command.takes & kProcesses) {
    add_ranks(sub, options.nproc_per_node, "--nproc-per-node", "Start this many ranks on this machine");
    add_restart_options(sub, options);
    sub.add_option("--start-with", options.start_with,
                   "Command that starts (and restarts) the ranks: \"mpirun -np 16 --hostfile hosts\", \"srun\"")
        ->type_name("WORDS");
  }
  if (command.takes & kDoctor) {
    auto* ranks = sub.add_flag("--ranks", options.ranks,
                               "Measure compute, memory and links of each rank and name outliers; also under mpirun");
    auto* here = add_ranks(sub, options.nproc_per_node, "--nproc-per-node", "Start this many ranks on this machine")
                     ->needs(ranks);
    sub.add_option("--start-with", options.start_with,
                   "Command that starts the ranks: \"mpirun -np 16 --hostfile hosts\"")
        ->type_name("WORDS")
        ->needs(ranks)
        ->excludes(here);
  }
  if (command.takes & kInit) add_init_options(sub, options);
  if (command.takes & kCheckpoint) add_checkpoint_options(sub, options);
  if (command.takes & kReport) {
    sub.add_option("RUN", options.folders, "Folder of a run (its checkpoint_dir)")
        ->required()
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    sub.add_option("-o,--output", options.output, "Output file (default: RUN/report.html)")->type_name("FILE.html");
  }
  if (command.takes & kStudio) {
    sub.add_option("RECIPE|RUN", options.folders,
                   "Recipes, folders of runs, or folders above them; nothing else is read (default: a recipe to begin "
                   "with)")
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    sub.add_option("--port", options.port, "Port on 127.0.0.1 (default: a free one)")->check(whole_number(1, 65535));
    sub.add_flag("--no-open", options.no_open, "Do not open the page in a browser");
  }
  if (command.takes & kSchedule) add_schedule_options(sub, options);
  if (command.takes & kGenerate) add_generate_options(sub, options);
  if (command.takes & kTokenizer) {
    sub.add_option("DIR", options.folder, "Folder with tokenizer.json or tokenizer.model")->required();
    auto* special = sub.add_flag("--special", options.special, "Add the tokenizer's own special tokens to each text");
    auto* decode = sub.add_flag("--decode", options.decode, "Read arrays of ids and print JSON strings");
    sub.add_flag("--skip-special", options.skip_special, "Leave special tokens out of the decoded text")
        ->needs(decode)
        ->excludes(special);
  }
  if (command.takes & kMarkdown) {
    auto* recipe = sub.add_flag("--markdown", options.markdown,
                                "Print the recipe reference as Markdown instead: every key with its meaning");
    auto* plan =
        sub.add_flag("--plan", options.plan_reference, "Print the reference of the fields of plan --json as Markdown")
            ->excludes(recipe);
    sub.add_flag("--errors", options.errors, "Print the reference of errors and warnings as Markdown")
        ->excludes(recipe)
        ->excludes(plan);
  }
  if (command.takes & kShell)
    sub.add_option("SHELL", options.shell, "Shell to print the completion script for")
        ->required()
        ->check(one_of({"bash", "zsh", "fish"}));
}

/// Reports problems that are not about a recipe, as text or in the format that --json promises.
int refuse_all(const Error& error, bool json) {
  if (json)
    out(report::errors_to_json(error.problems()) + "\n");
  else
    err(error.what());
  return code(error.code());
}

/// A misspelled option looks like an override of an unknown recipe key, and the advice for the key would be a list of
/// sections. Returns the advice to use an option instead; empty if `word` does not resemble one.
std::string misspelled_option(const CLI::App& sub, const std::string& word) {
  if (!word.starts_with("--")) return "";
  const std::string name = word.substr(2, word.find('=') - 2);
  if (name.find('.') != std::string::npos) return "";
  std::vector<std::string> sections;
  for (const auto& key : config::recipe_keys()) {
    const auto section = key.substr(0, key.find('.'));
    if (section == name) return "";
    if (sections.empty() || sections.back() != section) sections.push_back(section);
  }
  return suggest_option(sub, name, sections);
}

/// Words of other launchers, with what they are here.
struct Synonym {
  std::string_view word, meant;
};
constexpr std::array kSynonyms = {
    Synonym{"-n", "--nproc-per-node N"},
    Synonym{"-np", "--nproc-per-node N"},
    Synonym{"--np", "--nproc-per-node N"},
    Synonym{"--nproc", "--nproc-per-node N"},
    Synonym{"--ranks", "--nproc-per-node N"},
    Synonym{"--num-processes", "--nproc-per-node N"},
    Synonym{"--num_processes", "--nproc-per-node N"},
    Synonym{"--lr", "--optimizer.lr VALUE"},
    Synonym{"--learning_rate", "--optimizer.lr VALUE"},
    Synonym{"--learning-rate", "--optimizer.lr VALUE"},
    Synonym{"--weight_decay", "--optimizer.weight_decay VALUE"},
    Synonym{"--batch_size", "--step_scheduler.global_batch_size VALUE and step_scheduler.local_batch_size VALUE"},
    Synonym{"--per_device_train_batch_size", "--step_scheduler.local_batch_size VALUE"},
    Synonym{"--gradient_accumulation_steps", "--step_scheduler.global_batch_size VALUE (local x ranks x steps)"},
    Synonym{"--num_train_epochs", "--step_scheduler.num_epochs VALUE"},
    Synonym{"--epochs", "--step_scheduler.num_epochs VALUE"},
    Synonym{"--gpus", "--nproc-per-node N"},
    Synonym{"--num_gpus", "--nproc-per-node N"},
    Synonym{"--num-gpus", "--nproc-per-node N"},
    Synonym{"--seq_length", "--dataset.seq_length VALUE"},
    Synonym{"--max_seq_length", "--dataset.seq_length VALUE"},
    Synonym{"--max_length", "--dataset.seq_length VALUE"},
    Synonym{"--output_dir", "--checkpoint.checkpoint_dir FOLDER"},
    Synonym{"--model_name_or_path", "--model.pretrained_model_name_or_path NAME"},
    Synonym{"--peft.r", "--peft.dim VALUE"},
    Synonym{"--peft.lora_r", "--peft.dim VALUE"},
    Synonym{"--peft.lora_alpha", "--peft.alpha VALUE"},
    Synonym{"--peft.lora_dropout", "--peft.dropout VALUE"},
};
/// "write --nproc-per-node N"; empty for words that other programs do not know either.
std::string synonym_of(const std::string& word) {
  const auto name = word.substr(0, word.find('='));
  const auto found = std::ranges::find_if(kSynonyms, [&](const Synonym& each) { return each.word == name; });
  return found == kSynonyms.end() ? "" : fmt::format("write {}", found->meant);
}

/// What is wrong with the words of a command and, if known, what to write instead.
std::pair<std::string, std::string> explain(const CLI::ParseError& error, const CLI::App& command) {
  const std::string text = error.what();
  if (const auto words = command.remaining();
      dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !words.empty()) {
    const auto option = std::ranges::find_if(words, [](const auto& word) { return word.starts_with("-"); });
    if (option == words.end())
      return {fmt::format("{} takes no further argument: '{}'", command.get_name(), words.front()), ""};
    return {fmt::format("{} has no option {}", command.get_name(), option->substr(0, option->find('='))),
            suggest_option(command, option->substr(std::min(option->find_first_not_of('-'), option->size())))};
  }
  // Since the last of repeated values wins, what does not match is always a value that is missing.
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr)
    return {text.substr(0, text.find(':')) + " needs a value", ""};
  const auto line = text.find('\n');
  return {text.substr(0, line), line == std::string::npos ? "" : text.substr(line + 1)};
}

/// Extracts a command's description from the parser, for shell completion.
launch::CompletedCommand describe(const CLI::App& sub, const Command& command) {
  launch::CompletedCommand out{sub.get_name(), sub.get_description(), (command.takes & kRecipe) != 0, {}};
  for (const auto* option : sub.get_options()) {
    const auto& names = option->get_lnames();
    out.options.push_back({option->get_positional() ? "" : "--" + (names.empty() ? std::string() : names.front()),
                           option->get_description(), words_of(*option), option->get_items_expected_max() > 0});
  }
  return out;
}

constexpr const char* kNoRecipe = "-";

bool is_recipe(const std::string& word) {
  return word.ends_with(".yaml") || word.ends_with(".yml");
}

}  // namespace

int run_command_line(int argc, char** argv, std::span<const Command> commands) {
  CLI::App app("automodel trains large language models from a recipe, over any mesh of ranks.", "automodel");
  app.set_version_flag("--version", std::string(kVersion), "Print the version");
  app.footer(kFooter);
  app.formatter(std::make_shared<Help>(commands));
  app.set_help_flag("-h,--help", "Print this help");
  app.require_subcommand(1);
  std::deque<Options> options;  // needs stable addresses: CLI11 keeps references
  std::vector<CLI::App*> subs;
  std::vector<std::string_view> names;
  for (const auto& command : commands) {
    auto* sub = app.add_subcommand(std::string(command.name), std::string(command.doc));
    sub->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // as with overrides
    sub->footer(command.takes & kRecipe ? kFooter : "");
    add_options(*sub, command, options.emplace_back());
    subs.push_back(sub);
    names.push_back(command.name);
  }
  // `automodel RECIPE.yaml ...` trains, as in NeMo AutoModel.
  std::vector<std::string> words(argv + 1, argv + argc);
  const bool json = std::ranges::find(words, "--json") != words.end();
  const auto refuse_words = [&](const std::string& message, const std::string& hint) {
    return refuse_all(wrong_words(message, hint), json);
  };
  if (words.empty())
    return refuse_words("no command given", "automodel " + CLI::detail::join(names, "|") + ", or --help");
  if (is_recipe(words[0])) words.insert(words.begin(), "train");
  const std::string help = "see automodel " + (words[0].starts_with("-") ? "" : words[0] + " ") + "--help";
  if (!words[0].starts_with("-") && std::find(names.begin(), names.end(), words[0]) == names.end())
    return refuse_words(fmt::format("unknown command '{}'", words[0]), suggestion(words[0], names));
  // What follows "--" are another trainer's own arguments.
  std::vector<std::string> arguments;
  if (const auto end = std::ranges::find(words, "--"); words[0] == "plan" && end != words.end()) {
    arguments.assign(end + 1, words.end());
    words.erase(end, words.end());
  }
  // --from takes the place of RECIPE, which would otherwise be the value of the first override.
  if (words[0] == "plan" && std::ranges::find(words, "--from") != words.end())
    words.insert(words.begin() + 1, kNoRecipe);
  std::reverse(words.begin(), words.end());  // CLI11 consumes them from the back
  try {
    app.parse(words);
  } catch (const CLI::CallForHelp&) {
    const int columns = terminal_columns(STDOUT_FILENO);
    out(folded(app.help(), columns > 0 ? columns : kHelpColumns));
    return code(ExitCode::kOk);
  } catch (const CLI::Success& success) {
    return app.exit(success);  // version
  } catch (const CLI::ParseError& error) {
    const auto said = [&](const CLI::App* sub) { return sub->parsed(); };
    const auto sub = std::ranges::find_if(subs, said);
    const auto [message, hint] = explain(error, sub == subs.end() ? app : **sub);
    return refuse_words(message, hint.empty() ? help : hint);
  }
  for (std::size_t i = 0; i < subs.size(); ++i) {
    if (!subs[i]->parsed()) continue;
    options[i].overrides = subs[i]->remaining();
    for (const auto& word : options[i].overrides)
      if (auto meant = synonym_of(word); !meant.empty() || !(meant = misspelled_option(*subs[i], word)).empty())
        return refuse_words(fmt::format("'{}' is neither an option nor a key of the recipe", word), meant);
    options[i].arguments = arguments;
    if (options[i].recipe == kNoRecipe) options[i].recipe.clear();
    if (commands[i].takes & kRecipe && options[i].recipe.empty() && !options[i].calibrate && options[i].from.empty() &&
        options[i].against.empty())
      return refuse_words("RECIPE is required", help);
    if (commands[i].takes & kShell)
      for (std::size_t k = 0; k < subs.size(); ++k) options[i].known.push_back(describe(*subs[k], commands[k]));
    try {
      return commands[i].run(options[i]);
    } catch (const Error& error) {
      return refuse_all(error, options[i].json);
    }
  }
  return static_cast<int>(ExitCode::kBadInput);
}

}  // namespace automodel::app
