// Tensor parallelism as data: parallel styles of modules, and the plans of families and recipes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arch/layout.h"
#include "arch/model_spec.h"
#include "arch/modules.h"

namespace automodel::arch {

/// How a module is divided among tensor-parallel ranks. Names in parentheses are those of Hugging Face plans and of
/// NeMo AutoModel's translate_to_torch_parallel_style.
enum class TensorStyle : std::uint8_t {
  kReplicated,       ///< every rank has the whole module and does the same work
  kColwise,          ///< outputs are sharded and stay sharded
  kRowwise,          ///< inputs are already sharded; outputs are summed. For an embedding: sharded by rows of its table
  kColwiseGathered,  ///< outputs are sharded, then gathered (colwise_rep)
  kRowwiseSplit,     ///< inputs are replicated, each rank uses its slice, outputs are summed (rowwise_rep)
  kSequence,         ///< with sequence parallelism, each rank processes its share of the tokens (sequence_parallel)
  kReplicatedSummedGradient,  ///< a replicated weight applied to each rank's own heads; its gradient is all-reduced
                              ///< (replicated_with_grad_allreduce)
};

/// Whether a matmul's inputs (divides_rows) or outputs (divides_columns) are sharded, and its weight along that
/// dimension.
constexpr bool divides_rows(TensorStyle style) {
  return style == TensorStyle::kRowwise || style == TensorStyle::kRowwiseSplit;
}
constexpr bool divides_columns(TensorStyle style) {
  return style == TensorStyle::kColwise || style == TensorStyle::kColwiseGathered;
}

/// The recipe's word for a style, such as "colwise"; the first if there are synonyms.
std::string_view name_of(TensorStyle style);
/// Accepts the words of translate_to_torch_parallel_style and of later transformers releases. Empty for an unknown
/// word.
std::optional<TensorStyle> parse_tensor_style(std::string_view word);
/// Every accepted word.
const std::vector<std::string_view>& tensor_style_words();
/// Words in transformers' plans that do not concern dense tensor parallelism. NeMo AutoModel skips them too.
bool is_skipped_style(std::string_view word);

/// Linear layers that belong together: the outputs of `first` become the inputs of `last`. A layer may lack some of the
/// parts.
struct DividedBlock {
  Role role;  ///< kAttention, kRecurrence, kMlp or kSharedExpert
  std::vector<Part> first;
  std::vector<Part> last;
};
/// The blocks that tensor parallelism divides.
std::span<const DividedBlock> divided_blocks();

/// Which communication of sequence-parallel linear layers overlaps with GEMMs. Names in parentheses are Megatron Core's
/// keys.
struct TensorOverlap {
  bool gather = false;               ///< all-gather in chunks, each multiplied on arrival (tp_comm_overlap_ag)
  bool scatter = false;              ///< reduce-scatter in chunks as they are computed (tp_comm_overlap_rs)
  bool scatter_in_backward = false;  ///< the same for input gradients (tp_comm_overlap_rs_dgrad)
  bool gather_in_backward = false;   ///< inputs are re-gathered during the input-gradient GEMM (tp_comm_bulk_wgrad)
  /// Input gradients are reduce-scattered during the weight-gradient GEMM (tp_comm_bulk_dgrad).
  bool scatter_under_weights = false;
  /// `gather` and `scatter_in_backward` also apply to the first linear layers of attention: its queries, keys and
  /// values (tp_comm_overlap_disable_qkv).
  bool gather_attention = true;
  /// The same for the first linear layers of MLPs, shared experts and, as in Megatron Core, recurrent mixers
  /// (tp_comm_overlap_disable_fc1).
  bool gather_mlp = true;
  /// What applies to the linear layer of `part`.
  TensorOverlap before(Part part) const;
  /// Whether tokens are exchanged in per-rank chunks, as point-to-point messages.
  bool by_shares() const { return gather || scatter || scatter_in_backward; }
  bool operator==(const TensorOverlap&) const = default;
};

/// Styles of modules by pattern. `*` stands for one component of a name, usually the layer index.
struct TensorPlan {
  std::vector<std::pair<std::string, TensorStyle>> rows = {};
  bool sequence_parallel = false;
  TensorOverlap overlap = {};

  /// The style of the first row that matches a module name (or the name of a parameter that is not a module's weight or
  /// bias).
  TensorStyle style_of(std::string_view module) const;
  TensorStyle style_of(const Parameter& parameter) const;
};

bool matches(std::string_view pattern, std::string_view name);
/// A parameter's name in plans: without ".weight" or ".bias".
std::string_view plan_name(std::string_view fqn);

/// The default plan: attention heads and feed-forward widths are divided, embedding and head are divided along the
/// vocabulary.
TensorPlan default_tensor_plan(const Layout& layout);
/// The model's plan in transformers (get_hf_tp_shard_plan) with NeMo AutoModel's additions: embedding row-wise, head
/// column-wise. Empty for families without a plan.
std::optional<TensorPlan> transformers_tensor_plan(const ModelSpec& spec, const Layout& layout);

/// Whether the plan divides the vocabulary dimension of the token embedding (kEmbedding) or the head (kHead). A tied
/// head is divided like the embedding.
bool divides_vocabulary(const TensorPlan& plan, const Layout& layout, Role role);

/// Sizes of the sections of a fused projection's outputs (queries, keys, values; gate, up), each of which is sharded
/// separately. Empty for all other projections, which are sharded as a whole.
std::vector<std::int64_t> joined_sections(const ModelSpec& spec, Part part);

}  // namespace automodel::arch
