// The names that matter to a pipeline: what stands before, in and after the layers of a model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "arch/layout.h"
#include "arch/modules.h"
#include "base/diagnostic.h"
#include "plan/fqn_split.h"

namespace automodel::plan {

struct ModelNames {
  std::vector<std::string> embeddings = {};  ///< of the first stage
  std::vector<std::string> encoders = {};    ///< of the first stage, after the embeddings
  std::string layers = {};                   ///< FQN of the list of layers
  int layer_count = 0;
  std::string norm = {};    ///< of the last stage; empty where the model has none
  std::string head = {};    ///< of the last stage, after the norm; empty where the model has none
  std::string rotary = {};  ///< of every stage; empty where the model has none
};

ModelNames names_of(const arch::Layout& layout);

struct DiscoverOptions {
  std::string head = {};                ///< FQN of a head other than lm_head
  std::vector<std::string> extra = {};  ///< further modules of the first stage
};

/// Finds the names in a tree of a Hugging Face model by NeMo AutoModel's rules: the decoder stands under `model.`,
/// under the first of language_model, text_model, text_decoder in it, and there again under `model.` where that exists;
/// encoders (kEncoderNames) stand beside it; lm_head stands at the top or beside the decoder. GPT-2's names
/// (transformer.wte, wpe, h, ln_f) are known too. Marks the layers of `tree`. Problems: `no-layers`, `unknown-module`
/// (of options, with a suggestion), `unplaced-module` (has parameters, but no rule says in which stage: name it in
/// module_fqns_per_model_part).
std::optional<ModelNames> discover_names(arch::ModuleTree& tree, const DiscoverOptions& options, Diagnostics& problems);

/// The modules of each of `stages` stages, layers spread evenly, in the order of generate_hf_model_fqn_per_model_part;
/// only modules that the model has. `stages_per_rank` serves the advice of a too-many-stages problem.
std::optional<StageFqns> stage_fqns(const ModelNames& names, int stages, int stages_per_rank, Diagnostics& problems);

/// The same for given runs of layers, one for each stage.
StageFqns stage_fqns(const ModelNames& names, const std::vector<LayerRange>& ranges);

}  // namespace automodel::plan
