// Rank-local elements and widths under the tensor-parallel plan. Computed once per plan because stages and estimates
// need them often.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "arch/tensor_plan.h"
#include "plan/model_choice.h"

namespace automodel::plan {

/// Number of ranks that share each width of a layer; 1: replicated.
struct WidthShares {
  int heads = 1;  ///< queries and attention's output
  int keys = 1;   ///< keys and values
  int taken = 0;  ///< number of ranks that each use a slice of attention's full output, if its output projection takes
                  ///< a slice (rowwise_rep); else 0
  int up = 1;     ///< outputs of the MLP's first projection
  int down = 1;   ///< inputs of its last projection
  /// With sequence parallelism: the first projection keeps the gathered tokens of all ranks.
  bool whole_attention = false;
  bool whole_mlp = false;
};

/// Shares of one layer on one rank of the tp group.
struct LayerShares {
  double dense = 0;           ///< elements
  double expert = 0;          ///< elements of all experts
  double dense_matrices = 0;  ///< part of `dense` in matrices updated as a whole (arch::is_hidden_matrix)
  double expert_matrices = 0;
  /// FLOPs of one Newton-Schulz iteration over the dense matrices (those shared by tp ranks are distributed among them)
  /// and over all experts' matrices (Muon).
  double orthogonal = 0, expert_orthogonal = 0;
  double products = 0;  ///< multiplications with weights per token of the tp group
  WidthShares widths = {};
};

struct TensorShares {
  std::vector<LayerShares> kinds = {};
  std::vector<std::size_t> kind_of = {};  ///< by layer
  double embeddings = 0;                  ///< elements
  double norm = 0;
  double head = 0;     ///< including a tied one
  int vocabulary = 1;  ///< ranks among which the logits are divided
  const LayerShares& layer(int index) const { return kinds[kind_of[static_cast<std::size_t>(index)]]; }
};

/// `plan` is empty if `tp` is 1.
TensorShares tensor_shares(const ModelChoice& model, const arch::TensorPlan& plan, int tp);

/// Number of ranks that share the outputs of a module with a column-wise `style`. With more ranks than key-value heads,
/// adjacent ranks hold the same head.
int result_shares(const arch::ModelSpec& spec, arch::Part part, arch::TensorStyle style, int tp);

struct TrainingPlan;
/// Number of ranks of the tp group among which a parameter or adapter matrix is sharded (parallel/tensor/placement.h).
int tensor_ranks(const TrainingPlan& plan, const arch::Parameter& info);

}  // namespace automodel::plan
