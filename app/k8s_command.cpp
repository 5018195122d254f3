#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/hub.h"
#include "commands.h"
#include "config/yaml_text.h"
#include "estimate/state_bytes.h"
#include "job_plan.h"
#include "launch/k8s_manifest.h"
#include "report.h"

namespace automodel::app {
namespace {

namespace fs = std::filesystem;

/// Kubernetes keeps no larger ConfigMap than 1 MiB; the scripts in it take a little.
constexpr std::size_t kMostRecipe = 1'000'000;

/// Seconds for the step that runs, a validation pass and the checkpoint, which a rank is taken to write at 100 MB/s.
int grace_of(const JobPlan& planned) {
  constexpr double kRate = 100e6, kLeast = 120, kStep = 60, kMost = 1e6;
  const double writing = estimate::saved_bytes(*planned.plan) / (kRate * planned.ranks());
  return static_cast<int>(std::min(kMost, std::max(kLeast, std::ceil(kStep + writing))));
}

/// NAME=PATH of --volume.
std::pair<std::string, std::string> volume_of(const std::string& text) {
  const auto equals = text.find('=');
  std::string name = text.substr(0, equals), path = equals == std::string::npos ? "" : text.substr(equals + 1);
  const bool absolute = path.starts_with("/");
  path = fs::path(path).lexically_normal().string();
  while (path.ends_with('/')) path.pop_back();
  if (!launch::is_k8s_subdomain(name) || !absolute || path.empty() || path.find(':') != std::string::npos ||
      path.find_first_of("\n\t") != std::string::npos || !config::is_yaml_literal(path))
    throw wrong_words(fmt::format("--volume '{}' is not NAME=PATH", text),
                      "the name of a persistent volume claim and where it appears: '--volume data=/data'");
  return {std::move(name), std::move(path)};
}

bool holds(const std::string& folder, const std::string& path) {
  return path == folder || path.starts_with(folder.ends_with('/') ? folder : folder + "/");
}

std::vector<std::pair<std::string, std::string>> volumes_of(const Options& options) {
  std::vector<std::pair<std::string, std::string>> out;
  std::set<std::string> paths{"/etc/automodel", "/etc/automodel-ssh", "/dev/shm", "/etc/mpi"};
  for (const auto& text : options.volumes) {
    out.push_back(volume_of(text));
    if (!paths.insert(out.back().second).second)
      throw wrong_words(fmt::format("'{}' is the place of two volumes", out.back().second),
                        "give each --volume a folder of its own");
  }
  return out;
}

launch::K8sKind kind_of(const std::string& name) {
  if (name == "jobset") return launch::K8sKind::kJobSet;
  return name == "trainjob" ? launch::K8sKind::kTrainJob : launch::K8sKind::kMpiJob;
}

void check_words(const Options& options) {
  if (!options.space.empty() && !launch::is_k8s_name(options.space))
    throw wrong_words(fmt::format("--namespace '{}' is not a name that Kubernetes accepts", options.space),
                      "lower-case letters, digits and hyphens, at most 63");
  if (options.image.empty() || std::ranges::any_of(options.image, [](unsigned char c) { return std::isgraph(c) == 0; }))
    throw wrong_words(fmt::format("--image '{}' is not the name of an image", options.image),
                      "a word such as registry.example.com/automodel:1.0");
}

/// What the pods lack that this machine has.
void warn(const JobPlan& planned, const launch::K8sJob& job) {
  const auto say = [](const std::string& text) { err("note: " + text + "\n"); };
  if (job.volumes.empty())
    say("no volume: data and checkpoints are lost with the pods; '--volume NAME=PATH' mounts a persistent volume "
        "claim");
  std::error_code error;
  const auto own =
      fs::absolute(planned.loaded.path, error).lexically_normal().parent_path().string();  // in the ConfigMap
  for (const auto& folder : named_folders(planned.loaded, *planned.plan, ""))
    if (folder != own &&
        std::ranges::none_of(job.volumes, [&](const auto& volume) { return holds(volume.second, folder); }))
      say(fmt::format("no volume holds '{0}', which the recipe names: '--volume NAME={0}'", folder));
  if (planned.loaded.text.find("${") != std::string::npos)
    say("the recipe reads environment variables, which the pods do not have: give the values as overrides");
  if (job.kind == launch::K8sKind::kJobSet)
    say(
        fmt::format("the pods need a key for ssh, once: 'ssh-keygen -q -t ed25519 -N \"\" -f key && kubectl create "
                    "secret generic {}-ssh --from-file=ssh-privatekey=key --from-file=ssh-publickey=key.pub{}'",
                    job.name, job.space.empty() ? "" : " -n " + job.space));
}

}  // namespace

int run_k8s(const Options& options) {
  check_words(options);
  launch::K8sJob job{.kind = kind_of(options.kind),
                     .name = launch::k8s_name(fs::path(options.recipe).stem().string()),
                     .space = options.space,
                     .image = options.image,
                     .volumes = volumes_of(options)};
  const auto planned = plan_job(options);
  if (!planned.plan) return planned.exit;
  err(to_text(planned.plan->warnings, "warning"));
  if (planned.loaded.text.size() > kMostRecipe)
    throw wrong_words(fmt::format("the recipe has {} bytes, and a ConfigMap holds 1 MiB", planned.loaded.text.size()),
                      "move long texts, such as chat templates, into files on a volume");
  job.nodes = planned.nodes;
  job.ranks_per_node = planned.per_node;
  job.gpus_per_node = planned.plan->cuda ? planned.per_node : 0;
  job.max_restarts = options.max_restarts.value_or(planned.loaded.recipe.fault_tolerance->max_restarts());
  job.grace_seconds = grace_of(planned);
  std::error_code error;
  const auto here = fs::current_path(error).string();
  if (!job.volumes.empty())
    job.folder = std::ranges::any_of(job.volumes, [&](const auto& volume) { return holds(volume.second, here); })
                     ? here
                     : job.volumes.front().second;
  for (const char* name : kHubVariables)
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0')
      job.variables.emplace_back(name, value);
  job.recipe = planned.loaded.text;
  job.overrides = options.overrides;
  warn(planned, job);
  out(launch::k8s_manifest(job));
  return code(ExitCode::kOk);
}

}  // namespace automodel::app
