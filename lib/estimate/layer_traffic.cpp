#include "estimate/layer_traffic.h"

#include <algorithm>
#include <cmath>

#include "estimate/activation_memory.h"
#include "plan/training_plan.h"

namespace automodel::estimate {
namespace {

/// Fraction of a ring's transfer time that overlapping with attention does not hide.
constexpr double kRingExposed = 0.3;
// For GPUs, fitted on published runs (docs/estimates.md).
constexpr double kExpertExposed = 0.8;    // exposed fraction of token dispatch overlapped with computing other tokens
constexpr double kDispatchReached = 0.7;  // fraction of the link bandwidth reached

/// A group of ranks and what one of them sends in the group's collectives. Byte counts are of whole tensors.
class Group {
 public:
  Group(const GroupLink& group, int size) : group_(group), size_(size) {}

  Sent gather(double bytes) const { return sent(1, bytes, all_gather_seconds(bytes, size_, group_.link)); }
  Sent scatter(double bytes) const { return sent(1, bytes, reduce_scatter_seconds(bytes, size_, group_.link)); }
  Sent sum(double bytes) const { return sent(2, bytes, all_reduce_seconds(bytes, size_, group_.link)); }
  Sent exchange(double bytes) const { return sent(1, bytes, all_to_all_seconds(bytes, size_, group_.link)); }
  /// `count` messages of `bytes` to the next rank.
  Sent pass_on(double bytes, int count, double exposed) const {
    if (size_ <= 1) return {};
    const double all = bytes * count, seconds = all / group_.link.bandwidth;
    return {all, seconds, exposed * seconds + count * group_.link.latency};
  }

 private:
  Sent sent(int times, double bytes, double seconds) const {
    if (size_ <= 1) return {};
    const double all = times * bytes * (size_ - 1) / size_;
    return {all, all / group_.link.bandwidth, seconds};
  }

  GroupLink group_;
  int size_;
};

struct Passes {
  Sent forward = {}, backward = {};
};
Passes operator+(const Passes& a, const Passes& b) {
  return {a.forward + b.forward, a.backward + b.backward};
}

class Layer {
 public:
  Layer(const plan::TrainingPlan& plan, const Hardware& hardware, int layer)
      : plan_(plan),
        hardware_(hardware),
        spec_(plan.model->spec),
        sizes_(plan.mesh.sizes()),
        layer_(layer),
        moe_(spec_.is_moe(layer)),
        element_(size_of(plan.types.compute)),
        tokens_(static_cast<double>(plan.batch.microbatch * plan.batch.planned_length()) / sizes_.cp),
        tensor_(group_link(hardware, 1, sizes_.tp), sizes_.tp) {}

  /// Tensor-parallel communication of attention's projections.
  Passes attention() const {
    double in = spec_.hidden;
    if (spec_.mixer(layer_) == arch::Mixer::kNone) return {};
    if (spec_.mixer(layer_) == arch::Mixer::kMambaAndAttention) return products(in) + products(in);
    if (const auto& latent = spec_.latent;
        latent && spec_.attends(layer_))  // the low-rank parts are computed on every rank
      in = (latent->q_rank > 0 ? latent->q_rank : in) + latent->kv_rank + latent->rope_dim;
    return products(in);
  }

  /// Tensor-parallel communication of the feed-forward block.
  Passes feed() const {
    if (!spec_.has_feed(layer_)) return {};
    if (!moe_) return products(spec_.hidden);
    Passes out;
    // Each rank routes its share of the tokens; with sequence parallelism it only has those anyway.
    if (!plan_.tensor.sequence_parallel) out.forward = out.backward = tensor_.gather(bytes(spec_.hidden));
    return spec_.moe->shared_ffn > 0 ? out + products(spec_.hidden) : out;
  }

  /// Token dispatch to experts and back, in one pass.
  Sent exchange() const {
    const int size = sizes_.ep * plan_.expert_tensor;
    if (!moe_ || size <= 1) return {};
    // Each part of a divided expert receives the row.
    const double row = bytes(spec_.expert_hidden()) / sizes_.tp;
    auto sent = exchanged(row * spec_.moe->top_k * plan_.expert_tensor, size);
    if (dispatch_of(hardware_, size).dispatcher == config::Dispatcher::kDeduplicated) sent = deduplicated(row, size);
    if (plan_.execution.experts.overlap_experts) sent.exposed *= kExpertExposed;
    return sent + sent;
  }

