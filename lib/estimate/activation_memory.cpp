#include "estimate/activation_memory.h"

#include <algorithm>
#include <cmath>

#include "base/scan_slice.h"
#include "base/score_chunk.h"
#include "plan/context_choice.h"

namespace automodel::estimate {
namespace {

/// Elements per token.
struct Widths {
  double hidden, stream;  ///< stream: the residual stream as this rank holds it between blocks
  double query_input, up_input;
  double heads, query, value, keys, joined;  ///< keys: with values; joined: the projections of attention
  double normed;                             ///< projections of queries and keys before their norms
  double padded;                             ///< zeros beside narrower values, and attention's output with them
  double gates;                              ///< attention's outputs before they are gated, and the gates
  double state;     ///< what a recurrent mixer keeps besides its output: inputs and convolution outputs
  double states;    ///< heads of a recurrent state
  double taken;     ///< slice of attention's output that the output projection uses
  double low_rank;  ///< latent attention's low-rank vectors
  double up, down;  ///< inputs and outputs of the activation function
  double experts;   ///< expert MLP evaluations per token
  double expert_rows, expert_up, expert_down;
  double arrived;  ///< rows received from other ranks, at the experts and back
};

/// What a recurrent mixer keeps, except its output: the outputs of its projections, the convolution's input if that is
/// assembled first, the convolution's output, and the state's output before gate and norm.
double state_width(const arch::ModelSpec& spec, int layer) {
  if (!spec.recurs(layer)) return 0;
  const auto& state = *spec.recurrence;
  const double keys = static_cast<double>(state.key_width()), values = static_cast<double>(state.value_width());
  const double mixed = 2 * keys + values, heads = state.heads;
  switch (spec.mixer(layer)) {
    case arch::Mixer::kGatedDelta:
      return mixed + values + 2 * heads + (state.sections.empty() ? mixed : 0) + mixed + values;
    case arch::Mixer::kChannelDelta: return mixed + keys + values + heads + mixed + keys + values;
    case arch::Mixer::kMamba:
    case arch::Mixer::kMambaAndAttention: return mixed + values + heads + mixed + 2 * values;
    case arch::Mixer::kLightning: return 2 * (mixed + values) + values;
    case arch::Mixer::kShortConv: return 5.0 * spec.hidden;
    case arch::Mixer::kAttention:
    case arch::Mixer::kNone: break;
  }
  return 0;
}

double state_value(const arch::ModelSpec& spec, int layer) {
  if (!spec.recurs(layer)) return 0;
  return spec.mixer(layer) == arch::Mixer::kShortConv ? spec.hidden
                                                      : static_cast<double>(spec.recurrence->value_width());
}

/// Bytes at work at one time: of a chunk's attention scores, or of a recurrent state.
struct WorkBytes {
  double forward = 0, backward = 0;
};

/// A state's, in float32 or wider. The backward pass recomputes what the forward pass computed, and adds gradients.
/// Both in tensors of keys' width k, values' width v, pairs c of a chunk's tokens, and a chunk's state s = k v / c for
/// each token and head (the members, result() and gradients() of ops::Delta and ops::Scan).
WorkBytes scan_bytes(const arch::ModelSpec& spec, int layer, const ActivationRequest& r, double heads) {
  if (!spec.recurs(layer) || spec.mixer(layer) == arch::Mixer::kShortConv) return {};
  const auto& state = *spec.recurrence;
  const double k = state.key_dim, v = state.value_dim, c = static_cast<double>(scan_chunk(r.sequence)), s = k * v / c;
  const double shared = static_cast<double>(state.groups) / state.heads;  // queries and keys, per head
  const auto mixer = spec.mixer(layer);
  const double leaf = r.lean ? 0 : 8;  // a pair's factors and their products, of four tokens each
  WorkBytes elements;
  if (mixer == arch::Mixer::kGatedDelta) {
    elements.forward = (3 + 2 * shared) * k + 5 * v + 4 * c + s;
    elements.backward = (6 + 6 * shared) * k + 6 * v + 8 * c + 3 * s;
  } else if (mixer == arch::Mixer::kChannelDelta) {
    elements.forward = 8 * k + 5 * v + 3 * c + s;
    elements.backward = (20 + leaf) * k + 6 * v + 7 * c + 3 * s;
  } else {
    elements.forward = 2 * shared * k + 3 * v + 2 * c + s + std::max(3 * v, s);
    elements.backward = 2 * shared * k + 7 * v + (4 + 2 * shared) * c + 3 * s;
  }
  const double all = static_cast<double>(r.tokens) * heads;
  const double bytes = std::min(all, static_cast<double>(r.cuda ? kScanOnDevice : kScanOnHost)) * std::max(4, r.bytes);
  return {bytes * elements.forward, bytes * elements.backward};
}

/// What compressed attention keeps beside its output: queries before their norm and rotated, the output rotated back,
/// low-rank queries and outputs; the key, and of entries the projections and, as float32, logits and
/// softmax of the tokens that each is made of.
double compressed_width(const arch::ModelSpec& spec, int layer, double query) {
  const auto& attention = *spec.compressed;
  const double low = 2.0 * attention.q_rank + static_cast<double>(attention.output_groups) * attention.output_rank,
               key = 3.0 * spec.head_dim;
  if (attention.rate(layer) == 0) return 3 * query + low + key;
  const double series = (attention.is_sparse(layer) ? 2 : 1) * static_cast<double>(spec.head_dim);
  return 3 * query + low + key + 8 * series;
}

/// Bytes per token of the mask that compressed attention keeps: a byte for each token and entry of the sequence.
double compressed_mask(const arch::ModelSpec& spec, int layer, const ActivationRequest& r) {
  const int rate = spec.compression(layer);
  if (rate == 0 || r.sequence < rate) return 0;
  return static_cast<double>(r.sequence + r.sequence / rate);
}

/// Bytes per token of what an index chooses, and of the numbers of its keys' blocks.
double index_choice(const arch::ModelSpec& spec, int layer, const ActivationRequest& r) {
  if (!spec.index || !spec.index->chooses(layer) || !spec.index->limits(layer, r.sequence * r.cp)) return 0;
  // Context-parallel ranks have the choices of all tokens.
  return r.cp * (choice_bytes(*spec.index, r.sequence * r.cp) + (spec.index->block > 0 ? 8 : 0));
}

plan::WidthShares shares_of(const arch::ModelSpec& spec, int layer, const ActivationRequest& r) {
  if (r.shares != nullptr) return r.shares->layer(layer).widths;
  return {.heads = r.tp, .keys = std::min(r.tp, spec.kv_heads), .up = r.tp, .down = r.tp};
}

Widths widths_of(const arch::ModelSpec& spec, int layer, const ActivationRequest& r) {
  const double tp = r.tp;
  const auto shares = shares_of(spec, layer, r);
  Widths w{};
  w.hidden = spec.hidden;
  w.stream = (r.sequence_parallel ? w.hidden / tp : w.hidden) * (1 + spec.carried_streams());
  if (spec.mixer(layer) != arch::Mixer::kNone)
    w.query_input = shares.whole_attention || spec.hyper ? w.hidden : w.stream;
  if (spec.has_feed(layer)) w.up_input = shares.whole_mlp || spec.hyper ? w.hidden : w.stream;
  const bool attends = spec.attends(layer);
  if (attends) {
    w.heads = static_cast<double>(spec.heads_of(layer)) / shares.heads;
    w.query = static_cast<double>(spec.query_width(layer)) / shares.heads;
    w.value = static_cast<double>(spec.value_width(layer)) / shares.heads;
    const double keys =
        spec.has_keys(layer) ? spec.kv_heads_of(layer) * (1.0 * spec.head_dim_of(layer) + spec.value_dim_of(layer)) : 0;
    w.keys = spec.latent ? w.query + w.value : keys / shares.keys;
    w.joined = w.query + w.keys;
    if (spec.compressed) w.joined = compressed_width(spec, layer, w.query);
    if (r.lean) {
      if (spec.attention_gate) w.joined += w.query + w.value;  // the gate, and the ungated output
      w.normed = spec.head_norm ? w.joined : 0;
    } else {
      const double values = spec.has_keys(layer) ? 1.0 * spec.kv_heads_of(layer) * spec.value_dim_of(layer) : 0;
      w.normed = spec.head_norm ? w.joined - (spec.latent ? w.value : values / shares.keys) : 0;
      if (w.value < w.query && !spec.compressed)
        w.padded = w.query + (spec.latent ? w.query - w.value : values / shares.keys * (w.query / w.value - 1));
      if (spec.attention_gate) w.gates = 2 * w.value;  // the gate's sigmoid, and the ungated output
    }
    if (spec.output_gate != arch::OutputGate::kNone)  // a sigmoid's input is not kept
      w.gates += w.value + (arch::is_sigmoid(spec.output_gate) ? 1 : 2) *
                               (arch::is_per_channel(spec.output_gate) ? w.value : w.heads);
    if (shares.taken > 0) w.taken = static_cast<double>(spec.value_width(layer)) / shares.taken;
  }
  w.state = (state_width(spec, layer) + state_exchange(spec, layer, r.tp, r.cp).to) / shares.heads;
  w.value += state_value(spec, layer) / shares.heads;
  if (spec.recurs(layer)) w.states = static_cast<double>(spec.recurrence->heads) / shares.heads;
  // These parts are computed in the same token layout as the residual stream.
  if (spec.latent && attends)
    w.low_rank = (spec.latent->q_rank + 2.0 * spec.latent->kv_rank) / (r.sequence_parallel ? tp : 1);
  const double inputs = spec.gated_mlp ? 2 : 1;
  const bool moe = spec.is_moe(layer);
  const double ffn = moe ? static_cast<double>(spec.moe->shared_ffn) : spec.has_feed(layer) ? spec.ffn_of(layer) : 0;
  w.up = inputs * ffn / shares.up;
  w.down = ffn / shares.down;
  if (moe) {
    w.experts = spec.moe->top_k / tp;
    // Parts of a divided expert are narrower, but each processes the tokens routed by all its ranks: total widths stay
    // the same, while inputs add up.
    w.expert_rows = static_cast<double>(spec.expert_hidden()) * r.expert_tensor;
    w.arrived = r.experts_apart ? 2 * w.expert_rows : 0;
    w.expert_down = spec.moe->ffn;
    w.expert_up = inputs * spec.moe->ffn;
  }
  return w;
}

/// Peak elements per token of a forward pass that keeps nothing: in attention, in the MLP, while the experts compute,
/// or where their outputs are combined. In addition, the layer's input in two parts, their sum, and the norm's output
/// are alive.
double forward_elements(const Widths& w) {
  const double attention =
      w.query_input + w.joined + w.normed + w.padded + w.state + w.gates + w.value + w.hidden + w.low_rank;
  const double dense = w.up_input + w.up + w.down + w.hidden;
  // Rows from other ranks exist as sent, as received and sorted by expert, and then travel back.
  const double computing = w.experts * (w.expert_rows + 1.5 * w.arrived + w.expert_up + w.expert_down + w.hidden);
  const double together = w.experts * 3 * w.hidden;
  const double experts = w.up_input + (w.up > 0 ? w.hidden : 0) + std::max(computing, together);
  return 3 * w.stream + std::max({attention, dense, w.experts > 0 ? experts : 0});
}

/// Bytes of a chunk's attention scores and of their gradient's working memory, without a fused attention kernel; or of
/// an index's scores, and the masks of what it chooses.
WorkBytes scores(const arch::ModelSpec& spec, int layer, const Widths& w, const ActivationRequest& r) {
  if (!spec.attends(layer)) return {};
  const bool limited = spec.index && spec.index->limits(layer, r.sequence * r.cp);
  const bool fused = has_fused_attention(spec, layer, r.bytes, r.cuda) && !(limited && r.cuda);
  // Context-parallel ranks have whole sequences of some heads where an index chooses.
  const int cp = limited ? r.cp : 1;
  const auto here = std::max<std::int64_t>(1, r.sequence), sequence = here * cp;
  const double batch = std::ceil(static_cast<double>(r.tokens) / static_cast<double>(here));
  const auto elements = [&](double heads) {
    const auto rows = score_rows(static_cast<std::int64_t>(heads), sequence, sequence, sequence, !r.cuda);
    return heads * static_cast<double>(rows) * static_cast<double>(sequence);
  };
  const double type = std::max(4, r.bytes), narrow = r.bytes < 4 ? r.bytes : 0;
  // Products of a head of the index and their sum, and two masks of what is hidden.
  const double index = limited ? elements(batch) * (2 * type + 2) : 0;
  if (fused) return {index, index};
  // In float32 or wider: scores and weights; in the backward pass also their gradients and an intermediate product.
  // Plus one copy in the compute dtype, for a matmul.
  const double each = elements(std::ceil(w.heads / cp) * batch);
  return {std::max(index, each * (type + type)), std::max(index, each * (4 * type + narrow))};
}

/// Bytes per token of attention's backward pass by a fused kernel: gradients of its output, of queries, keys and values
/// by themselves and joined, and of queries as the kernel adds them up, in float32. Context-parallel ranks add up
/// blocks in float32: queries' here, keys' and values' here, those that leave and those that arrive, or of all ranks at
/// once.
double attention_bytes(const arch::ModelSpec& spec, int layer, const Widths& w, const ActivationRequest& r) {
  if (!spec.attends(layer)) return 0;
  const double exact = std::max(4, r.bytes), all = w.query + w.keys;
  const bool fused = r.cuda && has_fused_attention(spec, layer, r.bytes, r.cuda);
  const double out = r.bytes * (w.value + 2 * all) + (fused ? exact * w.query : 0);
  if (r.key_ranks == 1) return out;
  return out + exact * w.query + r.bytes * all +
         (r.gathers_keys ? r.key_ranks * w.keys * (r.bytes + exact) : w.keys * (2 * r.bytes + 3 * exact));
}

/// Elements per token that are not kept because recompute_modules recomputes them.
double of_modules(const arch::ModelSpec& spec, const Widths& w, const ActivationRequest& r, bool moe,
                  double experts_kept) {
  const auto& m = r.modules;
  double out = 0;
  if (m.core_attention) out += w.value;
  if (m.norms) out += (r.trained.queries ? w.query_input : 0) + (r.trained.up ? w.up_input : 0);
  if (m.latent_up && spec.latent) out += w.joined;
  if (moe ? m.shared_experts || m.experts : m.mlp) out += w.up + (r.trained.down ? w.down : 0);
  if (moe && m.experts) return out + experts_kept;
  if (moe && m.expert_activation && r.trained.expert_down) out += w.experts * w.expert_down;
  return out;
}

}  // namespace

StateExchange state_exchange(const arch::ModelSpec& spec, int layer, int tp, int cp) {
  if (cp <= 1 || !plan::passes_state(spec, layer)) return {};
  const auto& state = *spec.recurrence;
  // Where there are more ranks than key groups, each gets a copy of its group.
  const double copies = std::max(1.0, static_cast<double>(cp) * tp / state.groups);
  const double keys = copies * static_cast<double>(state.key_width()),
               values = static_cast<double>(state.value_width());
  const double heads = state.heads;
  switch (spec.mixer(layer)) {
    case arch::Mixer::kGatedDelta: return {2 * keys + values + 2 * heads, values};
    case arch::Mixer::kChannelDelta: return {3 * keys + values + heads, values};  // a decay for each key channel
    case arch::Mixer::kMamba:
    case arch::Mixer::kMambaAndAttention: return {2 * keys + values + heads, values};
    case arch::Mixer::kLightning: return {2 * keys + values, values};
    case arch::Mixer::kShortConv:
    case arch::Mixer::kAttention:
    case arch::Mixer::kNone: break;
  }
  return {};
}

double choice_bytes(const arch::TokenIndex& index, std::int64_t sequence) {
  const double listed = index.block > 0 ? index.heads * (index.top_k / index.block) : index.top_k;
  return listed * listed_key_bytes(sequence);
}

bool has_fused_attention(const arch::ModelSpec& spec, int layer, int bytes, bool cuda) {
  const bool wide = spec.query_width(layer) > kWidestFusedHead * spec.heads_of(layer);
  const bool exact = bytes > 4 || (bytes == 4 && (spec.kv_heads < spec.heads || spec.attention_sinks));
  return spec.attends(layer) && spec.attention_softcap <= 0 && !(cuda && (wide || exact));
}

LayerActivations layer_activations(const arch::ModelSpec& spec, int layer, const ActivationRequest& r) {
  const auto w = widths_of(spec, layer, r);
  const auto& t = r.trained;
  const double back = r.lean            ? 0
                      : r.experts_apart ? w.arrived
                                        : w.hidden;  // the experts' outputs, where they are summed
  const double experts_kept =
      w.experts * ((t.expert_up ? w.expert_rows : 0) + back + w.expert_up + (t.expert_down ? w.expert_down : 0));
  const double norms = (t.queries ? w.query_input : 0) + (t.up ? w.up_input : 0);
  double elements =
      2 * w.stream + norms + w.joined + w.state + w.gates + w.value + w.up + (t.down ? w.down : 0) + experts_kept;
  if (t.output) elements += w.taken;
  if (spec.attends(layer) && r.head_ranks > 1 && !r.lean) elements += w.value;  // on its way back, and arrived
  if (spec.branch_norms) elements += 2 * w.stream;
  if (spec.hyper) elements += 4 * w.hidden;  // what both blocks read of the streams, and write to them
  // A layer's own input: the projections, and their norm; factors of outputs keep what they multiply.
  if (spec.layer_input > 0) elements += 2 * w.stream + 3.0 * spec.layer_input;
  if (spec.layer_scale) elements += w.stream;
  // What was limited, beside its inputs; an activated gate and its up before limits behind the activation, too.
  const bool inputs = spec.moe && spec.moe->swiglu_limit > 0 && !spec.moe->paired_gates && !spec.moe->shifted_gates;
  const auto kept_of = [&](double limit) { return inputs ? 1 : limit > 0 ? 1.5 : 0; };
  const double limited =
      kept_of(spec.mlp_limit(layer)) * w.up + kept_of(spec.expert_limit(layer)) * w.experts * w.expert_up;
  elements += limited;
  if (spec.is_moe(layer) && spec.moe->beside) elements += 4 * w.stream;
  elements += w.normed + w.padded;
  elements += w.low_rank;
  // Statistics of two norms and of the softmax, in float32.
  const double statistics = 4.0 * (2 + w.heads);
  const auto tokens = static_cast<double>(r.tokens);
  const double mask = compressed_mask(spec, layer, r) + index_choice(spec, layer, r);
  const double whole = tokens * (elements * r.bytes + statistics + mask);
  const auto chunk = scores(spec, layer, w, r);
  // The backward pass reaches attention and a recurrent state when what the MLP kept is free again.
  const double feed = (t.up ? w.up_input : 0) + w.up + (t.down ? w.down : 0) + experts_kept + limited;
  const auto scan = scan_bytes(spec, layer, r, w.states);
  // Gradients of the two residual inputs, and of what is in work.
  const double residual = tokens * r.bytes * 2 * std::max(w.hidden, w.stream);
  double gradients = 0;
  if (r.lean) {
    const double widest = std::max({w.up, w.experts * w.expert_up, w.joined, w.state});
    gradients =
        residual + tokens * r.bytes * widest + chunk.backward + std::max(0.0, scan.backward - tokens * r.bytes * feed);
  } else {
    // What no weight's gradient needs is gone by then, but was there in the forward pass; rows that travel as sent, as
    // sorted by expert, and as they go back.
    const double rows = t.expert_up ? 0 : (r.experts_apart ? 3 : 1) * w.expert_rows;
    const double passing = w.experts * (rows + (t.expert_down ? 0 : w.expert_down));
    const double product = std::max({w.up, w.experts * w.expert_up, w.state, passing});
    // Beside a state's: gradients of its output and of what it is made from.
    const double beside = scan.backward > 0 ? tokens * r.bytes * (w.value + w.state / 2) : 0;
    const double mixer = std::max(tokens * attention_bytes(spec, layer, w, r) + chunk.backward, scan.backward + beside);
    gradients = residual + std::max(tokens * r.bytes * product, mixer - tokens * r.bytes * feed);
  }
  LayerActivations out;
  if (r.recompute == plan::Recompute::kFull) {
    // What the layer begins with: the residual stream, and its own input (Gemma 4), which is of all layers at once.
    out.kept = tokens * r.bytes * ((r.lean || spec.hyper ? 1 : 2) * w.stream + spec.layer_input);
    out.working = whole - out.kept + gradients;
  } else if (r.recompute == plan::Recompute::kSelective) {
    // Attention is kept; the norm and MLP after it are recomputed.
    const double again = w.up + (t.down ? w.down : 0) + experts_kept + limited + (spec.branch_norms ? w.stream : 0);
    out.kept = whole - tokens * r.bytes * again;
    out.working = gradients + tokens * r.bytes * again;
  } else {
    const double again = of_modules(spec, w, r, spec.is_moe(layer), experts_kept);
    out.kept = whole - tokens * r.bytes * again;
    out.working = gradients + tokens * r.bytes * again;
  }
  out.forward = tokens * (forward_elements(w) * r.bytes + mask) + chunk.forward;
  // A state's working memory, where the layer's input is one sum again.
  if (!r.lean && scan.forward > 0)
    out.forward = std::max(out.forward, tokens * r.bytes * (2 * w.stream + w.query_input + w.state) + scan.forward);
  out.of_kernel = tokens * r.bytes * (w.joined + w.value);
  // Inputs of the four GEMMs and the gradients of their outputs.
  double operands = 0;
  if (t.queries) operands += w.hidden + w.joined + w.state;
  if (t.output) operands += w.value + w.hidden;
  if (t.up) operands += w.hidden + w.up;
  if (t.down) operands += w.down + w.hidden;
  if (t.expert_up) operands += w.experts * (w.expert_rows + w.expert_up);
  if (t.expert_down) operands += w.experts * (w.expert_down + w.expert_rows);
  out.kept_for_weights = tokens * r.bytes * operands;
  return out;
}

HeadActivations head_activations(const arch::ModelSpec& spec, const ActivationRequest& r, const LossRequest& loss) {
  const double tokens = static_cast<double>(r.tokens);
  const double stream = r.sequence_parallel ? static_cast<double>(spec.hidden) / r.tp : spec.hidden;
  const double vocabulary = static_cast<double>(spec.outputs()) / (r.shares != nullptr ? r.shares->vocabulary : r.tp);
  HeadActivations out;
  out.kept = tokens * r.bytes * (stream + spec.hidden);
  out.forward = tokens * r.bytes * (2 * stream + spec.hidden);  // the residual stream is still in two parts
  if (loss.plan.chunked()) {
    const auto columns = static_cast<std::int64_t>(vocabulary);
    const auto rows = loss.plan.rows(r.tokens, spec.hidden, columns);
    // In float32: copies of 16-bit logit gradients, which GEMMs on a GPU widen themselves (ops::accumulate_product),
    // and the softcap's derivative.
    const bool copied = r.bytes < 4 && loss.gradient_bytes > 0 && (!r.cuda || r.lean);
    const double wide = (copied ? 4 : 0) + (spec.logit_softcap > 0 ? 4 : 0);
    out.chunk = static_cast<double>(rows) * vocabulary * (r.bytes + wide);
    // The teacher's logits; both models' probabilities, logarithms and gradients in float32 (ops/distillation.cpp).
    if (loss.plan.distillation) out.chunk += static_cast<double>(rows) * vocabulary * (r.bytes + 10 * 4);
    // float32 accumulator over chunks for a 16-bit weight gradient.
    if (rows < r.tokens && loss.gradient_bytes == 2) out.chunk += 4 * vocabulary * spec.hidden;
    if (loss.float8_gradient) out.chunk += 4 * vocabulary * spec.hidden;
    out.chunk += tokens * r.bytes * spec.hidden;  // the gradient of the matmul's input, in addition to the input
    return out;
  }
  out.logits = tokens * r.bytes * vocabulary;
  // The backward pass of a factor has two gradients at once, that of a cap also its tanh and the derivative.
  const bool divided = spec.head_rows_normed && !r.lean;
  double more = spec.logit_scale != 1 || spec.head_rows_normed ? 1 : 0;
  if (spec.logit_softcap > 0 || loss.plan.logit_softcap > 0) more = 3;
  const double head = vocabulary * spec.hidden;
  out.working_forward = tokens * vocabulary * (loss.beside + more * r.bytes);
  out.working = tokens * vocabulary * (loss.beside + (divided ? 5 : more) * r.bytes) +
                (loss.float8_gradient ? r.bytes * head : 0);
  // Copies for the matmuls: of the weight, and of the logits' gradient.
  out.working_forward = std::max(out.working_forward, loss.product_bytes * head);
  const double copied = std::max(loss.product_bytes, loss.adapter_copies * r.bytes);
  out.working = std::max(out.working, copied * tokens * vocabulary + loss.product_bytes * head);
  // Through the rows' lengths, two gradients of the head in float32 or wider.
  if (divided && loss.gradient_bytes > 0) out.working = std::max(out.working, 2 * std::max(4, r.bytes) * head);
  return out;
}

}  // namespace automodel::estimate
