#include "estimate/time_plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "arch/counts.h"
#include "estimate/layer_traffic.h"
#include "estimate/matrix_work.h"
#include "estimate/recompute_time.h"
#include "estimate/score_time.h"
#include "plan/model_names.h"
#include "plan/training_plan.h"

namespace automodel::estimate {
namespace {

// For GPUs, fitted on published runs (docs/estimates.md).
// Network slowdown per doubling of the number of machines that send at the same time.
constexpr double kContention = 0.1;
// Fraction of the overlapped data-parallel communication time by which GEMMs are slowed.
constexpr double kInterference = 0.5;

class Timing {
 public:
  Timing(const plan::TrainingPlan& plan, const Hardware& hardware)
      : plan_(plan),
        hardware_(hardware),
        sharding_(plan.sharding),
        sizes_(plan.mesh.sizes()),
        sequence_(plan.batch.planned_length()),
        tokens_(static_cast<double>(plan.batch.microbatch * sequence_) / sizes_.cp),
        compute_(size_of(plan.types.compute)),
        tp_(group_link(hardware_, 1, sizes_.tp)),
        shard_(data_link(sizes_.tp, sharding_.shards)),
        replica_(data_link(sizes_.tp * sizes_.cp * sizes_.dp_shard, sharding_.replicas)),
        expert_shard_(data_link(sizes_.ep * plan.expert_tensor, sharding_.expert_shards)),
        pp_(neighbour_link(hardware_, sizes_.per_stage(), sizes_.pp)) {}

  plan::SplitCost costs() const {
    const auto sum = [](const StageTime& time) { return time.forward + time.backward; };
    plan::SplitCost out;
    for (int layer = 0; layer < plan_.model->spec.layers; ++layer) {
      StageTime time;
      add_layer(time, layer);
      out.layers.push_back(sum(time));
    }
    StageTime first, last;
    add_embedding(first);
    for (const auto& tower : plan::towers_of(*plan_.model))
      if (!tower.cached) add_tower(tower, first);
    add_head(last);
    out.first = sum(first);
    out.last = sum(last);
    return out;
  }

  double cached_towers() const {
    StageTime out;
    for (const auto& tower : plan::towers_of(*plan_.model))
      if (tower.cached) add_tower(tower, out);
    return out.forward / plan_.batch.microbatch;
  }

  /// The stages' times, which schedule_costs() needs.
  Timing& add_stages() {
    for (const auto& stage : plan_.pipeline->stages) out_.stages.push_back(stage_time(stage));
    return *this;
  }

  schedule::Costs schedule_costs() const {
    const int stages = plan_.pipeline->schedule.shape.stages;
    schedule::Costs costs = schedule::unit_costs(stages);
    const double message = message_bytes();
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
    return costs;
  }

  /// Of a step's forward passes alone: each run fills the pipeline once, then the slowest rank sets the pace.
  double forward_seconds() const {
    double all = 0;
    std::vector<double> ranks(static_cast<std::size_t>(sizes_.pp), 0.0);
    for (const auto& stage : plan_.pipeline->stages) {
      const double seconds = out_.stages[static_cast<std::size_t>(stage.stage)].forward;
      all += seconds;
      ranks[static_cast<std::size_t>(stage.pp_rank)] += seconds;
    }
    return plan_.batch.runs * (all + (plan_.batch.microbatches - 1) * *std::max_element(ranks.begin(), ranks.end()));
  }

  TimePlan run() {
    add_stages();
    run_schedule();
    const double teaching = plan_.teacher ? Timing(*plan_.teacher, hardware_).add_stages().forward_seconds() : 0;
    out_.schedule += teaching;
    out_.optimizer = optimizer_seconds();
    out_.overhead = hardware_.step_overhead;
    out_.step = out_.schedule + out_.communication + out_.optimizer + out_.overhead;
    double flops = 0;
    for (const auto& stage : plan_.pipeline->stages) flops += 3 * stage.flops - plan::frozen_flops(plan_, stage.part);
    if (plan_.teacher)
      for (const auto& stage : plan_.teacher->pipeline->stages) flops += stage.flops;
    out_.flops = flops * plan_.batch.microbatches * plan_.batch.runs * sizes_.dp();
    const double tokens = static_cast<double>(plan_.batch.global) * static_cast<double>(sequence_);
    out_.tokens_per_second = tokens / out_.step;
    out_.mfu = out_.flops / (out_.step * hardware_.peak * sizes_.world());
    list_traffic();
    return std::move(out_);
  }