  Passes context() const {
    if (sizes_.cp <= 1) return {};
    Passes out;
    if (spec_.attends(layer_)) out = out + (sees_choice() ? chosen_context() : attention_context());
    // A recurrent layer's inputs and outputs, exchanged for whole sequences of heads.
    const auto state = state_exchange(spec_, layer_, sizes_.tp, sizes_.cp);
    if (spec_.mixer(layer_) == arch::Mixer::kShortConv) {
      // The tokens that a convolution looks back to from each of two chunks per rank: gathered, their gradients summed.
      const Group every(group_link(hardware_, sizes_.tp, sizes_.cp), sizes_.cp);
      const double tokens = static_cast<double>(plan_.batch.microbatch) * 2 * sizes_.cp * (spec_.recurrence->taps - 1);
      const double looked_at = tokens * spec_.hidden / sizes_.tp * element_;
      return {every.gather(looked_at), every.sum(looked_at)};
    }
    const Group all(exchange_link(hardware_, sizes_.tp, sizes_.cp), sizes_.cp);
    for (const double width : {state.to, state.from}) {
      if (width == 0) continue;
      const auto sent = all.exchange(bytes(width) / sizes_.tp);
      out = out + Passes{sent, sent};
    }
    return out;
  }

 private:
  /// Whether attention sees only what an index chooses, here or in an earlier layer.
  bool sees_choice() const { return spec_.index && spec_.index->limits(layer_, plan_.batch.planned_length()); }
  /// Queries, keys and values are exchanged for whole sequences of heads; keys of the index and choices are gathered.
  Passes chosen_context() const {
    const Group all(exchange_link(hardware_, sizes_.tp, sizes_.cp), sizes_.cp);
    const double head = spec_.latent ? std::max(spec_.head_dim, spec_.latent->v_dim) : spec_.head_dim;
    const int groups = spec_.latent ? spec_.heads : spec_.kv_heads;
    const double copies = std::max(1.0, static_cast<double>(sizes_.cp) * sizes_.tp / groups);
    const double in = spec_.head_dim * (spec_.heads + copies * groups) + head * copies * groups;
    const auto exchanged = all.exchange(bytes(in) / sizes_.tp) + all.exchange(bytes(head) * spec_.heads / sizes_.tp);
    Passes out{exchanged, exchanged};
    if (!spec_.index->chooses(layer_)) return out;
    const Group gathered(group_link(hardware_, sizes_.tp, sizes_.cp), sizes_.cp);
    const double tokens = tokens_ * sizes_.cp;
    out.forward += gathered.gather(tokens * spec_.index->dim * element_);
    out.forward += gathered.gather(tokens * choice_bytes(*spec_.index, plan_.batch.planned_length()));
    return out;
  }
  /// The exchanges of attention's keys, values and heads.
  Passes attention_context() const {
    const auto& how = plan_.context;
    // The runtime pads values to the width of the keys.
    const int width = spec_.head_dim_of(layer_), count = spec_.heads_of(layer_);
    const double head = std::max(width, spec_.latent ? spec_.latent->v_dim : spec_.value_dim_of(layer_));
    const double query = bytes(width) * count / sizes_.tp, result = bytes(head) * count / sizes_.tp;
    const double groups = std::max(1.0, static_cast<double>(spec_.kv_heads_of(layer_)) / sizes_.tp);
    const double key = bytes(width) * groups, value = bytes(head) * groups;
    const Group heads(exchange_link(hardware_, sizes_.tp, how.heads), how.heads);
    Passes out;
    for (const double each : {query, key, value, result}) out.forward += heads.exchange(each);
    out.backward = out.forward;
    // Gradients of keys and values are accumulated in at least float32.
    const int stride = sizes_.tp * how.heads, n = how.keys;
    const double wider = std::max(1.0, 4 / element_);
    if (how.gather) {
      const Group keys(group_link(hardware_, stride, n), n);
      const auto gathered = keys.gather(n * key) + keys.gather(n * value);
      return out + Passes{gathered, gathered + keys.scatter(n * key * wider) + keys.scatter(n * value * wider)};
    }
    const Group keys(neighbour_link(hardware_, stride, n), n);
    const double exposed = plan_.cuda ? kRingExposed : 1;
    const auto around = keys.pass_on(key + value, n - 1, exposed);
    return out + Passes{around, around + keys.pass_on((key + value) * wider, n, exposed)};
  }

