// Our split of a model that is described by the arguments of NeMo AutoModel's generate_hf_model_fqn_per_model_part,
// which a recipe does not have.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "golden_names.h"
#include "plan/model_names.h"

namespace automodel::plan {

struct FqnSplitRequest {
  int stages = 1;
  int layers = 1;
  bool embeddings = true;
  bool head = true;
  bool rotary = true;
  bool encoders = true;
  std::vector<std::string> extra = {};  ///< further modules of the first stage
  std::string prefix = "model.";
  std::string head_fqn = "lm_head";
};

inline std::optional<StageFqns> nemo_stage_fqns(const FqnSplitRequest& request, Diagnostics& problems) {
  ModelNames names{.layers = request.prefix + "layers",
                   .layer_count = request.layers,
                   .norm = request.prefix + "norm",
                   .head = request.head ? request.head_fqn : "",
                   .rotary = request.rotary ? request.prefix + "rotary_emb" : ""};
  if (request.embeddings) names.embeddings = {request.prefix + "embed_tokens"};
  if (request.encoders)
    for (const auto name : golden::kEncoderNames) names.encoders.push_back(request.prefix + std::string(name));
  names.encoders.insert(names.encoders.end(), request.extra.begin(), request.extra.end());
  return stage_fqns(names, request.stages, 1, problems);
}

}  // namespace automodel::plan
