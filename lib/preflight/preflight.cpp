#include "preflight/preflight.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/find_file.h"
#include "base/hub.h"
#include "checkpoint/format/memory_folder.h"
#include "checkpoint/format/root_folder.h"
#include "checkpoint/format/tensor_folder.h"
#include "checkpoint/format/weight_names.h"
#include "data/open_dataset.h"
#include "data/source_files.h"
#include "metrics/watcher.h"
#include "plan/vision_choice.h"

namespace automodel::preflight {
namespace {

namespace fs = std::filesystem;

/// Data sets up to this size are read as the run would read them, in about a second; for larger ones only the files
/// that reading depends on are checked.
constexpr std::uint64_t kReadBytes = std::uint64_t{4} << 20;

/// Total size of the files that the names resolve to: files, folders, globs and repositories in the hub cache. Counting
/// stops soon after the limit.
std::uint64_t size_of(const std::vector<std::string>& names, const fs::path& folder) {
  std::uint64_t bytes = 0;
  std::error_code error;
  std::vector<std::string> globs;
  const auto add = [&](const fs::path& file) {
    std::error_code none;
    const auto size = fs::file_size(file, none);
    if (!none) bytes += size;
  };
  for (const auto& name : names) {
    const auto path = find_beside(name, folder);
    const auto snapshot = path ? fs::path() : find_snapshot(HubKind::kDataset, name, std::nullopt);
    if (!path && snapshot.empty()) {
      globs.push_back(name);
    } else if (path && !fs::is_directory(*path, error)) {
      add(*path);
    } else {
      // What may not be read is not counted: reading it says so, or leaves it out.
      constexpr auto kSkip = fs::directory_options::skip_permission_denied;
      for (fs::recursive_directory_iterator each(path.value_or(snapshot), kSkip, error), end; !error && each != end;
           each.increment(error)) {
        if (bytes > kReadBytes) return bytes;
        add(each->path());
      }
    }
  }
  if (globs.empty()) return bytes;
  Diagnostics ignored;
  for (const auto& file : data::find_files({globs}, data::Wanted::kText, folder, "", ignored).files)
    bytes += static_cast<std::uint64_t>(file.size);
  return bytes;
}

class Checks {
 public:
  Checks(const config::LoadedRecipe& recipe, const estimate::EstimatedPlan& plan) : recipe_(recipe), plan_(plan) {}

  Diagnostics run() {
    const auto noting = [this](const auto& check, const std::string& key = "") {
      try {
        check();
      } catch (const Error& error) {
        for (auto problem : error.problems()) {
          if (problem.key.empty()) problem.key = key;
          problems_.push_back(std::move(problem));
        }
      }
    };
    config::for_each_set(recipe_.recipe, [&](const config::DatasetConfig& section, const std::string& key) {
      noting([&] { check_data(section, key); }, key);
    });
    for (const auto check :
         {&Checks::check_all_weights, &Checks::check_folder, &Checks::check_watcher, &Checks::check_memory})
      noting([&] { (this->*check)(); });
    locate(problems_, recipe_.origins);
    return std::move(problems_);
  }

  std::optional<std::int64_t> longest_row() {
    const auto& section = recipe_.recipe.dataset();
    if (!section || !is_quick(data::source_names(*section))) return std::nullopt;
    try {
      const auto dataset = open(*section, "dataset");
      return dataset ? std::optional(dataset->longest()) : std::nullopt;
    } catch (const Error&) {
      return std::nullopt;  // run() says why
    }
  }

 private:
  fs::path folder() const { return recipe_.folder(); }

  data::DatasetContext context(const std::string& key) const {
    data::DatasetContext out{.recipe_folder = folder(), .key = key, .quiet = true};
    if (plan_.model) {
      out.vocab_size = plan_.model->spec.vocab;
      out.max_length = plan_.model->spec.position_limit();
      out.context_length = plan_.model->spec.max_positions;
      out.classes = plan_.model->spec.classes;
      out.pad_token = plan_.model->spec.pad_token;
      out.model_folder = plan_.model->folder;
      out.pictures = plan::picture_tokens(*plan_.model);
    }
    out.seed = static_cast<std::uint64_t>(recipe_.seed());
    return out;
  }

  std::unique_ptr<data::Dataset> open(config::DatasetConfig config, const std::string& key, bool rows = true) {
    config::each_part(config, [](auto& section) {
      if constexpr (requires { section.cache = false; }) section.cache = false;  // must leave no files
    });
    auto own = context(key);
    own.rows = rows;
    return data::open_dataset(config, own, problems_);
  }

