// Activation bytes that a microbatch keeps between its forward and backward pass.
#pragma once

#include <cstdint>
#include <optional>

#include "arch/model_spec.h"
#include "config/distributed_config.h"
#include "plan/adapter_choice.h"
#include "plan/tensor_shares.h"
#include "plan/values/execution.h"

namespace automodel::estimate {

/// How a microbatch is computed on one rank.
struct ActivationRequest {
  std::int64_t tokens = 0;    ///< per microbatch on this rank (after context parallelism)
  std::int64_t sequence = 0;  ///< tokens per sequence on this rank
  int bytes = 2;              ///< per element of the compute dtype
  int tp = 1;
  int cp = 1;
  int head_ranks = 1;         ///< of cp, those that trade tokens for heads
  int key_ranks = 1;          ///< of cp, those that exchange keys and values
  bool gathers_keys = false;  ///< all of them at once
  bool sequence_parallel = false;
  const plan::TensorShares* shares = nullptr;  ///< null: tensor parallelism divides everything it can
  int expert_tensor = 1;                       ///< ranks that hold parts of the same experts
  bool experts_apart = false;                  ///< experts are on other ranks, so tokens are dispatched and combined
  bool cuda = true;                            ///< runs on GPUs
  bool lean = false;  ///< count as other stacks do: one residual stream, and one copy of an expert's rows, as received
  plan::Recompute recompute = plan::Recompute::kNone;
  plan::RecomputeModules modules = {};  ///< in addition to `recompute`
  plan::TrainedProducts trained = {};
};

struct LayerActivations {
  double kept = 0;              ///< between forward and backward pass
  double kept_for_weights = 0;  ///< after an input-gradient pass (I) until the weight-gradient pass (W)
  double working = 0;           ///< peak of the backward pass, in addition to `kept`
  double forward = 0;           ///< peak of a forward pass without a backward pass
  double of_kernel = 0;         ///< part of `kept` that the GPU attention kernel itself keeps
};

/// Whether one kernel computes a layer's attention, so that its scores are never stored. `bytes` per element.
bool has_fused_attention(const arch::ModelSpec& spec, int layer, int bytes, bool cuda);

/// Bytes per token of the lists of keys, or of blocks of them, that an index chooses for a token of a sequence.
double choice_bytes(const arch::TokenIndex& index, std::int64_t sequence);

/// What context-parallel ranks exchange in a layer with a state, each whole sequences of its heads: elements per token
/// on all `tp` ranks together. Otherwise 0.
struct StateExchange {
  double to = 0;    ///< to the state: inputs of the convolution, of the decays and of other gates
  double from = 0;  ///< from the state: its output
};
StateExchange state_exchange(const arch::ModelSpec& spec, int layer, int tp, int cp);

/// One decoder layer. Kept in elements per token (h hidden, q and v query and value width, k key-value width, f MLP
/// width, each / tp where tensor parallelism divides it):
///   residual stream before both norms 2h, the norms' outputs 2h, query, key and value projections q + 2k, attention's
///   output v, the MLP's inputs to its activation function 2f (f if not gated) and the activation's output f;
///   with norms after attention and MLP 2h more; with norms of queries and keys, these twice;
///   for a recurrent mixer, the outputs of its projections, its convolution and its state instead of attention's, and
///   with context parallelism what is exchanged for its state.
/// Scores are not kept. Where no fused kernel computes attention (soft caps, heads wider than 256, on GPUs more than 16
/// bits or tokens that an index chooses), the scores of a chunk of queries are part of `working` (base/score_chunk.h),
/// as are those of an index. Experts count top_k times, shared ones once. Each of the tp ranks routes its share of the
/// tokens; ranks that hold parts of the same experts each have the rows of all of them. Rows received from other ranks
/// are kept in both directions. A linear layer without trained weights or adapters keeps no input, which drops the
/// outputs of norms and activation function that only it needs. With full recomputation, only the residual stream
/// before the layer is kept, and `working` is the rest.
LayerActivations layer_activations(const arch::ModelSpec& spec, int layer, const ActivationRequest& request);

/// Activations after the layers on the last stage: the final norm's input and output, and the logits.
struct HeadActivations {
  double kept = 0;             ///< without logits
  double forward = 0;          ///< the same for a pass without a backward pass
  double logits = 0;           ///< kept until the backward pass overwrites them with their gradient
  double working = 0;          ///< what exists beside them in the backward pass
  double working_forward = 0;  ///< the same for a pass without a backward pass
  /// Logits of one chunk of tokens and their gradient's working memory, only while the loss is computed.
  double chunk = 0;
};
/// How the loss is computed.
struct LossRequest {
  double beside = 0;  ///< bytes per logit that exist beside them; 0: the gradient is computed in place
  plan::LossPlan plan = {};
  int gradient_bytes = 4;  ///< per element of the head's weight gradient; 0: the head is not trained
  /// The head's weight gradient is an 8-bit product, a tensor of its own before it is added.
  bool float8_gradient = false;
  int product_bytes = 0;   ///< of an element that is copied for matmuls in another dtype (autocast); 0: none is
  int adapter_copies = 0;  ///< tensors of the logits' size that the head's adapter makes
};
HeadActivations head_activations(const arch::ModelSpec& spec, const ActivationRequest& request,
                                 const LossRequest& loss);

}  // namespace automodel::estimate
