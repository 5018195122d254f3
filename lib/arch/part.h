// Roles of parameters and parts of a decoder layer. Computation, sharding and counting depend on these; names differ by
// family.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace automodel::arch {

/// The role of a parameter.
enum class Role : std::uint8_t {
  kEmbedding,
  kPositions,
  kNorm,
  kAttention,
  kMlp,
  kRouter,
  kExpert,
  kSharedExpert,
  kHead,
  kRecurrence,   ///< of recurrent mixers
  kAdapter,      ///< a matrix of a low-rank adapter (adapters.h); not part of any Layout
  kTower,        ///< of a vision tower or its projector (vision.h)
  kLayerInputs,  ///< what gives every layer an input of its own, beside the embedding (Gemma 4)
  kStreams,      ///< weights of parallel residual streams (hyper-connections)
};
inline constexpr std::size_t kRoleCount = 14;
std::string_view name_of(Role role);

enum class Part : std::uint8_t {
  kNone,  ///< outside the layers
  // Norms of a block's input, and of its output before it is added to the residual stream.
  kMixerNorm,
  kMixerOutNorm,
  kFeedNorm,
  kFeedOutNorm,
  // Attention.
  kQuery,
  kKey,
  kValue,
  kQkv,  ///< fused; row order is ModelSpec::qkv_order
  kQueryNorm,
  kKeyNorm,
  kSinks,
  kAttentionGate,  ///< one per head, or per channel; ModelSpec::output_gate; its sigmoid with latent attention
  kAttentionOut,
  // Recurrent mixers, and short convolutions.
  kStateIn,  ///< fused projection of the residual stream to all or most of the state's inputs
  kStateQuery,
  kStateKey,
  kStateValue,
  kStateGateDown,  ///< first matrix of a low-rank output gate
  kStateGate,
  kStateRate,       ///< beta, the strength of the delta rule's update
  kStateDecayDown,  ///< first matrix of a low-rank decay
  kStateDecay,
  kStateConv,
  kStateQueryConv,
  kStateKeyConv,
  kStateValueConv,
  kStateDecayRate,  ///< one per head
  kStateDecayBias,
  kStateSkip,  ///< one per head: weight of the values added past the state
  kStateNorm,
  kStateOut,
  // Latent attention.
  kQueryDown,
  kQueryDownNorm,
  kQueryUp,
  kKeyValueDown,
  kKeyValueDownNorm,
  kKeyValueUp,
  // The indexer of sparse attention (TokenIndex).
  kIndexQuery,
  kIndexKey,
  kIndexQueryNorm,
  kIndexKeyNorm,
  kIndexWeights,  ///< one per head
  // Compressed attention (CompressedAttention): the first matrix of low-rank outputs; what an entry is made of, its
  // value, the logits of a window's tokens and their biases by place; the same of the index's entries.
  kOutDown,
  kEntryValue,
  kEntryLogits,
  kEntryBias,
  kEntryNorm,
  kIndexEntryValue,
  kIndexEntryLogits,
  kIndexEntryBias,
  kIndexEntryNorm,
  // Hyper-connections of both blocks, and of the end of the last layer: a projection, biases, and factors.
  kMixerStreams,
  kMixerStreamsBias,
  kMixerStreamsScale,
  kFeedStreams,
  kFeedStreamsBias,
  kFeedStreamsScale,
  kEndStreams,
  kEndStreamsBias,
  kEndStreamsScale,
  // The dense feed-forward block.
  kGate,
  kUp,
  kGateUp,  ///< fused, gate first
  kDown,
  kActivation,  ///< trained scalars of the activation function
  // Experts: one module each ("{}" in the name stands for its number), or one for all.
  kRouter,
  kRouterBias,  ///< a buffer used only for expert selection
  /// A buffer: numbers of the experts of every token, [vocabulary, experts per token]. Stored as integers, in memory as
  /// checkpoint::convert_elements says.
  kRouterTable,
  kLatentIn,  ///< projection from the residual stream to the experts' narrower width
  kLatentOut,
  kExpertGate,
  kExpertUp,
  kExpertGateUp,
  kExpertDown,
  kSharedGate,
  kSharedUp,
  kSharedGateUp,
  kSharedDown,
  kSharedSwitch,  ///< one scalar per token that gates the shared experts' output
  // Experts beside an MLP (Gemma 4): norms of both inputs and both outputs, factors of the router's input and weights.
  kSharedNorm,
  kSharedOutNorm,
  kExpertsNorm,
  kExpertsOutNorm,
  kRouterScale,
  kExpertScale,
  // What the inputs of all layers are made of (Gemma 4), beside the embedding: a table of tokens, a projection of the
  // residual stream, and the norm of its result.
  kInputsTable,
  kInputsProduct,
  kInputsNorm,
  // A layer's own input (Gemma 4), added behind the blocks: projections down and up, and the norm of the result.
  kInputGate,
  kInputUp,
  kInputNorm,
  kLayerScale,  ///< a buffer: factor of the layer's output
  // Outside the layers.
  kTowerProduct,  ///< of a linear module of a vision tower or its projector: the matrix
};
inline constexpr std::size_t kPartCount = static_cast<std::size_t>(Part::kTowerProduct) + 1;

Role role_of(Part part);
/// Whether it belongs to an index, which chooses what attention sees. No gradient passes through the choice.
bool is_of_index(Part part);

}  // namespace automodel::arch
