// Models with vision towers and the rows of their recorded runs (test/golden/vlm).
#pragma once

#include <array>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include <ATen/core/Tensor.h>

#include "comm/world.h"
#include "data/batch.h"
#include "parity/parity.h"
#include "train/saved_runs.h"
#include "train/setup.h"
#include "train/start_point.h"
#include "train/trainer.h"

namespace automodel::test {

using Json = nlohmann::json;

/// The folder of the recorded runs.
const std::string& vision_folder();
/// A file in it.
Json read_json(const std::string& name);

/// Tolerances for float32, as recorded runs differ among themselves times ten: losses, and norms in relation to theirs.
constexpr double kLoss = 1e-4, kNorm = 2e-4;
void check_near(const std::string& what, double ours, double theirs, double tolerance);

/// How the rows of a recorded batch are run.
enum class RunRows { kTogether, kApart, kPacked };  ///< kApart: each is an accumulation step, with its own length

struct Run {
  std::string name = "adamw";  ///< of the recorded run
  std::string sections = "";
  std::string mesh = "strategy: ddp";  ///< the keys of `distributed`
  std::string family = "llava";
  std::string model = vision_folder() + "/" + family;
  int data_ranks = 0;  ///< that have different rows; 0: all
  RunRows rows = RunRows::kTogether;
  bool cached = false;  ///< the outputs of a frozen tower are
  std::string type = "float32";
};
/// With the tower frozen.
Run frozen(Run run);
/// With tower and projector frozen, of families that have both.
Run frozen_whole(Run run);
/// With the outputs of what is frozen of the tower computed once.
Run cached(Run run);
/// With adapters of the decoder, all else frozen.
Run adapted(Run run);
/// With adapters of tower and projector; with DoRA, of the decoder's queries too.
Run tower_adapted(Run run, bool dora = false);
inline constexpr std::array kTowerAdapted = {"llava",        "gemma3",     "gemma4",   "mistral3",
                                             "muse_glimmer", "qwen2_5_vl", "qwen3_vl", "step3p7"};
inline constexpr std::array kFamilies = {"gemma3",       "gemma4",      "gemma4_moe", "mistral3",
                                         "muse_glimmer", "qwen2_5_vl",  "qwen3_vl",   "qwen3_vl_moe",
                                         "qwen3_5",      "qwen3_5_moe", "step3p7",    "minimax_m3_vl"};

std::string recipe_of(const Run& run, int ranks, const fs::path& root, bool saves);
/// The name in memory, transformers' and ours, of a weight as transformers writes it.
std::string own_name(const std::string& name);

/// A model with the recorded weights.
class Session {
 public:
  Session(comm::World& world, const Run& run);
  train::Runtime& runtime() { return runtime_; }
  train::Trainer& trainer() { return trainer_; }
  /// This rank's rows of a recorded batch, by accumulation steps.
  std::vector<data::Batch> batches_of(const Json& rows, std::int32_t pad = 397, RunRows how = RunRows::kTogether) const;
  /// The data set's rows of a step.
  data::Batch rows(std::int64_t step);
  /// The loss of the data set's rows.
  double evaluated();
  /// The loss of the validation set.
  double validated();
  /// A step on rows of the data set.
  train::StepResult step(std::int64_t step);

 private:
  SharedFolder folder_;
  config::LoadedRecipe loaded_;
  train::Setup setup_;
  train::StartPoint start_;
  train::Runtime runtime_;
  train::Trainer trainer_;
};

/// Ten steps, and each batch's loss after them, against the recorded run.
void check_run(comm::World& world, const Run& run);
/// Text behind pictures, with cached keys and without: the same tokens, and the same logits behind a placeholder that
/// the model itself wrote.
void check_generation(comm::World& world, const Run& run);
/// Two steps of a student that begins as its teacher: first they agree, pictures included, then they do not.
void check_teacher(comm::World& world, Run run);

}  // namespace automodel::test
