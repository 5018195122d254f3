#include "job_plan.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "data/open_dataset.h"
#include "data/tokenizer.h"
#include "launch/train_command.h"
#include "report.h"

namespace automodel::app {
namespace {

namespace fs = std::filesystem;

/// The folder of a path: of a glob, the longest existing part before the first wildcard; of a file, its parent.
std::string folder_of(const fs::path& path) {
  std::error_code error;
  fs::path out = fs::absolute(path, error).lexically_normal();
  while (!out.empty() && out != out.root_path() && !fs::is_directory(out, error)) out = out.parent_path();
  return out == out.root_path() ? "" : out.string();
}

/// The recipe's sizes do not allow this number of ranks: suggests node counts that they do allow.
std::string advice_in_nodes(const config::LoadedRecipe& loaded, estimate::PlanRequest request, int nodes,
                            int per_node) {
  constexpr int kReach = 16;
  const auto works = [&](int count) {
    request.world_size = count * per_node;
    return estimate::make_plan(loaded, request).plan.has_value();
  };
  std::vector<std::string> found;
  for (int fewer = nodes - 1; fewer >= std::max(1, nodes - kReach); --fewer)
    if (works(fewer)) {
      found.push_back(std::to_string(fewer));
      break;
    }
  for (int more = nodes + 1; more <= nodes + kReach; ++more)
    if (works(more)) {
      found.push_back(std::to_string(more));
      break;
    }
  if (found.empty()) return "";
  return fmt::format("--nodes {} fit the recipe with {} rank{} per node", fmt::join(found, " or "), per_node,
                     per_node == 1 ? "" : "s");
}

}  // namespace

std::vector<std::string> named_folders(const config::LoadedRecipe& loaded, const estimate::EstimatedPlan& plan,
                                       const std::string& program) {
  std::vector<std::string> all;
  const auto add = [&](const std::string& name) {
    if (name.empty()) return;
    const fs::path given(name), beside = fs::path(loaded.path).parent_path() / given;
    std::error_code error;
    if (auto folder = folder_of(given.is_relative() && fs::exists(beside, error) ? beside : given); !folder.empty())
      all.push_back(std::move(folder));
  };
  if (program.find('/') != std::string::npos) add(program);
  add(loaded.path);
  if (plan.model) all.push_back(folder_of(plan.model->folder));
  const auto& recipe = loaded.recipe;
  config::for_each_set(recipe, [&](const config::DatasetConfig& dataset, const std::string& /*key*/) {
    for (const auto& name : data::source_names(dataset)) add(name);
    const auto text = data::text_choice(dataset);
    if (text.tokenizer.value_or("bytes") != "bytes") add(*text.tokenizer);
    add(text.chat_template.value_or(""));
  });
  add(recipe.checkpoint->checkpoint_dir());
  std::error_code error;
  const auto here = fs::current_path(error).string();
  const auto inside = [](const std::string& path, const std::string& folder) {
    return path == folder || path.starts_with(folder + "/");
  };
  std::ranges::sort(all);
  std::vector<std::string> out;
  for (const auto& each : all)
    if (!each.empty() && !inside(each, here) &&
        std::ranges::none_of(out, [&](const std::string& other) { return inside(each, other); }))
      out.push_back(each);
  return out;
}

JobPlan plan_job(const Options& options) {
  JobPlan out{.loaded = load(options)};
  const auto& loaded = out.loaded;
  if (!loaded.problems.empty()) {
    out.exit = refuse(loaded.problems, loaded, false);
    return out;
  }
  if (options.world_size && *options.world_size % *options.nodes != 0)
    throw wrong_words(fmt::format("{} ranks cannot be divided among {} nodes", *options.world_size, *options.nodes),
                      "give --nodes and --gpus-per-node");
  const auto asked = options.world_size ? std::optional(*options.world_size / *options.nodes) : options.gpus_per_node;
  if (options.gpus_per_node && asked != options.gpus_per_node)
    throw wrong_words(fmt::format("--world-size {} is not {} nodes x {} ranks", *options.world_size, *options.nodes,
                                  *options.gpus_per_node),
                      "leave --world-size out");
  const estimate::PlanRequest look{.ranks_per_node = asked};
  const auto first = estimate::make_plan(loaded, look);
  const bool cuda = first.plan && first.plan->cuda;
  out.nodes = *options.nodes;
  out.per_node = asked.value_or(first.plan && first.plan->estimate ? first.plan->estimate->hardware.per_node
                                : cuda                             ? 8
                                                                   : 1);
  estimate::PlanRequest request = look;
  request.world_size = out.ranks();
  auto result = estimate::make_plan(loaded, request);
  if (!result.plan) {
    if (const auto advice = advice_in_nodes(loaded, look, out.nodes, out.per_node); !advice.empty())
      for (auto& problem : result.problems)
        if (problem.key.starts_with("distributed.") || problem.key == "step_scheduler.global_batch_size")
          problem.help = advice;
    out.exit = refuse(result.problems, loaded, false);
    return out;
  }
  out.plan = std::move(result.plan);
  return out;
}

}  // namespace automodel::app
