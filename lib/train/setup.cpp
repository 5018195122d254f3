#include "train/setup.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include <ATen/ops/tensor.h>

#include "base/nvidia_driver.h"
#include "base/processor.h"
#include "config/optimizer_basics.h"
#include "data/open_dataset.h"
#include "data/packed_dataset.h"
#include "estimate/estimated_plan.h"
#include "optim/optimizer.h"
#include "plan/vision_choice.h"
#include "train/feature_cache.h"
#include "train/world_settings.h"

namespace automodel::train {
namespace {

namespace fs = std::filesystem;

/// Tokens of the longest rows, once the data is open.
struct Lengths {
  std::optional<std::int64_t> training = {}, validation = {};
};

estimate::EstimatedPlan make_plan(const config::LoadedRecipe& loaded, comm::World& world, const Lengths& lengths,
                                  const std::optional<plan::PictureFacts>& pictures = {}) {
  // The machine may decide how stages are balanced, so all ranks use rank 0's.
  const auto calibration =
      estimate::parse_calibration(world.broadcast_text(world.rank() == 0 ? estimate::calibration_text() : ""));
  const auto unit = std::to_string(static_cast<int>(processor().bfloat16));
  const auto gpu = world.broadcast_text(world.rank() == 0 ? nvidia_gpu() : "");
  const auto first = static_cast<BFloat16Unit>(std::stoi(world.broadcast_text(world.rank() == 0 ? unit : "")));
  auto result = estimate::make_plan(loaded, {.world_size = world.size(),
                                             .training = true,
                                             .cuda_available = world.device().is_cuda(),
                                             .longest_row = lengths.training,
                                             .longest_validation_row = lengths.validation,
                                             .features = {pictures, {}},
                                             .ranks_per_node = world.local_size(),
                                             .calibration = calibration ? &*calibration : nullptr,
                                             .bfloat16 = first,
                                             .gpu = gpu});
  if (result.plan && !loaded.recipe.dataset())
    result.problems.add("missing-key", "dataset")
        .says("the recipe has no dataset")
        .hint("add 'dataset:' with a _target_");
  agree(world, loaded, std::move(result.problems));
  // All ranks must have the same plan, or their communication would not match.
  const auto mine = static_cast<std::int64_t>(plan::fingerprint(*result.plan) >> 1);
  auto both = at::tensor({mine, -mine}, at::TensorOptions().dtype(at::kLong));
  world.control().all_reduce(both, comm::ReduceOp::kMax)->wait();
  if (both.const_data_ptr<std::int64_t>()[0] != mine || both.const_data_ptr<std::int64_t>()[1] != -mine)
    throw Error(Diagnostic{"plans-differ"}
                    .says("ranks made different plans of the same recipe")
                    .hint("the program or the files that the recipe names differ between hosts"));
  return std::move(*result.plan);
}

/// Opens datasets and creates their loaders.
class DataOpening {
 public:
  DataOpening(Setup& setup, Diagnostics& problems) : setup_(setup), problems_(problems) {}

