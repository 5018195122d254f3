#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "commands.h"
#include "data/open_dataset.h"
#include "data/tokenizer.h"
#include "estimate/estimated_plan.h"
#include "launch/slurm_script.h"
#include "launch/train_command.h"
#include "preflight/preflight.h"
#include "report.h"

namespace automodel::app {
namespace {

namespace fs = std::filesystem;

/// The path by which a job can find this program.
std::string this_program() {
  std::error_code error;
  const auto path = fs::read_symlink("/proc/self/exe", error);
  return error ? "automodel" : path.string();
}

/// A job that is warned as soon as it starts would save, requeue itself and start over forever.
void check_time(const Options& options) {
  if (options.time.empty()) return;
  const auto seconds = launch::slurm_seconds(options.time);
  if (!seconds)
    throw wrong_words(fmt::format("'{}' is not a time that Slurm accepts", options.time),
                      "minutes (240), H:M:S (4:00:00), D-H (1-12), D-H:M:S, or UNLIMITED");
  const auto earliest = options.warning + launch::kSlurmResolution;
  if (*seconds <= earliest)
    throw wrong_words(fmt::format("--time {} leaves no time to train: the job is warned up to {} s before its end",
                                  options.time, earliest),
                      "use a longer --time or a shorter --warning (seconds; Slurm may warn 60 s early)");
}

std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::error_code error;
  if (!file || fs::is_directory(path, error))
    throw Error(Diagnostic{"missing-file"}
                    .says("--preamble '{}' cannot be read", path)
                    .hint("name a readable file of shell commands (module load openmpi)")
                    .at({"command line", 0, 0}));
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The folder of a path: of a glob, the longest existing part before the first wildcard; of a file, its parent.
std::string folder_of(const fs::path& path) {
  std::error_code error;
  fs::path out = fs::absolute(path, error).lexically_normal();
  while (!out.empty() && out != out.root_path() && !fs::is_directory(out, error)) out = out.parent_path();
  return out == out.root_path() ? "" : out.string();
}

/// The folders of everything that a rank accesses by path: program, recipe, model, data, tokenizers, checkpoints.
/// Folders inside another one, or inside the working directory, are omitted.
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
  const auto add_data = [&](const config::DatasetConfig& dataset) {
    for (const auto& name : data::source_names(dataset)) add(name);
    const auto text = data::text_choice(dataset);
    if (text.tokenizer.value_or("bytes") != "bytes") add(*text.tokenizer);
    add(text.chat_template.value_or(""));
  };
  if (recipe.dataset()) add_data(*recipe.dataset());
  if (recipe.validation_dataset()) add_data(*recipe.validation_dataset());
  for (const auto& [name, config] : recipe.validation_datasets()) add_data(config);
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

std::string job_name_of(const std::string& recipe) {
  std::string name = fs::path(recipe).stem().string();
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isgraph(c) == 0; }, '_');
  return name;
}

/// Arguments for #SBATCH lines, which are not parsed by a shell: spaces cannot be quoted, and a line break would start
/// a command.
void check_words(const Options& options) {
  const auto check = [](const char* option, const std::string& value) {
    if (std::ranges::all_of(value, [](unsigned char c) { return std::isgraph(c) != 0; })) return;
    throw wrong_words(fmt::format("{} '{}' has a space or a control character", option, value),
                      "an #SBATCH option takes a single word");
  };
  check("--partition", options.partition);
  check("--account", options.account);
  check("--qos", options.qos);
  check("--job-name", options.job_name);
  check("--logs", options.logs);
  if (!options.mounts.empty() && options.container.empty())
    throw wrong_words("--mount needs a container", "add '--container IMAGE', or leave --mount out");
  if (!options.container.empty() && options.launcher == "mpirun")
    throw wrong_words("--container needs srun (pyxis)", "leave '--launcher mpirun' out");
  if (!options.container.empty() && options.max_restarts.value_or(0) > 0)
    throw wrong_words("--max-restarts starts ranks from the job's script, which runs outside the container",
                      "leave --max-restarts out (a job that ends is requeued), or leave --container out");
  if (options.min_ranks && options.launcher == "mpirun")
    throw wrong_words("--min-ranks needs srun to find the remaining nodes", "leave '--launcher mpirun' out");
}

}  // namespace

/// The script is printed only if a plan can be made: a job should not wait in a queue only to fail.
int run_slurm(const Options& options) {
  check_time(options);
  check_words(options);
  const auto loaded = load(options);
  if (!loaded.problems.empty()) return refuse(loaded.problems, loaded, false);
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
  const int per_node = asked.value_or(first.plan && first.plan->estimate ? first.plan->estimate->hardware.per_node
                                      : cuda                             ? 8
                                                                         : 1);
  estimate::PlanRequest request = look;
  request.world_size = *options.nodes * per_node;
  auto result = estimate::make_plan(loaded, request);
  if (!result.plan) {
    if (const auto advice = advice_in_nodes(loaded, look, *options.nodes, per_node); !advice.empty())
      for (auto& problem : result.problems)
        if (problem.key.starts_with("distributed.") || problem.key == "step_scheduler.global_batch_size")
          problem.help = advice;
    return refuse(result.problems, loaded, false);
  }
  err(to_text(result.plan->warnings, "warning"));
  // Other nodes may see other folders, but the most common mistake is a path that is wrong everywhere.
  if (options.container.empty()) err(to_text(preflight::check_files(loaded, *result.plan), "warning"));
  std::error_code error;
  const auto program = options.program.empty() ? this_program() : options.program;
  const auto& faults = loaded.recipe.fault_tolerance();
  const int restarts =
      options.container.empty() ? options.max_restarts.value_or(faults.max_restarts()) : 0;  // no supervisor inside
  const bool srun = options.launcher == "srun";
  const auto least = options.min_ranks ? options.min_ranks : srun ? faults.min_ranks() : std::nullopt;
  if (restarts > 0 && !options.logs.empty())
    throw wrong_words("with restarts all output is in the job's own log, which says why ranks ended",
                      "leave --logs out");
  if (options.min_ranks && restarts == 0) throw wrong_words("--min-ranks needs restarts", "add '--max-restarts N'");
  if (least && restarts > 0 && *least > request.world_size.value())
    throw wrong_words(fmt::format("--min-ranks {} is more than the job's {} ranks", *least, *request.world_size),
                      "at most nodes x ranks per node");
  auto mounts = options.mounts;
  if (!options.container.empty())
    for (auto& folder : named_folders(loaded, *result.plan, program)) mounts.push_back(std::move(folder));
  launch::SlurmJob job{.name = options.job_name.empty() ? job_name_of(options.recipe) : options.job_name,
                       .nodes = *options.nodes,
                       .ranks_per_node = per_node,
                       .gpus_per_node = cuda ? per_node : 0,
                       .cpus_per_rank = options.cpus_per_rank.value_or(0),
                       .time = options.time,
                       .partition = options.partition,
                       .account = options.account,
                       .qos = options.qos,
                       .container = options.container,
                       .mounts = std::move(mounts),
                       .preamble = options.preamble.empty() ? "" : file_text(options.preamble),
                       .logs = options.logs,
                       .warning_seconds = options.warning,
                       .launcher = srun ? launch::SlurmLauncher::kSrun : launch::SlurmLauncher::kMpirun,
                       .max_restarts = restarts,
                       .min_ranks = restarts > 0 ? least : std::nullopt,
                       .program = program,
                       .recipe = fs::absolute(options.recipe, error).lexically_normal().string(),
                       .overrides = options.overrides};
  out(launch::slurm_script(job));
  return code(ExitCode::kOk);
}

}  // namespace automodel::app
