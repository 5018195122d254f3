// What the tensor-parallel plan leaves of a model on one rank: elements and widths. Counted once for a plan, since
// stages and estimates ask often.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "arch/tensor_plan.h"
#include "plan/model_choice.h"

namespace automodel::plan {

/// Among how many ranks the widths of a layer are divided; 1: each has all of it.
struct WidthShares {
  int heads = 1;  ///< queries and attention's result
  int keys = 1;   ///< keys and values
  int taken = 0;  ///< attention's whole result, of which its last product takes a part; 0: it takes it as it is
  int up = 1;     ///< results of the MLP's first product
  int down = 1;   ///< inputs of its last one
  bool whole_attention = false;  ///< with sequence parallelism: the first product keeps the tokens of all ranks
  bool whole_mlp = false;
};

/// Of one layer on one rank of the tp group.
struct LayerShares {
  double dense = 0;           ///< elements
  double expert = 0;          ///< elements of all experts
  double dense_matrices = 0;  ///< of `dense`, those of whole matrices (arch::is_hidden_matrix)
  double expert_matrices = 0;
  /// Floating-point operations of one Newton-Schulz iteration over the dense matrices, those that tp ranks divide dealt
  /// among them, and over all experts' (Muon).
  double orthogonal = 0, expert_orthogonal = 0;
  double products = 0;  ///< multiplications with weights for each token of the tp group
  WidthShares widths = {};
};

struct TensorShares {
  std::vector<LayerShares> kinds = {};
  std::vector<std::size_t> kind_of = {};  ///< by layer
  double embeddings = 0;                  ///< elements
  double norm = 0;
  double head = 0;     ///< also of a tied one
  int vocabulary = 1;  ///< ranks among which the logits are divided
  const LayerShares& layer(int index) const { return kinds[kind_of[static_cast<std::size_t>(index)]]; }
};

/// `plan` is empty where `tp` is 1.
TensorShares tensor_shares(const ModelChoice& model, const arch::TensorPlan& plan, int tp);

/// Among how many ranks the results of a module of a column-wise `style` are divided. Where there are more ranks than
/// heads of keys and values, neighbours hold the same head.
int result_shares(const arch::ModelSpec& spec, arch::Part part, arch::TensorStyle style, int tp);

struct TrainingPlan;
/// Among how many ranks of the tp group the engine divides a parameter or an adapter's matrix
/// (parallel/tensor/placement.h).
int tensor_ranks(const TrainingPlan& plan, const arch::Parameter& info);

}  // namespace automodel::plan
