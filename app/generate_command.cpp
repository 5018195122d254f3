#include <filesystem>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "base/dtype.h"
#include "base/error.h"
#include "checkpoint/format/adapter.h"
#include "checkpoint/format/root_folder.h"
#include "checkpoint/format/run_state.h"
#include "commands.h"
#include "config/generate_request.h"
#include "config/node.h"
#include "estimate/estimated_plan.h"
#include "launch/train_command.h"
#include "report.h"

namespace automodel::app {
namespace {

namespace fs = std::filesystem;

/// The folder that DIR refers to, of a model or of adapters: itself, that of a checkpoint, or that of the newest
/// checkpoint in it.
fs::path model_folder(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> places = {folder, folder / "model"};
  if (const auto newest = checkpoint::newest_checkpoint(folder); !newest.empty()) places.push_back(newest / "model");
  for (const auto& each : places)
    for (const char* name : {"config.json", checkpoint::kAdapterConfig})
      if (fs::is_regular_file(each / name, error)) return each;
  throw Error(Diagnostic{"missing-file"}
                  .says("there is no model in '{}'", folder.native())
                  .hint("name a folder with config.json and safetensors, a checkpoint, or a folder of checkpoints")
                  .at({"command line", 0, 0}));
}

/// The tokenizer to use: that of the first of these folders which has one, or the one that its checkpoint was trained
/// with.
std::string tokenizer_of(const std::vector<fs::path>& folders) {
  std::error_code error;
  for (const auto& folder : folders)
    if (fs::is_regular_file(folder / "tokenizer.json", error)) return folder.native();
  for (const auto& folder : folders) {
    Diagnostics problems;
    const auto state = checkpoint::read_run_state(folder.parent_path(), problems);
    if (!state) continue;
    const auto recipe = config::to_value(config::parse_yaml(state->resolved, checkpoint::kStateName, problems));
    const auto* dataset = recipe.find("dataset");
    const auto* name = dataset != nullptr ? dataset->find("tokenizer") : nullptr;
    if (const auto* text = name != nullptr ? name->string() : nullptr) return *text;
    // Only plain text does without a tokenizer: the model had none.
    const auto* kind = dataset != nullptr ? dataset->find("_target_") : nullptr;
    if (kind != nullptr && *kind == config::Value("text")) return "bytes";
  }
  throw Error(Diagnostic{"missing-file"}
                  .says("there is no tokenizer in '{}'", folders.front().native())
                  .hint("name one: '--tokenizer DIR', or '--tokenizer bytes'")
                  .at({"command line", 0, 0}));
}

/// The peft section for adapters as they are stored. Its alpha is a whole number; the ranks take the folder's.
std::string peft_section(const fs::path& folder, const checkpoint::AdapterConfig& adapters) {
  Diagnostics problems;
  std::set<std::string> modules;
  for (const auto& module : checkpoint::adapted_modules(folder, problems)) {
    constexpr std::string_view kExperts = ".experts";  // a recipe names all of a layer's at once
    const auto at = module.find(std::string(kExperts) + ".");
    modules.insert(at == std::string::npos ? module : module.substr(0, at + kExperts.size()));
  }
  if (problems.empty() && (modules.empty() || (adapters.rank_stabilized && adapters.expert_rank > 0)))
    problems.add("adapter-config")
        .says("'{}' {}", folder.native(),
              modules.empty() ? "holds no adapters" : "scales adapters of two ranks by their square roots")
        .hint("name a folder of LoRA adapters, or merge them: 'automodel checkpoint export DIR NEW_FOLDER --merge'")
        .at({folder.native(), 0, 0});
  if (!problems.empty()) throw Error(ExitCode::kBadInput, std::move(problems));
  config::Value::List names;
  for (const auto& module : modules) names.emplace_back(module);
  config::Value out;
  out.set("target_modules", config::Value(std::move(names)));
  out.set("dim", std::int64_t{adapters.rank});
  out.set("use_dora", adapters.magnitudes);
  out.set("moe_rank_scaling", adapters.expert_rank > 0 && adapters.expert_rank != adapters.rank);
  return config::to_json(out);
}

/// Says where model, adapters and tokenizer are.
void find_files(const Options& options, config::GenerateRequest& out) {
  const auto folder = model_folder(options.folder);
  out.folder() = folder.native();
  std::error_code error;
  const bool adapted = !fs::is_regular_file(folder / "config.json", error);
  if (!adapted && !options.base.empty())
    throw wrong_words(fmt::format("'{}' is a model: --base is for adapters", folder.native()), "leave --base out");
  if (adapted) {
    Diagnostics problems;
    const auto adapters = checkpoint::read_adapter_config(folder, problems);
    if (!adapters) throw Error(ExitCode::kBadInput, std::move(problems));
    out.folder() = options.base.empty() ? adapters->base_model : options.base;
    if (out.folder().empty())
      throw Error(Diagnostic{"adapters-alone"}
                      .says("'{}' does not say which model its adapters belong to", folder.native())
                      .hint("name the model's folder: '--base DIR'")
                      .at({"command line", 0, 0}));
    out.adapters() = folder.native();
    out.peft() = peft_section(folder, *adapters);
  }
  out.tokenizer() = !options.tokenizer.empty() ? options.tokenizer : tokenizer_of({folder, fs::path(out.folder())});
}

config::GenerateRequest request_of(const Options& options) {
  config::GenerateRequest out;
  find_files(options, out);
  out.prompts() = options.prompts;
  out.images() = options.images;
  out.chat() = options.chat;
  if (!options.system.empty()) out.system() = options.system;
  out.max_new_tokens() = options.max_new_tokens;
  out.temperature() = options.temperature;
  out.top_k() = options.top_k;
  out.top_p() = options.top_p;
  out.seed() = options.seed;
  out.logits() = options.logits;
  out.json() = options.json || options.logits;
  out.device() = options.device;
  if (!options.dtype.empty()) {
    if (!parse_dtype(options.dtype))
      throw wrong_words(fmt::format("'{}' is not a dtype", options.dtype), "float32, bfloat16, float16 or float64");
    out.dtype() = options.dtype;
  }
  // Ranks without a word on what they divide divide each layer.
  const int tp = options.tp_size.value_or(options.nproc_per_node.value_or(options.pp_size) / options.pp_size);
  if (options.nproc_per_node && *options.nproc_per_node != tp * options.pp_size)
    throw wrong_words(
        fmt::format("--nproc-per-node {} is not tp-size {} x pp-size {}", *options.nproc_per_node, tp, options.pp_size),
        "leave --nproc-per-node out");
  out.tp_size() = tp;
  out.pp_size() = options.pp_size;
  return out;
}

}  // namespace

int run_generate(const Options& options) {
  if (!options.system.empty() && !options.chat && options.images.empty())
    throw wrong_words("--system starts a conversation", "add --chat or --image, or leave --system out");
  if (options.logits && options.chat && options.prompts.empty())
    throw wrong_words("--logits reads no conversation", "give the messages with --prompt");
  const auto request = request_of(options);
  const int ranks = request.tp_size() * request.pp_size();
  const auto recipe = config::recipe_of(request);
  if (!recipe.problems.empty()) return refuse(recipe.problems, recipe, options.json);
  const auto plan =
      estimate::make_plan(recipe, {.world_size = ranks, .training = true, .cuda_available = launch::cuda_present()});
  if (!plan.plan) return refuse(plan.problems, recipe, options.json);
  const auto text = config::to_json(request);
  return ranks > 1 && !launch::in_parallel_job()
             ? launch::run_ranks(launch::Work::kGenerate, ranks, text, {})
             : launch::exec_worker({.work = launch::Work::kGenerate, .recipe = text});
}

}  // namespace automodel::app
