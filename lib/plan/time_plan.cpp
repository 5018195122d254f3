#include "plan/time_plan.h"

#include <algorithm>

#include "arch/counts.h"
#include "plan/training_plan.h"

namespace automodel::plan {
namespace {

class Timing {
 public:
  Timing(const TrainingPlan& plan, const TimeRequest& request)
      : plan_(plan),
        hardware_(request.hardware),
        sharding_(request.sharding),
        request_(request),
        sizes_(plan.mesh.sizes()),
        sequence_(plan.batch.planned_length()),
        tokens_(static_cast<double>(plan.batch.microbatch * sequence_) / sizes_.cp),
        compute_(size_of(plan.types.compute)),
        tp_(group_link(hardware_, 1, sizes_.tp)),
        cp_(group_link(hardware_, sizes_.tp, sizes_.cp)),
        ep_(group_link(hardware_, 1, sizes_.ep)),
        shard_(group_link(hardware_, sizes_.tp, sharding_.shards)),
        replica_(group_link(hardware_, sizes_.tp * sizes_.cp * sizes_.dp_shard, sharding_.replicas)),
        pp_(group_link(hardware_, sizes_.per_stage(), sizes_.pp)) {}

  SplitCost costs() const {
    const auto sum = [](const StageTime& time) { return time.forward + time.backward; };
    SplitCost out;
    for (int layer = 0; layer < plan_.model->spec.layers; ++layer) {
      StageTime time;
      add_layer(time, layer);
      out.layers.push_back(sum(time));
    }
    StageTime first, last;
    add_embedding(first);
    add_head(last);
    out.first = sum(first);
    out.last = sum(last);
    return out;
  }

  TimePlan run() {
    for (const auto& stage : plan_.pipeline->stages) out_.stages.push_back(stage_time(stage));
    run_schedule();
    out_.optimizer = optimizer_seconds();
    out_.step = out_.schedule + out_.communication + out_.optimizer + hardware_.step_overhead;
    double flops = 0;
    for (const auto& stage : plan_.pipeline->stages) flops += 3 * stage.flops - frozen_flops(stage);
    out_.flops = flops * plan_.batch.microbatches * plan_.batch.runs * sizes_.dp();
    const double tokens = static_cast<double>(plan_.batch.global) * static_cast<double>(sequence_);
    out_.tokens_per_second = tokens / out_.step;
    out_.mfu = out_.flops / (out_.step * hardware_.peak * sizes_.world());
    list_traffic();
    return std::move(out_);
  }

 private:
  double pass_seconds(double flops, double efficiency, double moved) const {
    return flops / (hardware_.peak * efficiency) + moved / hardware_.memory_bandwidth;
  }

  /// Of weight gradients that nobody computes: a third of the products with frozen weights, of a microbatch.
  double frozen_flops(const StagePlan& stage) const {
    if (!plan_.adapters) return 0;
    double out = stage.part.has_head ? arch::head_flops_per_token(plan_.model->spec) : 0;
    for (const int layer : stage.part.layers)
      out += arch::layer_product_flops_per_token(plan_.model->spec, plan_.model->layout, layer);
    return out * static_cast<double>(plan_.batch.microbatch * sequence_);
  }

  /// Frozen weights have no gradients.
  PartTime trained(PartTime part) const {
    if (!plan_.adapters) return part;
    part.backward -= part.backward_weight;
    part.backward_weight = 0;
    return part;
  }

  void add_adapters(const StagePlan& stage, StageTime& out) const {
    const double flops = 2 * tokens_ * static_cast<double>(stage.adapters) / sizes_.tp;
    PartTime part{.work = flops};
    part.forward = pass_seconds(flops, hardware_.forward_efficiency, 0);
    part.backward_input = pass_seconds(flops, hardware_.backward_efficiency, 0);
    part.backward_weight = pass_seconds(2 * flops, hardware_.backward_efficiency, 0);
    part.backward = part.backward_input + part.backward_weight;
    add(out, part, 0, 0);
  }

