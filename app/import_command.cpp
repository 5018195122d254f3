// `automodel checkpoint import`: a run of another trainer as a checkpoint of this program.
#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "arch/families.h"
#include "arch/hf_config.h"
#include "base/bytes.h"
#include "base/version.h"
#include "checkpoint/dcp/import.h"
#include "checkpoint/format/companion_names.h"
#include "checkpoint/format/file.h"
#include "checkpoint_command.h"
#include "config/value.h"
#include "plan/located.h"
#include "plan/saved_config.h"
#include "report.h"

namespace automodel::app {
namespace {

namespace fs = std::filesystem;

/// The model that config.json in `folder` describes.
plan::ModelChoice model_in(const fs::path& folder) {
  const auto file = folder / "config.json";
  Diagnostics problems;
  auto text = checkpoint::read_file(file, problems, std::uint64_t{1} << 26U);
  if (!text) throw Error(ExitCode::kCheckpoint, std::move(problems));
  auto parsed = arch::parse_hf_config(*text, file.native());
  if (!parsed.spec) throw Error(ExitCode::kCheckpoint, std::move(parsed.errors));
  plan::ModelChoice out{.spec = std::move(*parsed.spec), .name = folder.native(), .folder = folder};
  out.layout = arch::layout_of(out.spec);
  out.config_text = std::move(*text);
  return out;
}

/// The files of the tokenizer in the first of these folders that has one.
std::vector<fs::path> tokenizer_files(const std::vector<fs::path>& folders) {
  std::vector<fs::path> out;
  std::error_code error;
  const auto add = [&](const fs::path& file) {
    if (fs::is_regular_file(file, error)) out.push_back(file);
  };
  for (const auto& folder : folders) {
    if (folder.empty() || !out.empty()) continue;
    for (const char* name : checkpoint::kTokenizerFiles) add(folder / name);
    for (const char* name : checkpoint::kTemplateFiles) add(folder / name);
    add(folder / checkpoint::kGenerationFile);
  }
  return out;
}

}  // namespace

int import_checkpoint(const Options& options) {
  if (options.output.empty())
    throw wrong_words("import needs a second folder", "for example 'automodel checkpoint import SOURCE DIR'");
  std::optional<config::LoadedRecipe> recipe;
  std::optional<plan::ModelChoice> model;
  if (!options.recipe.empty()) {
    recipe = load(options);
    if (!recipe->problems.empty()) return refuse(recipe->problems, *recipe, options.json);
  }
  const checkpoint::ForeignCheckpoint source(options.folder);
  fs::path recipe_folder;
  if (recipe) {
    plan::Located report(*recipe);
    auto chosen = plan::choose_model(*recipe, report, true);
    if (chosen) recipe_folder = chosen->folder;
    if (source.model_files().empty()) {
      if (!report.ok() || !chosen) return refuse(report.problems(), *recipe, options.json);
      model = std::move(chosen);
    }
  }
  if (!source.model_files().empty()) model = model_in(source.model_files());
  if (!model)
    throw Error(ExitCode::kCheckpoint, Diagnostic{"checkpoint-missing"}
                                           .says("'{}' does not say which model it is of", options.folder)
                                           .hint("name a recipe of the same model: '--recipe RECIPE'")
                                           .at({"command line", 0, 0}));
  const auto run = source.run_of(model->spec, model->layout);
  const auto type = checkpoint::dtype_of(checkpoint::weight_type(run));
  checkpoint::ImportWish wish{.spec = model->spec, .layout = model->layout};
  wish.copies = tokenizer_files({source.model_files(), recipe_folder});
  wish.texts = {{"config.json", plan::saved_config(*model, type.value_or(DType::kFloat32), {})}};
  const bool has_generation = std::any_of(wish.copies.begin(), wish.copies.end(), [](const fs::path& file) {
    return file.filename() == checkpoint::kGenerationFile;
  });
  if (auto text = plan::saved_generation_config(*model, wish.texts[0].second); !has_generation && !text.empty())
    wish.texts.emplace_back(checkpoint::kGenerationFile, std::move(text));
  wish.state.version = std::string(kVersion);
  wish.state.ranks = source.ranks();
  wish.state.resolved = "{}";
  if (recipe) {
    wish.state.seed = static_cast<std::uint64_t>(recipe->seed());
    wish.state.global_batch_size = recipe->recipe.step_scheduler().global_batch_size();
    wish.state.recipe = recipe->text;
    wish.state.resolved = config::to_json(config::shown_values(*recipe));
  }
  const auto report = checkpoint::import_run(run, options.output, wish);
  if (options.json) {
    config::Value out;
    out.set("path", options.output);
    out.set("layout", std::string(name_of(source.layout())));
    out.set("steps", report.steps);
    out.set("weights", static_cast<std::int64_t>(report.weights));
    out.set("states", static_cast<std::int64_t>(report.states));
    out.set("bytes", static_cast<std::int64_t>(report.bytes));
    config::Value::List notes;
    for (const auto& line : report.lines) notes.emplace_back(line);
    out.set("notes", config::Value(std::move(notes)));
    app::out(config::to_json(out, 2) + "\n");
    return code(ExitCode::kOk);
  }
  std::string text = fmt::format("{}: {} steps of {}, {} weights, {} states of the optimizer, {}\n", options.output,
                                 report.steps, name_of(source.layout()), report.weights, report.states,
                                 format_bytes(static_cast<double>(report.bytes)));
  for (const auto& line : report.lines) text += line + "\n";
  say(text);
  return code(ExitCode::kOk);
}

}  // namespace automodel::app