 private:
  /// Machines that send at the same time contend for the network.
  GroupLink data_link(int stride, int size) const {
    auto out = group_link(hardware_, stride, size);
    if (out.kind != LinkClass::kNetwork || !plan_.cuda) return out;
    const double machines = static_cast<double>(stride) * size / std::max(1, hardware_.per_node);
    out.link.bandwidth /= 1 + kContention * std::log2(std::max(1.0, machines));
    return out;
  }

  double pass_seconds(double flops, double efficiency, double moved) const {
    return flops / (hardware_.peak * efficiency) + moved / hardware_.memory_bandwidth;
  }

  /// Removes the weight gradients of frozen weights; `share` is the trained fraction.
  static PartTime trained(PartTime part, double share) {
    part.backward -= (1 - share) * part.backward_weight;
    part.backward_weight *= share;
    return part;
  }

  void add_adapters(const plan::StagePlan& stage, StageTime& out) const {
    const double flops = 2 * tokens_ * stage.active_adapters / sizes_.tp;
    PartTime part{.work = flops};
    part.forward = pass_seconds(flops, hardware_.forward_efficiency, 0);
    part.backward_input = pass_seconds(flops, hardware_.backward_efficiency, 0);
    part.backward_weight = pass_seconds(2 * flops, hardware_.backward_efficiency, 0);
    part.backward = part.backward_input + part.backward_weight;
    add_adapter_kernels(stage, part);
    add(out, part);
  }

  /// Adapters are bound by memory. The first matrices of weights with the same input are one product, which reads that
  /// once in the forward pass and twice for weight gradients, and adds to its gradient once; the second ones add to the
  /// outputs, whose gradients are read for both matrices.
  void add_adapter_kernels(const plan::StagePlan& stage, PartTime& part) const {
    const auto& spec = plan_.adapters->spec;
    const double start = hardware_.kernels.adapter;
    if (start <= 0) return;
    const bool apart = spec.dropout > 0 && spec.dropout_first;  // each term drops other features of the input
    double inputs = 0, outputs = 0;                             // per token
    double firsts = 0, seconds = 0;                             // products
    const arch::Parameter* before = nullptr;
    for (const auto& info : plan_.adapters->all) {
      if (!stage.part.has_adapter(info) || info.in_tower()) continue;
      const double here = info.is_expert() ? sizes_.ep : plan::tensor_ranks(plan_, info);
      const double width = static_cast<double>(info.shape.elements()) / spec.rank_of(info) / here *
                           plan::token_share(plan_.model->spec, info);
      const double product = info.is_expert() ? 1.0 / sizes_.ep : 1;
      if (arch::is_last_matrix(info)) {
        outputs += width, seconds += product;
        continue;
      }
      if (apart || before == nullptr || !plan::share_input(*before, info)) inputs += width, firsts += product;
      before = &info;
    }
    const double moved = tokens_ * compute_ / hardware_.memory_bandwidth;
    const double of_inputs = (2 * inputs + outputs) * moved + (firsts + seconds) * start;
    const double of_weights = of_inputs + firsts * start;
    part.forward += (inputs + 2 * outputs) * moved + (firsts + seconds) * start;
    part.backward_input += of_inputs;
    part.backward_weight += of_weights;
    part.backward += of_inputs + of_weights;
  }