  /// One layer without communication: as it was measured, or by rates of arithmetic and of memory.
  PartTime layer_time(int layer, double flops) const {
    const auto& spec = plan_.model->spec;
    if (hardware_.rates) {
      auto out = hardware_.rates->layer(layer_kind(spec, layer)).for_work(flops / hardware_.share);
      out.work = flops;
      return out;
    }
    const ActivationRequest activation{.tokens = static_cast<std::int64_t>(tokens_),
                                       .sequence = sequence_ / sizes_.cp,
                                       .bytes = compute_,
                                       .tp = sizes_.tp,
                                       .sequence_parallel = sharding_.sequence_parallel,
                                       .fused_attention = true};
    const double moved = 2 * layer_activations(spec, layer, activation).kept;
    PartTime out{.work = flops};
    out.forward = pass_seconds(flops, hardware_.forward_efficiency, moved) + hardware_.layer_overhead;
    out.backward = pass_seconds(2 * flops, hardware_.backward_efficiency, 2 * moved) + hardware_.layer_overhead;
    out.backward_weight = 0.5 * pass_seconds(2 * flops, hardware_.backward_efficiency, 0);
    out.backward_input = out.backward - out.backward_weight;
    return out;
  }

  static void add(StageTime& out, const PartTime& part, double recomputed, double communication) {
    out.flops += part.work;
    out.forward += part.forward + communication;
    out.backward_input += part.backward_input + recomputed + communication;
    out.backward_weight += part.backward_weight;
    out.backward += part.backward + recomputed + communication;
  }

  void add_layer(StageTime& out, int layer) const {
    const auto& spec = plan_.model->spec;
    const auto& layout = plan_.model->layout;
    const double flops = tokens_ * arch::layer_flops_per_token(spec, layout, layer, sequence_) / sizes_.tp;
    const auto part = trained(layer_time(layer, flops));
    double again = 0;
    if (request_.recompute == config::ActivationCheckpointing::kFull) again = part.forward;
    if (request_.recompute == config::ActivationCheckpointing::kSelective)
      again = feed_forward_share(spec, layout, layer, sequence_) * part.forward;
    add(out, part, again, inside_layer(spec.is_moe(layer)));
  }

  StageTime stage_time(const StagePlan& stage) const {
    StageTime out;
    for (const int layer : stage.part.layers) add_layer(out, layer);
    if (stage.part.has_embedding) add_embedding(out);
    if (stage.part.has_head) add_head(out);
    if (plan_.adapters) add_adapters(stage, out);
    return out;
  }

  /// Communication of a layer's forward pass (and once more in its backward pass) that nothing hides.
  double inside_layer(bool moe) const {
    const auto& spec = plan_.model->spec;
    const double stream = tokens_ * spec.hidden * compute_;
    double out = 2 * all_reduce_seconds(stream, sizes_.tp, tp_.link);
    if (sizes_.cp > 1) {
      const double keys = 2 * tokens_ * spec.kv_heads * spec.head_dim * compute_ / sizes_.tp * (sizes_.cp - 1);
      out += keys / cp_.link.bandwidth * (plan_.cuda ? 0.3 : 1) + (sizes_.cp - 1) * cp_.link.latency;
    }
    if (moe && sizes_.ep > 1) out += 2 * all_to_all_seconds(stream * spec.moe->top_k / sizes_.tp, sizes_.ep, ep_.link);
    return out;
  }

  void add_embedding(StageTime& out) const {
    const double elements = tokens_ * plan_.model->spec.hidden, stream = elements * compute_;
    PartTime part;
    if (hardware_.rates) {
      part = hardware_.rates->layers.embedding.for_work(elements / hardware_.share);
      part.backward_input = 0;  // ids have no gradient
      part.backward_weight = part.backward;
    } else {
      part.forward = 2 * stream / hardware_.memory_bandwidth;
      part.backward = part.backward_weight = 4 * stream / hardware_.memory_bandwidth;
    }
    part = trained(part);
    part.work = 0;
    part.forward += all_reduce_seconds(stream, sizes_.tp, tp_.link);
    add(out, part, 0, 0);
  }

