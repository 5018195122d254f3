#include <filesystem>
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

/// The Hugging Face folder that DIR refers to: itself, that of a checkpoint, or that of the newest checkpoint in it.
fs::path model_folder(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> places = {folder, folder / "model"};
  if (const auto newest = checkpoint::newest_checkpoint(folder); !newest.empty()) places.push_back(newest / "model");
  for (const auto& each : places) {
    if (fs::is_regular_file(each / "config.json", error)) return each;
    if (fs::is_regular_file(each / checkpoint::kAdapterConfig, error))
      throw Error(Diagnostic{"adapters-alone"}
                      .says("'{}' holds adapters only, without a model", each.native())
                      .hint("add them to their base model first: 'automodel checkpoint export --merge DIR NEW_FOLDER'")
                      .at({"command line", 0, 0}));
  }
  throw Error(Diagnostic{"missing-file"}
                  .says("there is no model in '{}'", folder.native())
                  .hint("name a folder with config.json and safetensors, a checkpoint, or a folder of checkpoints")
                  .at({"command line", 0, 0}));
}

/// The tokenizer to use: the model's own, or the one that the checkpoint was trained with.
std::string tokenizer_of(const fs::path& folder) {
  std::error_code error;
  if (fs::is_regular_file(folder / "tokenizer.json", error)) return folder.native();
  Diagnostics problems;
  if (const auto state = checkpoint::read_run_state(folder.parent_path(), problems)) {
    const auto recipe = config::to_value(config::parse_yaml(state->resolved, checkpoint::kStateName, problems));
    const auto* dataset = recipe.find("dataset");
    const auto* name = dataset != nullptr ? dataset->find("tokenizer") : nullptr;
    if (const auto* text = name != nullptr ? name->string() : nullptr) return *text;
    // Only plain text does without a tokenizer: the model had none.
    const auto* kind = dataset != nullptr ? dataset->find("_target_") : nullptr;
    if (kind != nullptr && *kind == config::Value("text")) return "bytes";
  }
  throw Error(Diagnostic{"missing-file"}
                  .says("there is no tokenizer in '{}'", folder.native())
                  .hint("name one: '--tokenizer DIR', or '--tokenizer bytes'")
                  .at({"command line", 0, 0}));
}

config::GenerateRequest request_of(const Options& options) {
  const auto folder = model_folder(options.folder);
  config::GenerateRequest out;
  out.folder() = folder.native();
  out.tokenizer() = options.tokenizer.empty() ? tokenizer_of(folder) : options.tokenizer;
  out.prompts() = options.prompts;
  out.chat() = options.chat;
  if (!options.system.empty()) out.system() = options.system;
  out.max_new_tokens() = options.max_new_tokens;
  out.temperature() = options.temperature;
  out.top_k() = options.top_k;
  out.top_p() = options.top_p;
  out.seed() = options.seed;
  out.json() = options.json;
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
  if (!options.system.empty() && !options.chat)
    throw wrong_words("--system starts a conversation", "add --chat, or leave --system out");
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