  std::unique_ptr<data::Loader> open(const config::DatasetConfig& config, const config::DataloaderConfig& loader,
                                     const std::string& key, const std::string& loader_key, bool training) {
    std::shared_ptr<const data::Dataset> dataset =
        data::open_dataset(config,
                           {.recipe_folder = fs::path(setup_.loaded.path).parent_path(),
                            .key = key,
                            .vocab_size = setup_.plan.model->spec.vocab,
                            .max_length = setup_.plan.model->spec.position_limit(),
                            .context_length = setup_.plan.model->spec.max_positions,
                            .classes = setup_.plan.model->spec.classes,
                            .pad_token = pad_token(),
                            .pictures = plan::picture_tokens(*setup_.plan.model),
                            .seed = setup_.seed(),
                            .shuffle = loader.shuffle().value_or(training),
                            .quiet = setup_.world.rank() != 0,
                            .model_folder = setup_.plan.model->folder},
                           problems_);
    const auto& packing = setup_.recipe().packed_sequence();
    const auto& mesh = setup_.plan.mesh;
    if (dataset && training && packing.packed_sequence_size() > 0)
      dataset = data::pack(std::move(dataset), packing, mesh.size(mesh::Axis::kCp), "packed_sequence", problems_);
    if (!dataset) return nullptr;
    data::LoaderOptions options{.training = training,
                                .global_batch_size = setup_.plan.batch.global,
                                .local_batch_size = setup_.plan.batch.local,
                                .dp_size = mesh.size(mesh::kDp),
                                .dp_rank = mesh.position(setup_.world.rank(), mesh::kDp),
                                .seed = setup_.seed(),
                                .multiple = setup_.plan.batch.multiple};
    options.ignore_index = setup_.plan.execution.loss.ignore_label;
    options.key = loader_key;
    return data::Loader::make(std::move(dataset), loader, options, problems_);
  }

 private:
  /// The model's, else the one that pads the rows of training, which is saved as the model's.
  std::optional<int> pad_token() const {
    const auto& spec = setup_.plan.model->spec;
    if (spec.pad_token || spec.classes == 0 || !setup_.loader) return spec.pad_token;
    return setup_.loader->dataset().padding().id;
  }

  Setup& setup_;
  Diagnostics& problems_;
};

}  // namespace

void agree(comm::World& world, const config::LoadedRecipe& loaded, Diagnostics problems) {
  locate(problems, loaded.origins);
  auto count = at::tensor({static_cast<double>(problems.size())}, at::TensorOptions().dtype(at::kDouble));
  world.control().all_reduce(count, comm::ReduceOp::kMax)->wait();
  if (!problems.empty()) throw Error(std::move(problems));
  // Another rank has problems and ends the job.
  if (count.item<double>() > 0) world.control().barrier()->wait();
}

Setup::Setup(const config::LoadedRecipe& recipe_text, comm::World& all)
    : loaded(recipe_text),
      world(all),
      device_note(use_settings(all, recipe_text.recipe)),
      plan(make_plan(recipe_text, all, {})) {
  Diagnostics problems;
  DataOpening opening(*this, problems);
  loader = opening.open(*recipe().dataset(), recipe().dataloader(), "dataset", "dataloader", true);
  const auto add_validation = [&](const std::string& name, const config::DatasetConfig& config,
                                  const std::string& key) {
    if (auto made = opening.open(config, recipe().validation_dataloader(), key, "validation_dataloader", false))
      validation.emplace_back(name, std::move(made));
  };
  if (recipe().validation_dataset()) add_validation("default", *recipe().validation_dataset(), "validation_dataset");
  for (const auto& [name, config] : recipe().validation_datasets())
    add_validation(name, config, "validation_dataset_" + name);
  if (loader)
    steps = StepScheduler::make(recipe().step_scheduler(), plan.mesh.size(mesh::kDp),
                                loader->sampler().runs_per_epoch(), problems);
  const auto basics = config::basics_of(recipe().optimizer());
  if (steps)
    rates =
        plan::make_lr_schedule(recipe().lr_scheduler(), basics.lr, basics.weight_decay, steps->total_steps(), problems);
  agree(world, loaded, std::move(problems));
  Lengths lengths;
  if (plan.batch.length == 0) {
    lengths.training = loader->dataset().longest();
    for (const auto& [name, set] : validation)
      lengths.validation = std::max(lengths.validation.value_or(0), set->dataset().longest());
  }
  std::optional<plan::PictureFacts> pictures;
  if (plan.features) pictures = picture_facts(*this);
  if (lengths.training || pictures) plan = make_plan(loaded, world, lengths, pictures);
  if (plan.features && plan.features->cached) {
    loader->leave_out_pixels();
    for (const auto& [name, set] : validation) set->leave_out_pixels();
  }
  if (device_note) plan.warnings.push_back(*device_note);
}

}  // namespace automodel::train
