// Megatron Core's ways of placing layers on pipeline ranks: even, uneven first and last ranks, counting embedding or
// loss as a layer, and layout strings such as "Et*3|(tt|)*29,m|L".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "plan/fqn_split.h"
#include "plan/model_names.h"

namespace automodel::plan {

enum class LayerKind : std::uint8_t { kEmbedding, kDecoder, kMtp, kLoss };
/// "embedding", "decoder", "mtp", "loss".
std::string_view name_of(LayerKind kind);
/// 'E', 't', 'm', 'L': the letters of a layout.
char letter_of(LayerKind kind);
using LayerKinds = std::vector<std::vector<LayerKind>>;  ///< by stage, in pipeline order

/// Megatron's arguments. A layout may only be combined with `layers`, `pp_size` and `mtp_layers`; uneven ends exclude
/// the account_for switches.
struct PipelineLayoutRequest {
  int layers = 1;
  int pp_size = 1;
  std::optional<int> chunks = {};             ///< virtual_pipeline_model_parallel_size: stages per rank
  std::optional<int> first_rank_layers = {};  ///< num_layers_in_first_pipeline_stage
  std::optional<int> last_rank_layers = {};   ///< num_layers_in_last_pipeline_stage
  bool account_for_embedding = false;
  bool account_for_loss = false;
  std::optional<LayerKinds> layout = {};
  int mtp_layers = 0;
};

/// One stage: chunk `chunk` of rank `pp_rank`. Stage numbers are chunk x pp_size + pp_rank (loop placement).
struct PlacedStage {
  int chunk = 0;
  int pp_rank = 0;
  LayerRange layers = {};
  bool embedding = false;
  bool mtp = false;
  bool loss = false;
  int mtp_layers = 0;
};

struct PipelineLayout {
  std::optional<int> chunks = {};        ///< as requested, or as implied by a layout
  bool mtp_apart = false;                ///< multi-token prediction runs on a different rank than the loss
  std::vector<PlacedStage> stages = {};  ///< in pipeline order
};

/// Parses a layout string: E embedding, t decoder layer, m multi-token prediction, L loss, | between stages. Commas are
/// ignored. Groups (..)*n are expanded first, then single x*n. Reports bad-value with the position in the string.
std::optional<LayerKinds> parse_layout(std::string_view text, Diagnostics& problems);
/// The same from lists of names, case-insensitive.
std::optional<LayerKinds> parse_layout(const std::vector<std::vector<std::string>>& names, Diagnostics& problems);

/// Whether a layout has multi-token-prediction layers.
bool has_mtp(const LayerKinds& layout);

/// Places the layers. Problems: bad-value and indivisible, with the nearest values that work; for layouts bad-value.
/// Megatron accepts chunks without pipeline parallelism and then runs every layer in each chunk; that is rejected here.
std::optional<PipelineLayout> place_layers(const PipelineLayoutRequest& request, Diagnostics& problems);

/// The modules of every stage. Stages without layers are allowed.
StageFqns stage_fqns(const ModelNames& names, const PipelineLayout& layout);

}  // namespace automodel::plan