  void add_head(StageTime& out) const {
    const auto& spec = plan_.model->spec;
    const double flops = tokens_ * arch::head_flops_per_token(spec) / sizes_.tp;
    PartTime part;
    if (hardware_.rates) {
      part = hardware_.rates->head.head.for_work(flops / hardware_.share);
    } else {
      const double logits = tokens_ * spec.vocab * compute_ / sizes_.tp;
      part.forward = pass_seconds(flops, hardware_.head_efficiency, 3 * logits);
      part.backward_input = part.backward_weight = part.forward;
      part.backward = 2 * part.forward;
    }
    part = trained(part);
    part.work = flops;
    part.forward += sizes_.tp > 1 ? 3 * tp_.link.latency * sizes_.tp : 0;
    const double sum = all_reduce_seconds(tokens_ * spec.hidden * compute_, sizes_.tp, tp_.link);
    part.backward_input += sum;
    part.backward += sum;
    add(out, part, 0, 0);
  }

  double stage_bytes(int stage, double bytes) const { return stage_elements(plan_, stage).total() * bytes; }
  double trained_bytes(int stage, double bytes) const { return stage_elements(plan_, stage).trained() * bytes; }
  double gather_seconds(int stage) const {
    if (!sharding_.parameters) return 0;
    return all_gather_seconds(stage_bytes(stage, compute_), sharding_.shards, shard_.link);
  }
  double reduce_seconds(int stage) const {
    const double bytes = trained_bytes(stage, size_of(plan_.types.reduce));
    const double sum = sharding_.optimizer ? reduce_scatter_seconds(bytes, sharding_.shards, shard_.link)
                                           : all_reduce_seconds(bytes, sharding_.shards, shard_.link);
    return sum +
           all_reduce_seconds(bytes / (sharding_.optimizer ? sharding_.shards : 1), sharding_.replicas, replica_.link);
  }

  bool reduces_each() const { return sharding_.gradients && !sharding_.defer_reduction; }

  void run_schedule() {
    const auto& made = plan_.pipeline->schedule;
    const int stages = made.shape.stages;
    schedule::Costs costs = schedule::unit_costs(stages);
    const double message = tokens_ * plan_.model->spec.hidden * size_of(plan_.types.message);
    for (int s = 0; s < stages; ++s) {
      const auto& time = out_.stages[static_cast<std::size_t>(s)];
      auto& cost = costs.stages[static_cast<std::size_t>(s)];
      cost.forward = time.forward;
      cost.backward_input = time.backward_input;
      cost.backward_weight = time.backward_weight;
      if (plan_.pipelined && reduces_each()) {
        const double reduce = reduce_seconds(s);
        cost.backward_weight += plan_.cuda ? std::max(0.0, reduce - 0.8 * time.backward) : reduce;
      }
      cost.full_backward = time.backward + cost.backward_weight - time.backward_weight;
      if (plan_.pipelined) cost.unshard = gather_seconds(s);
      if (s + 1 < stages)
        costs.edges[static_cast<std::size_t>(s)] = {pp_.link.latency,
                                                    pp_.kind == LinkClass::kNone ? 0 : message / pp_.link.bandwidth};
    }
    costs.overlap_communication = plan_.cuda;
    const auto simulated = [&] { return schedule::simulate(made.training, made.placement, made.shape, costs); };
    if (plan_.batch.runs > 1) out_.schedule = simulated().makespan * (plan_.batch.runs - 1);
    // What is reduced after every microbatch is already in its backward pass.
    for (int s = 0; s < stages && plan_.pipelined && !reduces_each(); ++s)
      costs.stages[static_cast<std::size_t>(s)].reduce_grad = reduce_seconds(s);
    out_.timeline = simulated();
    out_.schedule += out_.timeline.makespan;
    out_.bubble = out_.timeline.bubble_fraction;
    if (!plan_.pipelined) add_unpipelined_communication();
    if (sharding_.optimizer && !sharding_.parameters) {
      // The new values go to all ranks after the optimizer.
      double most = 0;
      for (int s = 0; s < stages; ++s)
        most = std::max(most, all_gather_seconds(trained_bytes(s, compute_), sharding_.shards, shard_.link));
      out_.communication += most;
    }
  }

