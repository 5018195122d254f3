#include "plan/activation_memory.h"

#include <algorithm>

namespace automodel::plan {
namespace {

/// Elements a token.
struct Widths {
  double hidden, stream;  ///< stream: hidden as this rank holds it between blocks
  double query, value, joined;
  double up, down;  ///< inputs of the activation function, its results
  double experts;   ///< how often an expert's MLP runs for a token
  double expert_up, expert_down;
};

Widths widths_of(const arch::ModelSpec& spec, int layer, const ActivationRequest& r) {
  const double tp = r.tp;
  Widths w{};
  w.hidden = spec.hidden;
  w.stream = r.sequence_parallel ? w.hidden / tp : w.hidden;
  w.query = spec.query_width() / tp;
  w.value = spec.value_width() / tp;
  w.joined = spec.latent ? 2 * w.query + w.value : w.query + 2.0 * spec.kv_heads * spec.head_dim / tp;
  const double inputs = spec.gated_mlp ? 2 : 1;
  if (spec.is_moe(layer)) {
    const auto& moe = *spec.moe;
    w.down = static_cast<double>(moe.shared_experts) * moe.ffn / tp;
    w.up = inputs * w.down;
    w.experts = moe.top_k;
    w.expert_down = moe.ffn;
    w.expert_up = inputs * moe.ffn;
  } else {
    w.down = spec.ffn / tp;
    w.up = inputs * w.down;
  }
  return w;
}

/// Bytes a token that scores take where they are kept: the capped scores and the softmax.
double scores(const arch::ModelSpec& spec, const ActivationRequest& r) {
  if (r.fused_attention || (spec.attention_softcap == 0 && !spec.attention_sinks)) return 0;
  const double heads = static_cast<double>(spec.heads) / r.tp;
  const double kept = (spec.attention_softcap > 0 ? 2.0 : 1.0) * r.bytes + 4.0;
  return heads * static_cast<double>(r.sequence) * kept;
}

}  // namespace

LayerActivations layer_activations(const arch::ModelSpec& spec, int layer, const ActivationRequest& r) {
  const auto w = widths_of(spec, layer, r);
  const auto& t = r.trained;
  const double experts_kept = w.experts * ((t.up ? 2 : 1) * w.hidden + w.expert_up + (t.down ? w.expert_down : 0));
  const double norms = (t.queries ? w.stream : 0) + (t.up ? w.stream : 0);
  double elements = 2 * w.stream + norms + w.joined + w.value + w.up + (t.down ? w.down : 0) + experts_kept;
  if (spec.sandwich_norms) elements += 2 * w.stream;
  if (spec.qk_norm) elements += w.joined;
  if (spec.latent) elements += spec.latent->q_rank + 2.0 * spec.latent->kv_rank;
  // The statistics of two norms and of the softmax, in float32.
  const double statistics = 4.0 * (2 + static_cast<double>(spec.heads) / r.tp);
  const auto tokens = static_cast<double>(r.tokens);
  const double whole = tokens * (elements * r.bytes + statistics + scores(spec, r));
  // Gradients of the two residual inputs and of the widest activation.
  const double widest = std::max({w.up, w.experts * w.expert_up, w.joined});
  const double gradients = tokens * r.bytes * (2 * w.hidden + widest);
  LayerActivations out;
  if (r.recompute == config::ActivationCheckpointing::kFull) {
    out.kept = tokens * r.bytes * 2 * w.stream;
    out.working = whole - out.kept + gradients;
  } else if (r.recompute == config::ActivationCheckpointing::kSelective) {
    // Attention is kept, the norm and the MLP after it are computed again.
    const double again = w.up + (t.down ? w.down : 0) + experts_kept + (spec.sandwich_norms ? w.stream : 0);
    out.kept = whole - tokens * r.bytes * again;
    out.working = gradients + tokens * r.bytes * again;
  } else {
    out.kept = whole;
    out.working = gradients;
  }
  out.of_kernel = tokens * r.bytes * (w.joined + w.value);
  // Inputs of the four products and the gradients of their results.
  double operands = 0;
  if (t.queries) operands += w.hidden + w.joined;
  if (t.output) operands += w.value + w.hidden;
  if (t.up) operands += w.hidden + w.up + w.experts * (w.hidden + w.expert_up);
  if (t.down) operands += w.down + w.hidden + w.experts * (w.expert_down + w.hidden);
  out.kept_for_weights = tokens * r.bytes * operands;
  return out;
}

HeadActivations head_activations(const arch::ModelSpec& spec, const ActivationRequest& r, bool fused_loss) {
  const double tokens = static_cast<double>(r.tokens);
  const double stream = r.sequence_parallel ? static_cast<double>(spec.hidden) / r.tp : spec.hidden;
  const double vocabulary = static_cast<double>(spec.vocab) / r.tp;
  HeadActivations out;
  out.kept = tokens * r.bytes * (stream + spec.hidden);
  out.logits = tokens * r.bytes * vocabulary;
  if (spec.logit_softcap > 0) out.logits *= 3;  // before the cap, the tanh, the result
  if (!fused_loss) out.working = tokens * vocabulary * 8;
  return out;
}

}  // namespace automodel::plan
