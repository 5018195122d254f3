#include "config/recipe.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include <fmt/format.h>

namespace automodel::config {
namespace {

/// Adds problems that a section reported with keys relative to `prefix`, with the places of those keys.
void add_located(LoadedRecipe& loaded, Diagnostics& list, Diagnostics problems, const std::string& prefix) {
  for (auto& problem : problems) {
    problem.key = join_path(prefix, problem.key);
    problem.where = loaded.origins.nearest(problem.key);
    list.push_back(std::move(problem));
  }
}

/// Rules across sections that need nothing but the recipe.
void check_recipe(LoadedRecipe& loaded) {
  const Recipe& recipe = loaded.recipe;
  add_located(loaded, loaded.problems, check(recipe.distributed()), "distributed");
  if (recipe.peft()) add_located(loaded, loaded.problems, check(*recipe.peft()), "peft");
  const auto refuse = [&](std::string id, std::string key, std::string message, std::string help) {
    const auto where = loaded.origins.nearest(key);
    loaded.problems.push_back({std::move(id), std::move(message), std::move(help), where, std::move(key)});
  };
  if (recipe.seed() && recipe.rng->seed() && *recipe.seed() != *recipe.rng->seed())
    refuse("bad-value", "rng.seed", fmt::format("seed is {} and rng.seed is {}", *recipe.seed(), *recipe.rng->seed()),
           "give one of them; NeMo AutoModel reads only the top-level seed");
  if (recipe.model() && !recipe.model()->pretrained_model_name_or_path() && !recipe.model()->config() &&
      recipe.model()->target() != ModelTarget::kGpt2)
    refuse("missing-key", "model", "model needs pretrained_model_name_or_path or config",
           "a folder with config.json, or inline Hugging Face keys under model.config");
  if (!recipe.model())
    refuse("missing-key", "model", "the recipe has no model",
           "add 'model:' with config or pretrained_model_name_or_path");
  if (const auto& format = recipe.checkpoint->model_save_format(); format == "torch_save")
    loaded.ignored.push_back({"checkpoint.model_save_format", "weights are always written as safetensors",
                              loaded.origins.nearest("checkpoint.model_save_format")});
  else if (format != "safetensors")
    refuse("bad-value", "checkpoint.model_save_format", fmt::format("checkpoints cannot be written as '{}'", format),
           "safetensors is the only format");
  if (const auto rows = recipe.validation_dataloader->batch_size();
      rows && *rows != recipe.step_scheduler->local_batch_size())
    loaded.ignored.push_back({"validation_dataloader.batch_size",
                              "validation takes step_scheduler.local_batch_size sequences at once; its loss is a mean "
                              "over tokens, whatever the batch",
                              loaded.origins.nearest("validation_dataloader.batch_size")});
}

}  // namespace

int seed_of(const Recipe& recipe) {
  return recipe.seed().value_or(recipe.rng->seed().value_or(42));
}

LoadedRecipe read_recipe(std::string text, const std::string& path, std::span<const Override> overrides,
                         const Environment& environment) {
  LoadedRecipe loaded;
  loaded.path = path;
  loaded.text = std::move(text);
  loaded.origins.set_file(path);
  Node root = parse_yaml(loaded.text, path, loaded.problems);
  const bool broken = std::any_of(loaded.problems.begin(), loaded.problems.end(),
                                  [](const Diagnostic& d) { return d.id == "yaml-syntax"; });
  if (broken) return loaded;
  apply_overrides(root, overrides, loaded.problems);
  interpolate(root, environment, loaded.problems);
  Reader reader(loaded.problems, loaded.origins, loaded.ignored, loaded.unsupported);
  if (root.is_null())
    loaded.problems.push_back({"missing-key", "the recipe is empty", "see recipes/quickstart.yaml", {path, 1, 1}, ""});
  else
    reader.read(root, "", loaded.recipe);
  const bool structural = !loaded.problems.empty();
  if (!root.is_null() && (!structural || root.kind == Node::Kind::kMap)) check_recipe(loaded);
  std::stable_sort(loaded.problems.begin(), loaded.problems.end(), [](const Diagnostic& a, const Diagnostic& b) {
    return std::pair(a.where.line, a.where.column) < std::pair(b.where.line, b.where.column);
  });
  return loaded;
}

LoadedRecipe load_recipe(const std::string& path, std::span<const Override> overrides, const Environment& environment) {
  std::error_code error;
  std::ifstream file;
  if (!std::filesystem::is_directory(path, error)) file.open(path, std::ios::binary);
  std::string text;
  if (file.is_open()) text.assign(std::istreambuf_iterator<char>(file), {});
  if (!file.is_open() || file.bad()) {
    LoadedRecipe loaded;
    loaded.path = path;
    loaded.problems.push_back({"missing-file",
                               fmt::format("recipe '{}' cannot be read", path),
                               "give the path of a YAML file",
                               {path, 0, 0},
                               ""});
    return loaded;
  }
  return read_recipe(std::move(text), path, overrides, environment);
}

std::string recipe_schema() {
  Value schema = type_of<Recipe>().schema();
  Value out;
  out.set("$schema", "https://json-schema.org/draft/2020-12/schema");
  out.set("title", "automodel recipe");
  for (const auto& [key, item] : *schema.map()) out.set(key, item);
  return to_json(out, 2);
}

}  // namespace automodel::config
