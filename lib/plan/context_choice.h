// The context-parallel communication pattern.
#pragma once

#include <cstdint>
#include <string>

#include "arch/tensor_plan.h"
#include "mesh/mesh_sizes.h"
#include "plan/located.h"
#include "plan/model_choice.h"

namespace automodel::plan {

/// Two levels whose sizes multiply to cp_size: `heads` adjacent ranks trade tokens for heads (all-to-all), and `keys`
/// such groups exchange keys and values.
struct ContextPlan {
  int heads = 1;
  int keys = 1;
  bool gather = false;  ///< all-gather keys and values instead of passing them around a ring
};

/// What of a layer's heads and key groups on a tensor-parallel rank context-parallel ranks cannot divide ("6 heads"),
/// each computing whole sequences of some heads; empty if nothing. More ranks than key groups share a group.
std::string undivided_heads(int heads, int groups, const mesh::MeshSizes& sizes);

/// Whether a layer has a state that is passed from token to token, for which ranks exchange heads; a short convolution
/// by itself only looks a few tokens back.
inline bool passes_state(const arch::ModelSpec& spec, int layer) {
  return spec.recurs(layer) && spec.mixer(layer) != arch::Mixer::kShortConv;
}

/// What context-parallel ranks exchange in recurrent layers.
struct RecurrentExchanges {
  bool states = false;  ///< inputs and outputs of states, for whole sequences of heads
  bool tokens = false;  ///< the tokens that short convolutions look back to
};
RecurrentExchanges recurrent_exchanges(const arch::ModelSpec& spec);

/// Why context-parallel ranks cannot divide the states of recurrent layers, each of which is computed for whole
/// sequences by the ranks that have its heads; empty if they can.
std::string undivided_state(const arch::ModelSpec& spec, const mesh::MeshSizes& sizes);

/// Whether attention of some layer is exchanged as ContextPlan says. Recurrent layers have other exchanges, and
/// attention over tokens that an index chooses does; it sees sequences of at most top_k tokens whole. `shortest`:
/// tokens of the shortest sequence, 0: unknown.
bool exchanges_attention(const arch::ModelSpec& spec, std::int64_t shortest);

/// `shortest`: as above. Derived from model_parallel.cp_comm_type and hierarchical_context_parallel_sizes. Problems:
/// missing-key and bad-value (level sizes), indivisible (heads by the ranks that share them), recurrent-context.
ContextPlan choose_context_plan(const config::LoadedRecipe& loaded, const ModelChoice* model,
                                const arch::TensorPlan& tensor, const mesh::MeshSizes& sizes, std::int64_t shortest,
                                Located& report);

}  // namespace automodel::plan