  /// One stage: units are gathered before use in each pass and reduced in the last backward pass.
  void add_unpipelined_communication() {
    const auto& time = out_.stages[0];
    const double passes = plan_.batch.microbatches * plan_.batch.runs;
    const double gather = gather_seconds(0);
    const double reduce = reduce_seconds(0) * (reduces_each() ? passes : 1);
    const double gathers = sharding_.reshard_after_forward ? 2 * passes : 1;
    const auto exposed = [&](double communication, double computation, bool overlapped) {
      if (!overlapped || !plan_.cuda) return communication;
      const double units = std::max<double>(1, plan_.model->spec.layers);
      return std::max(communication / units, communication - computation);
    };
    out_.communication += gathers / 2 * exposed(gather, time.forward, sharding_.prefetch > 0 || plan_.cuda) +
                          gathers / 2 * exposed(gather, time.backward, sharding_.prefetch > 0 || plan_.cuda) +
                          exposed(reduce, time.backward, true);
  }

  double optimizer_seconds() const {
    double most = 0;
    for (int rank = 0; rank < sizes_.pp; ++rank) {
      double elements = 0;
      for (const auto& stage : plan_.pipeline->stages) {
        if (stage.pp_rank != rank) continue;
        const auto part = stage_elements(plan_, stage.stage);
        elements += sharding_.optimizer
                        ? part.trained_dense / sharding_.shards + part.trained_expert / sharding_.expert_shards
                        : part.trained();
      }
      most = std::max(most, elements);
    }
    if (hardware_.optimizer_rate > 0) return most / hardware_.optimizer_rate;
    // Reads gradient (twice: the norm), value and moments; writes value and moments.
    return most * (2 * size_of(plan_.types.gradient) + 6 * size_of(plan_.types.master)) / hardware_.memory_bandwidth;
  }

  void list_traffic() {
    const auto& spec = plan_.model->spec;
    const double passes = static_cast<double>(plan_.batch.microbatches) * plan_.batch.runs;
    const double stream = tokens_ * spec.hidden * compute_;
    int busiest = 0;
    for (std::size_t s = 0; s < plan_.pipeline->stages.size(); ++s)
      if (plan_.pipeline->stages[s].part.layers.size() >
          plan_.pipeline->stages[static_cast<std::size_t>(busiest)].part.layers.size())
        busiest = static_cast<int>(s);
    int layers = 0;
    double elements = 0, trained = 0, messages = 0;
    const int rank = plan_.pipeline->stages[static_cast<std::size_t>(busiest)].pp_rank;
    for (const auto& stage : plan_.pipeline->stages) {
      if (stage.pp_rank != rank) continue;
      layers += static_cast<int>(stage.part.layers.size());
      const auto part = stage_elements(plan_, stage.stage);
      elements += part.total();
      trained += part.trained();
      messages += (stage.stage > 0 ? 1 : 0) + (stage.part.has_head ? 0 : 1);
    }
    const auto add = [&](std::string axis, int size, const GroupLink& group, double bytes, std::string_view what) {
      if (size > 1)
        out_.traffic.push_back({std::move(axis), size, group.kind, bytes, bytes / group.link.bandwidth, what});
    };
    const auto share = [](int n) { return static_cast<double>(n - 1) / n; };
    if (plan_.pipelined)
      add("pp", sizes_.pp, pp_, messages * passes * tokens_ * spec.hidden * size_of(plan_.types.message),
          "hidden states and their gradients");
    const double tp_bytes = 4 * 2 * share(sizes_.tp) * stream * layers * passes;
    add("tp", sizes_.tp, tp_, tp_bytes, sharding_.sequence_parallel ? "gathers and reduce-scatters" : "all-reduces");
    add("cp", sizes_.cp, cp_,
        2 * 2 * tokens_ * spec.kv_heads * spec.head_dim * compute_ / sizes_.tp * (sizes_.cp - 1) * layers * passes,
        "keys and values");
    if (spec.moe)
      add("ep", sizes_.ep, ep_, 4 * share(sizes_.ep) * stream * spec.moe->top_k / sizes_.tp * layers * passes,
          "tokens to experts and back");
    const double reductions = reduces_each() ? passes : 1;
    const double reduced = trained * size_of(plan_.types.reduce);
    const double whole = (sharding_.parameters ? elements : trained) * compute_;
    const double gathers = !sharding_.parameters             ? (sharding_.optimizer ? 1 : 0)
                           : plan_.pipelined                 ? plan_.batch.runs
                           : sharding_.reshard_after_forward ? 2 * passes
                                                             : 1;
    add(plan_.mesh.strategy() == mesh::Strategy::kDdp ? "dp_cp" : "dp_shard_cp", sharding_.shards, shard_,
        share(sharding_.shards) * (sharding_.optimizer ? reductions * reduced + gathers * whole : 2 * reduced),
        sharding_.parameters ? "parameters and gradients" : "gradients");
    add("dp_replicate", sharding_.replicas, replica_, 2 * share(sharding_.replicas) * reduced / sharding_.shards,
        "gradients");
  }