  /// One layer without communication: as measured, or from compute and memory rates.
  PartTime layer_time(int layer, double products, double scores) const {
    const auto& spec = plan_.model->spec;
    const double flops = products + scores;
    if (hardware_.rates) {
      auto out = hardware_.rates->layer(layer_kind(spec, layer)).for_work(flops / hardware_.share);
      out.work = flops;
      return out;
    }
    const ActivationRequest activation{.tokens = static_cast<std::int64_t>(tokens_),
                                       .sequence = sequence_ / sizes_.cp,
                                       .bytes = compute_,
                                       .tp = sizes_.tp,
                                       .cp = sizes_.cp,
                                       .sequence_parallel = sharding_.sequence_parallel,
                                       .shares = &plan_.shares,
                                       .expert_tensor = plan_.expert_tensor,
                                       .experts_apart = sizes_.ep * plan_.expert_tensor > 1,
                                       .cuda = true};
    double moved = hardware_.moved * layer_activations(spec, layer, activation).kept;
    double overhead = hardware_.layer_overhead, expert = 0, padding = 0, sums = 0;
    if (spec.is_moe(layer)) {
      const auto& kernels = hardware_.kernels;
      const double experts = static_cast<double>(spec.moe->experts) / sizes_.ep;
      const double rows = tokens_ * spec.moe->top_k / sizes_.tp;
      overhead += dispatch_of(hardware_, sizes_.ep * plan_.expert_tensor).seconds(experts, tokens_ / sizes_.tp);
      moved += kernels.expert_rows * rows * static_cast<double>(spec.expert_hidden()) * compute_;
      expert = expert_flops(plan_);
      padding = kernels.expert_tile * experts / rows;
      sums = kernels.expert_sum * plan_.shares.layer(layer).expert / (sizes_.ep * plan_.expert_tensor) /
             hardware_.memory_bandwidth;
    }
    const auto attention = score_time(spec, layer, scores, compute_, sequence_, sizes_.cp, hardware_);
    const auto pass = [&](double efficiency) {
      const double of_experts = hardware_.expert_efficiency > 0 ? hardware_.expert_efficiency : efficiency;
      return pass_seconds(products - expert, efficiency, moved) + pass_seconds((1 + padding) * expert, of_experts, 0);
    };
    PartTime out{.work = flops};
    out.forward = pass(hardware_.forward_efficiency) + attention.forward + overhead;
    out.backward = 2 * pass(hardware_.backward_efficiency) + attention.backward + overhead + sums;
    // Scores have no weight gradients.
    out.backward_weight = pass_seconds(products, hardware_.backward_efficiency, 0) + sums;
    out.backward_input = out.backward - out.backward_weight;
    return out;
  }

  static void add(StageTime& out, const PartTime& part, double recomputed = 0, const LayerPasses& communication = {}) {
    const double more = recomputed + communication.backward.exposed();
    out.flops += part.work;
    out.forward += part.forward + communication.forward.exposed();
    out.backward_input += part.backward_input + more;
    out.backward_weight += part.backward_weight;
    out.backward += part.backward + more;
  }

  void add_layer(StageTime& out, int layer) const {
    const auto& spec = plan_.model->spec;
    const auto& layout = plan_.model->layout;
    const auto& shares = plan_.shares.layer(layer);
    const auto part =
        trained(layer_time(layer, tokens_ * 2 * shares.products,
                           tokens_ * arch::layer_score_flops_per_token(spec, layer, sequence_) / shares.widths.heads),
                plan::trained_share(plan_, layer));
    double again = 0;
    if (plan_.execution.activations.recompute == plan::Recompute::kFull)
      again =
          part.forward - pass_seconds(tokens_ * unrepeated_flops(spec, layer, hardware_, sharding_) / shares.widths.up,
                                      hardware_.forward_efficiency, 0);
    if (plan_.execution.activations.recompute == plan::Recompute::kSelective)
      again = feed_forward_share(spec, layout, layer, sequence_) * part.forward;
    if (plan_.recompute_modules.any() && !hardware_.rates) again = modules_seconds(plan_, hardware_, layer);
    add(out, part, again, layer_passes(plan_, hardware_, plan_.execution.activations.recompute, layer));
  }

  StageTime stage_time(const plan::StagePlan& stage) const {
    StageTime out;
    for (const int layer : stage.part.layers) add_layer(out, layer);
    if (stage.part.has_embedding) add_embedding(out);
    if (stage.part.has_head) add_head(out);
    for (const auto& tower : plan::towers_of(*plan_.model, stage.part)) add_tower(tower, out);
    for (int i = 0; i < stage.mtp_layers; ++i) add_mtp_layer(out);
    if (plan_.adapters) add_adapters(stage, out);
    return out;
  }