  /// One row for every expert chosen by a token.
  Sent exchanged(double rows, int size) const { return Group(expert_link(plan_, hardware_), size).exchange(rows); }

  /// One row per machine with chosen experts, which forwards it once to each of its ranks that has some.
  Sent deduplicated(double row, int size) const {
    const double here = std::min(size, std::max(1, hardware_.per_node)), machines = std::ceil(size / here);
    const auto& moe = *spec_.moe;
    const auto distinct = [](double places, double choices) {
      return places * (1 - std::pow(1 - 1 / places, choices));
    };
    // Experts of a group are adjacent, so a token restricted to few groups goes to few machines.
    double far = distinct(machines, moe.top_k);
    if (moe.groups > 1) far = std::min(far, distinct(machines, moe.top_groups * std::max(1.0, machines / moe.groups)));
    far *= (machines - 1) / machines;
    const double near = distinct(size, static_cast<double>(moe.top_k) * plan_.expert_tensor) * (size - 1) / size;
    Sent out;
    out.bytes = row * std::max(far, machines > 1 ? far : near);
    out.transfer = std::max(row * far / hardware_.network.bandwidth, row * near / hardware_.node.bandwidth);
    const double latency = machines > 1 ? hardware_.network.latency : hardware_.node.latency;
    out.exposed = out.transfer / kDispatchReached + 2 * latency;
    return out;
  }

  /// Bytes of a microbatch's activations of this width.
  double bytes(double width) const { return tokens_ * width * element_; }

  /// A column-parallel linear layer of input width `in`, followed by a row-parallel one.
  Passes products(double in) const {
    const double x = bytes(in), y = bytes(spec_.hidden);
    if (!plan_.tensor.sequence_parallel) return {tensor_.sum(y), tensor_.sum(x)};
    const auto& overlap = plan_.tensor.overlap;
    const auto under = [&](Sent sent, bool overlapped) {
      if (overlapped && plan_.cuda) sent.exposed *= kTensorExposed;
      return sent;
    };
    // Weight gradients need the whole input again.
    return {under(tensor_.gather(x), overlap.gather) + under(tensor_.scatter(y), overlap.scatter),
            under(tensor_.gather(y), overlap.gather) + under(tensor_.gather(x), overlap.gather_in_backward) +
                under(tensor_.scatter(x), overlap.scatter_in_backward || overlap.scatter_under_weights)};
  }

  const plan::TrainingPlan& plan_;
  const Hardware& hardware_;
  const arch::ModelSpec& spec_;
  const mesh::MeshSizes& sizes_;
  int layer_;
  bool moe_;
  double element_;  ///< bytes
  double tokens_;
  Group tensor_;
};

}  // namespace

Sent& Sent::operator+=(const Sent& other) {
  bytes += other.bytes;
  transfer += other.transfer;
  exposed += other.exposed;
  return *this;
}

Sent operator+(Sent a, const Sent& b) {
  return a += b;
}

LayerTraffic& LayerTraffic::operator+=(const LayerTraffic& other) {
  tensor += other.tensor;
  context += other.context;
  experts += other.experts;
  return *this;
}

LayerPasses layer_passes(const plan::TrainingPlan& plan, const Hardware& hardware, plan::Recompute recompute,
                         int layer) {
  const Layer parts(plan, hardware, layer);
  const auto attention = parts.attention(), feed = parts.feed(), context = parts.context();
  const auto exchange = parts.exchange();
  LayerPasses out;
  out.forward = {attention.forward + feed.forward, context.forward, exchange};
  out.backward = {attention.backward + feed.backward, context.backward, exchange};
  if (recompute == plan::Recompute::kFull) out.backward += out.forward;
  if (recompute == plan::Recompute::kSelective) out.backward += {.tensor = feed.forward, .experts = exchange};
  return out;
}

LinkClass context_link(const plan::TrainingPlan& plan, const Hardware& hardware) {
  const auto& sizes = plan.mesh.sizes();
  return neighbour_link(hardware, sizes.tp, sizes.cp).kind;
}

GroupLink expert_link(const plan::TrainingPlan& plan, const Hardware& hardware) {
  return exchange_link(hardware, 1, plan.mesh.sizes().ep * plan.expert_tensor);
}

}  // namespace automodel::estimate