  void check_data(const config::DatasetConfig& config, const std::string& key) {
    bool foreign = false;
    config::each_part(config, [&](const auto& section) {
      foreign = foreign || requires {
        section.kPlanOnly;
      };
    });
    if (foreign) return;  // the plan reports it
    open(config, key, is_quick(data::source_names(config)));
  }

  /// Whether opening is quick: small files, no files, or names that cannot be resolved.
  bool is_quick(const std::vector<std::string>& names) const {
    if (const auto bytes = size_of(names, folder()); bytes > 0) return bytes <= kReadBytes;
    return std::ranges::all_of(
        names, [](const auto& name) { return find_snapshot(HubKind::kDataset, name, std::nullopt).empty(); });
  }

  /// Checks names and shapes only, not tensor data.
  void check_all_weights() {
    if (plan_.model) check_weights(*plan_.model);
    if (plan_.teacher) check_weights(*plan_.teacher->model);
  }
  void check_weights(const plan::ModelChoice& model) {
    if (!model.load_weights) return;
    if (!model.spec.plan_only.empty()) return;
    const auto opened = checkpoint::TensorFolder::open(model.folder, "model", problems_);
    if (opened)
      checkpoint::find_weights(*opened, model.spec, model.layout, problems_, checkpoint::WantedWeights::kBase);
  }

  /// The checkpoint folder must be writable or creatable, and a requested checkpoint must exist.
  void check_folder() {
    const auto& section = recipe_.recipe.checkpoint();
    std::error_code error;
    const auto nearest = nearest_folder(section.checkpoint_dir());
    if (!fs::is_directory(nearest, error) || access(nearest.c_str(), W_OK | X_OK) != 0)
      problems_.add("cannot-write", "checkpoint.checkpoint_dir")
          .says("the folder '{}' cannot be written to: '{}' {}", section.checkpoint_dir(), nearest.native(),
                fs::is_directory(nearest, error) ? "is not writable" : "is not a folder")
          .hint("choose another checkpoint.checkpoint_dir");
    const auto& from = section.restore_from();
    if (!from) return;
    const fs::path root = section.checkpoint_dir();
    if (*from == checkpoint::kLatest ? !checkpoint::newest_checkpoint(root).empty()
                                     : fs::exists(root / *from, error) || find_beside(*from, folder()))
      return;
    problems_.add("checkpoint-missing", "checkpoint.restore_from")
        .says("there is no checkpoint '{}' to restore from", *from)
        .hint("give a folder like epoch_0_step_99, LATEST, or nothing for the newest one");
  }

  void check_watcher() {
    const auto& command = recipe_.recipe.logging->command();
    if (!command) return;
    metrics::watcher_words(*command, folder());
  }

  /// There must be room for the in-memory copies of this host's ranks.
  void check_memory() {
    std::error_code error;
    const bool elsewhere = plan_.cuda && !fs::exists("/proc/driver/nvidia/version", error);  // for other hosts
    if (!plan_.estimate || !plan_.estimate->copies || elsewhere) return;
    const char* key = "checkpoint.memory_every_steps";
    const auto folder = checkpoint::memory_folder(recipe_.recipe.checkpoint->checkpoint_dir());
    const auto room = checkpoint::memory_room(folder);
    const double most = plan_.estimate->copies->most();
    if (!room)
      problems_.add("no-memory-folder", key)
          .says("'{}' cannot be used as your folder in memory", folder.native())
          .hint(
              "copies need a file system in memory that can be written to; AUTOMODEL_MEMORY_DIR names one "
              "other than /dev/shm");
    else if (most > static_cast<double>(*room))
      problems_.add("memory-copies-too-large", key)
          .says("a host keeps two copies of {}, and '{}' here has room for {}",
                format_bytes(plan_.estimate->copies->host), folder.parent_path().native(),
                format_bytes(static_cast<double>(*room)))
          .hint("enlarge it (mount -o remount,size=...), use more hosts, or remove checkpoint.memory_every_steps");
  }

  const config::LoadedRecipe& recipe_;
  const estimate::EstimatedPlan& plan_;
  Diagnostics problems_ = {};
};

}  // namespace

Diagnostics check_files(const config::LoadedRecipe& recipe, const estimate::EstimatedPlan& plan) {
  return Checks(recipe, plan).run();
}

std::optional<std::int64_t> longest_row(const config::LoadedRecipe& recipe, const estimate::EstimatedPlan& plan) {
  return Checks(recipe, plan).longest_row();
}

}  // namespace automodel::preflight