  /// Every tp and cp rank encodes one image per sequence.
  void add_tower(const arch::Tower& tower, StageTime& out) const {
    const double adapters = plan_.batch.microbatch * plan::adapter_flops(plan_, tower);
    PartTime part{.work = plan_.batch.microbatch * tower.flops + adapters};
    part.forward = pass_seconds(part.work, hardware_.forward_efficiency, 0);
    if (!plan::trains_tower(plan_, tower.fqn)) return add(out, part);
    part.backward_input = part.backward_weight = pass_seconds(part.work, hardware_.backward_efficiency, 0);
    if (plan_.adapters) part.backward_weight = pass_seconds(adapters, hardware_.backward_efficiency, 0);
    part.backward = part.backward_input + part.backward_weight;
    add(out, part, plan::recomputes_towers(plan_) ? part.forward : 0);
  }

  /// A multi-token-prediction layer: the projection of hidden states joined with an embedding, a layer like the last,
  /// and the head.
  void add_mtp_layer(StageTime& out) const {
    const auto& spec = plan_.model->spec;
    PartTime join{.work = tokens_ * arch::mtp_join_elements(spec) * 2 / sizes_.tp};
    join.forward = join.backward_input = join.backward_weight =
        pass_seconds(join.work, hardware_.forward_efficiency, 0);
    join.backward = 2 * join.forward;
    add(out, trained(join, plan_.adapters ? 0 : 1));
    add_layer(out, spec.layers - 1);
    add_head(out);
  }

  void add_embedding(StageTime& out) const {
    const double elements = tokens_ * plan_.model->spec.hidden, stream = elements * compute_;
    PartTime part;
    if (hardware_.rates) {
      part = hardware_.rates->layers.embedding.for_work(elements / hardware_.share);
      part.backward_input = 0;  // token ids have no gradient
      part.backward_weight = part.backward;
    } else {
      part.forward = 2 * stream / hardware_.memory_bandwidth;
      part.backward = part.backward_weight = 4 * stream / hardware_.memory_bandwidth;
    }
    part = trained(part, plan::trains_embedding(plan_) ? 1 : 0);
    part.work = 0;
    if (sharding_.sequence_parallel) {
      const double gather = all_gather_seconds(stream, sizes_.tp, tp_.link);
      part.forward += reduce_scatter_seconds(stream, sizes_.tp, tp_.link);
      part.backward_input += gather;
      part.backward += gather;
    } else {
      part.forward += all_reduce_seconds(stream, sizes_.tp, tp_.link);
    }
    add(out, part);
  }

  void add_head(StageTime& out) const {
    const auto& spec = plan_.model->spec;
    const double flops = tokens_ * arch::head_flops_per_token(spec) / plan_.shares.vocabulary;
    PartTime part;
    if (hardware_.rates) {
      part = hardware_.rates->head.head.for_work(flops / hardware_.share);
    } else {
      const double logits = tokens_ * spec.outputs() * compute_ / plan_.shares.vocabulary;
      part.forward = pass_seconds(flops, hardware_.head_efficiency, hardware_.kernels.logits * logits);
      part.backward_input = part.backward_weight = part.forward;
      part.backward = 2 * part.forward;
    }
    part = trained(part, plan::trains_head(plan_) ? 1 : 0);
    if (plan_.execution.loss.chunked())
      part = {.forward = part.forward + part.backward};  // gradients follow each chunk's loss
    part.work = flops;
    part.forward += sizes_.tp > 1 ? 3 * tp_.link.latency * sizes_.tp : 0;
    const double stream = tokens_ * spec.hidden * compute_;
    double sum = all_reduce_seconds(stream, sizes_.tp, tp_.link);
    if (sharding_.sequence_parallel) {
      const double gather = all_gather_seconds(stream, sizes_.tp, tp_.link);
      part.forward += gather;
      sum = gather + reduce_scatter_seconds(stream, sizes_.tp, tp_.link);
    }
    part.backward_input += sum;
    part.backward += sum;
    add(out, part);
  }