  const TrainingPlan& plan_;
  const Hardware& hardware_;
  const Sharding& sharding_;
  const TimeRequest& request_;
  const mesh::MeshSizes& sizes_;
  std::int64_t sequence_;
  double tokens_;  ///< of a microbatch on a rank
  int compute_;    ///< bytes of an element
  GroupLink tp_, cp_, ep_, shard_, replica_, pp_;
  TimePlan out_ = {};
};

}  // namespace

double feed_forward_share(const arch::ModelSpec& spec, const arch::Layout& layout, int layer, std::int64_t sequence) {
  const double inputs = spec.gated_mlp ? 3 : 2;
  const double widths =
      spec.is_moe(layer) ? static_cast<double>(spec.moe->ffn) * (spec.moe->top_k + spec.moe->shared_experts) : spec.ffn;
  return 2 * inputs * widths * spec.hidden / arch::layer_flops_per_token(spec, layout, layer, sequence);
}

namespace {

double ring_seconds(double bytes, int size, double bandwidth, double latency) {
  return size <= 1 ? 0 : bytes * (size - 1) / size / bandwidth + (size - 1) * latency;
}
double or_else(double rate, double other) {
  return rate > 0 ? rate : other;
}

}  // namespace

double all_gather_seconds(double bytes, int size, const Link& link) {
  return ring_seconds(bytes, size, or_else(link.gather, link.bandwidth), link.latency);
}

double reduce_scatter_seconds(double bytes, int size, const Link& link) {
  return ring_seconds(bytes, size, or_else(link.scatter, link.bandwidth), link.latency);
}

double all_reduce_seconds(double bytes, int size, const Link& link) {
  return 2 * ring_seconds(bytes, size, or_else(link.sum, link.bandwidth), link.latency);
}

double all_to_all_seconds(double bytes, int size, const Link& link) {
  return ring_seconds(bytes, size, link.bandwidth, link.latency);
}

GroupLink group_link(const Hardware& hardware, int stride, int size) {
  if (size <= 1) return {};
  const int per_node = std::max(1, hardware.per_node);
  if (static_cast<std::int64_t>(stride) * size <= per_node) return {LinkClass::kNode, hardware.node};
  const int together = std::max(1, per_node / std::max(1, stride));
  Link link = hardware.network;
  link.bandwidth = std::min(hardware.node.bandwidth, link.bandwidth * together);
  return {LinkClass::kNetwork, link};
}

SplitCost split_cost(const TrainingPlan& plan, const TimeRequest& request) {
  return Timing(plan, request).costs();
}

TimePlan plan_time(const TrainingPlan& plan, const TimeRequest& request) {
  return Timing(plan, request).run();
}

}  // namespace automodel::plan
