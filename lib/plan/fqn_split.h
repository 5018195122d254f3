// Names of the modules of each pipeline stage, layers spread evenly.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"

namespace automodel::plan {

/// Module names of every stage.
using StageFqns = std::vector<std::vector<std::string>>;

/// Modules of multimodal models that belong before the decoder, by the names that Hugging Face models give them.
inline constexpr std::array<std::string_view, 15> kEncoderNames = {"vision_tower",          "visual",
                                                                   "vision_model",          "image_encoder",
                                                                   "vision_encoder",        "embed_vision",
                                                                   "audio_tower",           "audio_encoder",
                                                                   "audio_model",           "mm_projector",
                                                                   "multi_modal_projector", "multimodal_projector",
                                                                   "vision_projector",      "vit_large_projector",
                                                                   "audio_projector"};

/// Layers [begin, end) of one stage.
struct LayerRange {
  int begin = 0;
  int end = 0;
  int size() const { return end - begin; }
  bool operator==(const LayerRange&) const = default;
};
/// `layers` in runs that differ by at most one; the first stages get the longer ones.
LayerRange even_layers(int stage, int stages, int layers);

struct FqnSplitRequest {
  int stages = 1;
  int layers = 1;
  bool embeddings = true;
  bool head = true;
  bool rotary = true;
  bool encoders = true;                 ///< all kEncoderNames under `prefix`, whether the model has them or not
  std::vector<std::string> extra = {};  ///< further modules of the first stage
  std::string prefix = "model.";
  std::string head_fqn = "lm_head";
};

/// NeMo AutoModel's generate_hf_model_fqn_per_model_part: in order [embed_tokens, encoders, extra] on the first stage,
/// layers, [norm, head] on the last, rotary_emb on every stage. Problems: bad-value (fewer than one stage),
/// too-many-stages (more stages than layers).
std::optional<StageFqns> generate_hf_model_fqn_per_model_part(const FqnSplitRequest& request, Diagnostics& problems);

/// Appends what is wrong with cutting `layers` into `stages` of `stages_per_rank` a rank, advising sizes that work.
void check_stage_count(int stages, int layers, int stages_per_rank, Diagnostics& problems);

}  // namespace automodel::plan