  /// Dense weights and experts are gathered over separate groups.
  double gathered_seconds(double dense, double expert) const {
    return all_gather_seconds(dense * compute_, sharding_.shards, shard_.link) +
           all_gather_seconds(expert * compute_, sharding_.expert_shards, expert_shard_.link);
  }
  double gather_seconds(int stage) const {
    if (!sharding_.parameters) return 0;
    const auto elements = stage_elements(plan_, stage);
    return gathered_seconds(elements.dense, elements.expert);
  }
  double reduced_seconds(double elements, int shards, const GroupLink& group) const {
    const double bytes = elements * size_of(plan_.types.reduce);
    return sharding_.optimizer ? reduce_scatter_seconds(bytes, shards, group.link)
                               : all_reduce_seconds(bytes, shards, group.link);
  }
  double reduce_seconds(int stage) const {
    const auto elements = stage_elements(plan_, stage);
    return reduced_seconds(elements.trained_dense, sharding_.shards, shard_) +
           reduced_seconds(elements.trained_expert, sharding_.expert_shards, expert_shard_) +
           all_reduce_seconds(of_replica(elements.trained_dense) * size_of(plan_.types.reduce), sharding_.replicas,
                              replica_.link);
  }
  /// Dense elements of a stage that a rank all-reduces with the other replicas; experts have no replicas.
  double of_replica(double elements) const { return sharding_.optimizer ? elements / sharding_.shards : elements; }

  /// Bytes of one microbatch's hidden states between stages, where they are most.
  double message_bytes() const {
    const double tokens = sharding_.sequence_parallel ? tokens_ / sizes_.tp : tokens_;
    return tokens * static_cast<double>(plan::widest_message(plan_)) * size_of(plan_.types.message);
  }

  /// Bytes of the gradient that first and last stage sum; 0 unless a tied embedding is on two ranks.
  double tied_bytes() const {
    const auto& stages = plan_.pipeline->stages;
    if (!plan_.model->spec.tied_embeddings || plan_.adapters || stages.front().pp_rank == stages.back().pp_rank)
      return 0;
    return of_replica(plan_.shares.head) * size_of(plan_.types.gradient);
  }

  bool reduces_each() const { return sharding_.gradients && !sharding_.defer_reduction; }

  void run_schedule() {
    const auto& made = plan_.pipeline->schedule;
    const int stages = made.shape.stages;
    schedule::Costs costs = schedule_costs();
    const auto simulated = [&] { return schedule::simulate(made.training, made.placement, made.shape, costs); };
    if (plan_.batch.runs > 1) out_.schedule = simulated().makespan * (plan_.batch.runs - 1);
    // Reductions after every microbatch are already included in its backward pass.
    for (int s = 0; s < stages && plan_.pipelined && !reduces_each(); ++s)
      costs.stages[static_cast<std::size_t>(s)].reduce_grad = reduce_seconds(s);
    out_.timeline = simulated();
    out_.schedule += out_.timeline.makespan;
    out_.bubble = out_.timeline.bubble_fraction;
    if (!plan_.pipelined) add_unpipelined_communication();
    if (sharding_.optimizer && !sharding_.parameters) {
      // The updated weights are all-gathered after the optimizer step.
      double most = 0;
      for (int s = 0; s < stages; ++s) {
        const auto elements = stage_elements(plan_, s);
        most = std::max(most, gathered_seconds(elements.trained_dense, elements.trained_expert));
      }
      // If the recipe overlaps them, these gathers run during the next step's forward pass.
      const double forward = std::accumulate(out_.stages.begin(), out_.stages.end(), 0.0,
                                             [](double sum, const StageTime& each) { return sum + each.forward; }) /
                             sizes_.pp;
      out_.communication += sharding_.prefetch() > 0 && plan_.cuda ? std::max(0.1 * most, most - forward) : most;
    }
    if (const double tied = tied_bytes(); tied > 0) out_.communication += all_reduce_seconds(tied, 2, pp_.link);
  }

