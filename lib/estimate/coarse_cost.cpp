#include "estimate/coarse_cost.h"

#include <algorithm>
#include <cmath>

#include "arch/counts.h"
#include "estimate/activation_memory.h"
#include "estimate/layer_traffic.h"
#include "estimate/recompute_time.h"
#include "estimate/score_time.h"

namespace automodel::estimate {
namespace {

/// Quantities that do not depend on the schedule.
struct Parts {
  double layers, per_rank;           ///< layers of the model, per rank
  double forward, backward;          ///< seconds per layer and microbatch
  double head;                       ///< seconds of the head, both passes
  double elements, expert_elements;  ///< on the heaviest rank, before data-parallel sharding
  double kept, working, logits;      ///< bytes
};

Parts parts_of(const CoarseRequest& r) {
  const auto& spec = *r.spec;
  const int bytes = size_of(r.types.compute);
  const double tokens = static_cast<double>(r.microbatch * r.sequence) / r.sizes.cp;
  const int layer = spec.layers - 1;  // has experts if any layer does
  ActivationRequest activation{.tokens = static_cast<std::int64_t>(tokens),
                               .sequence = r.sequence / r.sizes.cp,
                               .bytes = bytes,
                               .tp = r.sizes.tp,
                               .cp = r.sizes.cp,
                               .sequence_parallel = r.sharding.sequence_parallel,
                               .experts_apart = r.sizes.ep > 1,
                               .cuda = r.cuda};
  const double all = layer_activations(spec, layer, activation).kept;
  activation.recompute = r.recompute;
  activation.lean = r.bytes.lean;
  const auto kept = layer_activations(spec, layer, activation);
  const double products = tokens * arch::layer_product_flops_per_token(spec, *r.layout, layer) / r.sizes.tp;
  const double scores = tokens * arch::layer_score_flops_per_token(spec, layer, r.sequence) / r.sizes.tp;
  const double moved = r.hardware.measured() ? 0 : r.hardware.moved * all / r.hardware.memory_bandwidth;
  const auto seconds = [&](double work, double efficiency) { return work / (r.hardware.peak * efficiency); };
  const auto attention = score_time(spec, layer, scores, bytes, r.sequence, r.sizes.cp, r.hardware);
  double overhead = r.hardware.layer_overhead;
  const auto dispatch = dispatch_of(r.hardware, r.sizes.ep);
  if (spec.moe) overhead += dispatch.seconds(static_cast<double>(spec.moe->experts) / r.sizes.ep, tokens / r.sizes.tp);
  const auto tp = group_link(r.hardware, 1, r.sizes.tp), ep = exchange_link(r.hardware, 1, r.sizes.ep);
  const double stream = tokens * spec.hidden * bytes;
  double inside = 2 * all_reduce_seconds(stream, r.sizes.tp, tp.link) * (r.overlapped ? kTensorExposed : 1);
  if (spec.moe) {
    double rows = spec.moe->top_k;
    // One row per machine rather than per expert, assuming that a token's experts are spread over all machines.
    if (dispatch.dispatcher == config::Dispatcher::kDeduplicated)
      rows = std::min(rows, std::ceil(static_cast<double>(r.sizes.ep) / r.hardware.per_node));
    inside += 2 * all_to_all_seconds(stream * rows / r.sizes.tp, r.sizes.ep, ep.link);
  }
  // Keys and values from the other ranks of the ring, hidden behind GEMMs if the device overlaps them.
  const auto cp = group_link(r.hardware, r.sizes.tp, r.sizes.cp);
  const double keys = 2.0 * tokens * spec.kv_heads * spec.head_dim / std::min(r.sizes.tp, spec.kv_heads) * bytes;
  const double ring = r.sizes.cp > 1 ? (r.sizes.cp - 1) * (cp.link.latency + keys / cp.link.bandwidth) : 0;
  const double work = seconds(products, r.hardware.forward_efficiency) + attention.forward;
  const auto waited = [&](double transfer, double behind) {
    return r.cuda ? std::max(0.1 * transfer, transfer - 0.5 * behind) : transfer;
  };
  Parts out{};
  out.layers = spec.layers;
  out.per_rank = std::ceil(out.layers / (r.sizes.pp * r.stages_per_rank)) * r.stages_per_rank;
  out.forward = work + moved + overhead + inside + waited(ring, work);
  // Attention scores have no weights, so freezing weights does not make their backward pass cheaper.
  out.backward = (1 + r.trained) * seconds(products, r.hardware.backward_efficiency) + attention.backward + 2 * moved +
                 overhead + inside + waited(2 * ring, 2 * work);
  if (r.recompute == plan::Recompute::kFull)
    out.backward += out.forward - seconds(tokens * unrepeated_flops(spec, layer, r.hardware, r.sharding) / r.sizes.tp,
                                          r.hardware.forward_efficiency);
  if (r.recompute == plan::Recompute::kSelective)
    out.backward += feed_forward_share(spec, *r.layout, layer, r.sequence) * out.forward;
  out.head =
      (2 + r.trained) * seconds(tokens * arch::head_flops_per_token(spec) / r.sizes.tp, r.hardware.head_efficiency);
  const auto counts = arch::count_layer(*r.layout, layer);
  const auto experts = static_cast<double>(counts.of(arch::Role::kExpert));
  out.elements = (static_cast<double>(counts.total()) - experts) / r.sizes.tp * out.per_rank +
                 static_cast<double>(spec.vocab) * spec.hidden / r.sizes.tp *
                     (r.sizes.pp == 1 && !spec.tied_embeddings && spec.classes == 0 ? 2 : 1);
  out.expert_elements = experts / r.sizes.ep * out.per_rank;
  out.kept = kept.kept;
  out.working = kept.working;
  const auto whole = static_cast<std::int64_t>(tokens);
  const auto chunk = r.loss.rows(whole, spec.hidden, spec.outputs() / r.sizes.tp);
  const double beside = r.loss.chunked() ? 0 : r.bytes.beside_logits;
  out.logits = static_cast<double>(chunk) * spec.outputs() * (bytes + beside) / r.sizes.tp;
  return out;
}

}  // namespace

CoarseCost coarse_cost(const CoarseRequest& r) {
  const auto parts = parts_of(r);
  const auto& s = r.sharding;
  const double compute = r.bytes.values, master = r.bytes.master;
  const double gradient = r.bytes.gradient, reduce = size_of(r.types.reduce);
  const double elements = parts.elements + parts.expert_elements;
  const double shard = parts.elements / s.shards + parts.expert_elements / s.expert_shards;
  CoarseCost out;

  // Time.
  const double rank = std::max((parts.layers * (parts.forward + parts.backward) + parts.head) / r.sizes.pp,
                               parts.per_rank * (parts.forward + parts.backward));
  const double busy = rank * r.microbatches;
  const auto link = group_link(r.hardware, r.sizes.tp, s.shards);
  const auto copies = group_link(r.hardware, r.sizes.tp * s.shards, s.replicas);
  const bool each = s.gradients && !s.defer_reduction;
  const double reductions = each ? r.microbatches : 1;
  const auto experts = group_link(r.hardware, r.sizes.per_stage() / s.expert_shards, s.expert_shards);
  const auto moved = [&](double bytes, double dense_times, double expert_times) {
    return dense_times * all_gather_seconds(parts.elements * bytes, s.shards, link.link) +
           expert_times * all_gather_seconds(parts.expert_elements * bytes, s.expert_shards, experts.link);
  };
  const double sums = (s.optimizer ? 1 : 2) * reductions;
  double traffic = moved(compute, s.gathers(r.microbatches, false), s.gathers(r.microbatches, true)) +
                   moved(r.trained * reduce, sums, sums);
  traffic += reductions * all_reduce_seconds(parts.elements / (s.optimizer ? s.shards : 1) * r.trained * reduce,
                                             s.replicas, copies.link);
  const double exposed = r.cuda ? std::max(0.05 * traffic, traffic - 0.8 * busy) : traffic;
  const double updated = r.trained * (s.optimizer ? shard : elements);
  out.step = busy / (1 - r.schedule.bubble) + exposed +
             updated * (2 * gradient + 6 * master) / r.hardware.memory_bandwidth + r.hardware.step_overhead;

  // Memory.
  double weights = elements * compute;
  if (s.parameters && s.reshard_after_forward) {
    const double kept = s.keep_experts ? parts.expert_elements : 0;
    weights = (kept + 3 * (elements - kept) / std::max(1.0, parts.per_rank)) * compute;
  }
  const double held = r.trained * (s.optimizer ? shard : elements);
  if (!s.offloaded && s.parameters) weights += (1 - r.trained) * shard * compute;
  if (!s.offloaded && (s.optimizer || master != compute)) weights += held * master;
  const double moments = s.offloaded ? 0 : held * r.bytes.moment * r.moments;
  const bool by_unit = s.gradients && (each || (r.bytes.by_unit && r.microbatches == 1));
  const double whole = r.trained * (by_unit ? elements / std::max(1.0, parts.per_rank) : elements);
  const double shards_there = r.bytes.by_unit ? 1 : 2;
  const double gradients = whole * gradient + (s.optimizer ? shards_there * r.trained * shard * r.bytes.reduced : 0);
  out.memory = weights + moments + gradients + r.schedule.in_flight * parts.per_rank / r.stages_per_rank * parts.kept +
               parts.working + r.hardware.framework;
  if (r.sizes.pp == 1) out.memory += parts.logits;
  out.memory += r.bytes.reserved * (out.memory - r.hardware.framework);
  return out;
}

}  // namespace automodel::estimate
