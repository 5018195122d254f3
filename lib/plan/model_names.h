// Module names needed for a pipeline split: before, in and after the layers of a model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "arch/towers.h"
#include "base/diagnostic.h"
#include "plan/fqn_split.h"
#include "plan/model_choice.h"
#include "plan/model_split.h"

namespace automodel::plan {

struct ModelNames {
  std::vector<std::string> embeddings = {};  ///< of the first stage
  std::vector<std::string> encoders = {};    ///< of the first stage, after the embeddings
  std::string layers = {};                   ///< FQN of the layer list
  int layer_count = 0;
  std::string norm = {};    ///< of the last stage; empty if the model has none
  std::string head = {};    ///< of the last stage, after the norm; empty if the model has none
  std::string rotary = {};  ///< of every stage; empty if the model has none
};

/// Names of a model. Its towers are the encoders, in the order of NeMo AutoModel's lists.
ModelNames names_of(const ModelChoice& model);

/// The towers of a multimodal model with known names, and those that one stage has: none whose outputs are cached.
/// Empty for a language model.
std::vector<arch::Tower> towers_of(const ModelChoice& model);
std::vector<arch::Tower> towers_of(const ModelChoice& model, const StagePart& part);

/// The modules of each stage with layers spread evenly, in the order of generate_hf_model_fqn_per_model_part and
/// limited to modules that the model has. `stages_per_rank` is only used for the advice if there are too many stages.
std::optional<StageFqns> stage_fqns(const ModelNames& names, int stages, int stages_per_rank, Diagnostics& problems);

/// The same for given layer ranges, one per stage.
StageFqns stage_fqns(const ModelNames& names, const std::vector<LayerRange>& ranges);

}  // namespace automodel::plan