  /// A single stage: units are gathered before use in each pass and reduced in the last backward pass.
  void add_unpipelined_communication() {
    const auto& time = out_.stages[0];
    const double passes = plan_.batch.microbatches * plan_.batch.runs;
    const double reduce = reduce_seconds(0) * (reduces_each() ? passes : 1);
    const auto exposed = [&](double communication, double computation, bool overlapped) {
      if (!overlapped || !plan_.cuda) return communication;
      const double units = std::max<double>(1, plan_.model->spec.layers);
      return std::max(communication * std::max(kInterference, 1 / units), communication - computation);
    };
    const bool overlapped = sharding_.prefetch() > 0 || plan_.cuda;
    const auto add_gathers = [&](double gather, double gathers) {
      out_.communication += gathers / 2 * exposed(gather, time.forward, overlapped) +
                            gathers / 2 * exposed(gather, time.backward, overlapped);
    };
    if (sharding_.parameters) {
      const auto elements = stage_elements(plan_, 0);
      const bool apart = sharding_.keep_experts;
      add_gathers(gathered_seconds(elements.dense, apart ? 0 : elements.expert), sharding_.gathers(passes, false));
      if (apart) add_gathers(gathered_seconds(0, elements.expert), sharding_.gathers(passes, true));
    }
    out_.communication += exposed(reduce, time.backward, true);
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
    const double matrices = matrix_seconds(plan_, hardware_, {shard_.link, expert_shard_.link, tp_.link});
    if (hardware_.optimizer_rate > 0) return most / hardware_.optimizer_rate + matrices;
    // Reads gradient (twice: the norm), value and moments; writes value and moments.
    double moved = 2 * size_of(plan_.types.gradient) + 2 * size_of(plan_.types.master) +
                   2 * size_of(plan_.types.first_moment) + 2 * size_of(plan_.types.second_moment);
    const double casts = plan_.types.compute == plan_.types.master ? 0 : compute_ + size_of(plan_.types.master);
    if (hardware_.kernels.step_casts) moved += casts + size_of(plan_.types.gradient);
    return most * moved / hardware_.memory_bandwidth + matrices;
  }

  /// Traffic of one pipeline rank.
  struct RankTraffic {
    double messages = 0;  ///< per microbatch
    LayerTraffic layers = {};
    StageElements elements = {};
    MatrixWork matrices = {};
  };
  RankTraffic rank_traffic(int rank) const {
    const auto& stages = plan_.pipeline->stages;
    const auto elsewhere = [&](std::size_t s) { return s < stages.size() && stages[s].pp_rank != rank; };
    RankTraffic out;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      if (stages[s].pp_rank != rank) continue;
      out.messages += (elsewhere(s + 1) ? 1 : 0) + (s > 0 && elsewhere(s - 1) ? 1 : 0);
      for (const int layer : stages[s].part.layers) {
        const auto passes = layer_passes(plan_, hardware_, plan_.execution.activations.recompute, layer);
        out.layers += passes.forward;
        out.layers += passes.backward;
      }
      out.elements += stage_elements(plan_, stages[s].stage);
      out.matrices += matrix_work(plan_, stages[s].stage);
    }
    return out;
  }

  void list_traffic() {
    const double passes = static_cast<double>(plan_.batch.microbatches) * plan_.batch.runs;
    const double reductions = reduces_each() ? passes : 1;
    const auto gathers_of = [&](bool experts) {
      return sharding_.parameters && plan_.pipelined ? plan_.batch.runs : sharding_.gathers(passes, experts);
    };
    const auto share = [](int n) { return static_cast<double>(n - 1) / n; };
    const auto sharded = [&](double elements, double trained, int shards, double gathers) {
      const double reduced = trained * size_of(plan_.types.reduce);
      const double whole = (sharding_.parameters ? elements : trained) * compute_;
      return share(shards) * (sharding_.optimizer ? reductions * reduced + gathers * whole : 2 * reduced);
    };
    double messages = 0, dense = 0, expert = 0, replicated = 0, matrices = 0;
    LayerTraffic layers;
    const auto most = [](Sent& out, const Sent& other) {
      if (other.bytes > out.bytes) out = other;
    };
    for (int rank = 0; rank < sizes_.pp; ++rank) {
      const auto here = rank_traffic(rank);
      const auto& e = here.elements;
      messages = std::max(messages, here.messages);
      most(layers.tensor, here.layers.tensor);
      most(layers.context, here.layers.context);
      most(layers.experts, here.layers.experts);
      dense =
          std::max(dense, sharded(e.dense, e.trained_dense, sharding_.shards, gathers_of(false)) + here.matrices.dense);
      expert = std::max(expert, sharded(e.expert, e.trained_expert, sharding_.expert_shards, gathers_of(true)) +
                                    here.matrices.expert);
      matrices = std::max(matrices, here.matrices.tensor);
      replicated = std::max(replicated, of_replica(e.trained_dense) * size_of(plan_.types.reduce));
    }
    const auto add = [&](mesh::AxisSet axis, int size, LinkClass kind, double bytes, double seconds,
                         std::string_view what) {
      if (size > 1 && bytes > 0) out_.traffic.push_back({axis, size, kind, bytes, seconds, what});
    };
    const auto add_bytes = [&](mesh::AxisSet axis, int size, const GroupLink& group, double bytes,
                               std::string_view what) {
      add(axis, size, group.kind, bytes, bytes > 0 ? bytes / group.link.bandwidth : 0, what);
    };
    const auto add_sent = [&](mesh::AxisSet axis, int size, LinkClass kind, const Sent& sent, std::string_view what) {
      add(axis, size, kind, sent.bytes * passes, sent.transfer * passes, what);
    };
    if (plan_.pipelined)
      add_bytes(mesh::Axis::kPp, sizes_.pp, pp_, messages * passes * message_bytes(),
                "hidden states and their gradients");
    add_bytes(mesh::Axis::kPp, 2, pp_, tied_bytes(), "gradients of the tied embedding, on the first and last stage");
    add_sent(mesh::Axis::kTp, sizes_.tp, tp_.kind, layers.tensor,
             sharding_.sequence_parallel ? "gathers and reduce-scatters" : "all-reduces");
    add_bytes(mesh::Axis::kTp, sizes_.tp, tp_, matrices, "matrices that the optimizer updates as wholes");
    const auto recurrent = plan::recurrent_exchanges(plan_.model->spec);
    const bool attends = plan::exchanges_attention(plan_.model->spec, plan_.batch.planned_length());
    add_sent(mesh::Axis::kCp, sizes_.cp, context_link(plan_, hardware_), layers.context,
             !attends && recurrent.states          ? "inputs and outputs of recurrent states"
             : !attends && recurrent.tokens        ? "tokens before convolutions"
             : !attends || plan_.context.heads > 1 ? "heads of queries, keys, values and results"
             : recurrent.states                    ? "keys and values; inputs and outputs of recurrent states"
             : recurrent.tokens                    ? "keys and values; tokens before convolutions"
                                                   : "keys and values");
    add_sent(mesh::Axis::kEp, sizes_.ep * plan_.expert_tensor, expert_link(plan_, hardware_).kind, layers.experts,
             "tokens to experts and back");
    const std::string_view what = sharding_.parameters ? "parameters and gradients" : "gradients";
    add_bytes(plan_.mesh.strategy() == mesh::Strategy::kDdp ? mesh::kDpCp : mesh::kDpShardCp, sharding_.shards, shard_,
              dense, what);
    add_bytes(mesh::Axis::kEpShard, sharding_.expert_shards, expert_shard_, expert,
              sharding_.parameters ? "parameters and gradients of experts" : "gradients of experts");
    add_bytes(mesh::Axis::kDpReplicate, sharding_.replicas, replica_,
              2 * share(sharding_.replicas) * reductions * replicated, "gradients");
  }

  const plan::TrainingPlan& plan_;
  const Hardware& hardware_;
  const plan::Sharding& sharding_;
  const mesh::MeshSizes& sizes_;
  std::int64_t sequence_;
  double tokens_;  ///< per microbatch and rank
  int compute_;    ///< bytes per element
  GroupLink tp_, shard_, replica_, expert_shard_, pp_;
  TimePlan out_ = {};
};

}  // namespace

double cached_tower_seconds(const plan::TrainingPlan& plan, const Hardware& hardware) {
  return Timing(plan, hardware).cached_towers();
}

plan::SplitCost split_cost(const plan::TrainingPlan& plan, const Hardware& hardware) {
  return Timing(plan, hardware).costs();
}

schedule::Costs schedule_costs(const plan::TrainingPlan& plan, const Hardware& hardware) {
  return Timing(plan, hardware).add_stages().schedule_costs();
}

TimePlan plan_time(const plan::TrainingPlan& plan, const Hardware& hardware) {
  return Timing(plan, hardware).run();
}

}  // namespace automodel::estimate
