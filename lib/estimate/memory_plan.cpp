#include "estimate/memory_plan.h"

#include <algorithm>

#include "arch/adapters.h"
#include "base/bytes.h"
#include "estimate/state_bytes.h"
#include "plan/communicators.h"
#include "plan/costs.h"
#include "plan/frozen_part.h"
#include "plan/model_names.h"
#include "plan/training_plan.h"

namespace automodel::estimate {
namespace {

/// Activations kept by a transformer layer with fused attention, in units of its residual stream in the compute dtype
/// (34 bytes per two-byte value; Korthikanti et al. 2022).
constexpr double kStreamsPerLayer = 17;

/// Activation memory of a stage for one microbatch.
struct StageCost {
  double kept = 0, kept_for_weights = 0, working = 0;  ///< of the layers
  double forward = 0;                                  ///< peak of a pass without a backward pass
  double away = 0;                                     ///< in host memory
  HeadActivations head = {};
  bool head_defers = false;  ///< the head's weight, or its adapter, is trained
  double head_kept() const { return head.kept + head.logits; }
  double all() const { return kept + head_kept(); }
  /// After the input gradient, while the weight gradient is deferred.
  double deferred() const { return kept_for_weights + (head_defers ? head_kept() : 0); }
};

bool defers_head(const plan::TrainingPlan& plan) {
  if (!plan.adapters) return plan::trains_head(plan);
  return std::ranges::any_of(plan.adapters->all, [](const arch::Parameter& each) {
    return each.role == arch::Role::kAdapter && each.layer < 0 && !each.in_tower();
  });
}

/// Memory at one moment, by component.
struct Moment {
  double activations = 0, logits = 0, gradients = 0;
  double sum() const { return activations + logits + gradients; }
};

class RankWalk {
 public:
  RankWalk(const plan::TrainingPlan& plan, const MemoryRequest& request, int pp_rank)
      : plan_(plan),
        request_(request),
        rank_(pp_rank),
        sizes_(plan.mesh.sizes()),
        sharding_(stored_sharding(plan)),
        bytes_(state_bytes(plan, sharding_)),
        moments_(moments_of(plan.optimizer)) {
    activation_ = of_length(sequence());
    const auto validated = plan.batch.validation_length > 0 ? plan.batch.validation_length : sequence();
    for (const auto& stage : plan.pipeline->stages) {
      costs_.push_back({});
      validation_costs_.push_back({});
      elements_.push_back({});
      if (stage.pp_rank != pp_rank) continue;
      elements_.back() = stage_elements(plan, stage.stage);
      costs_.back() = cost_of(stage, activation_);
      validation_costs_.back() = validated == sequence() ? costs_.back() : cost_of(stage, of_length(validated));
      total_ += elements_.back();
    }
  }

  RankMemory run() {
    RankMemory out;
    out.pp_rank = rank_;
    out.parameters = static_cast<std::int64_t>(total_.total() + total_.saved);
    const auto at = [&](Phase phase) -> MemoryShares& { return out.phases[static_cast<std::size_t>(phase)]; };
    const Moment first = busiest(false), steady = busiest(true);
    out.most_activations = most_activations_;
    for (auto& shares : out.phases) {
      shares = standing();
      (plan_.cuda ? shares.host : shares.framework) += cached_tower();
    }
    if (plan_.teacher) {
      const double held = teacher_weights();
      for (auto& shares : out.phases) shares.weights += held;
    }
    at(Phase::kInitialization).gradients = sharding_.gradients ? 0 : whole_gradients();
    for (const auto phase : {Phase::kFirstStep, Phase::kSteady}) {
      const auto& moment = phase == Phase::kSteady ? steady : first;
      auto& shares = at(phase);
      shares.weights += gathered(true) + unpacked() + float8_weights();
      shares.activations = moment.activations;
      shares.logits = moment.logits;
      shares.gradients = moment.gradients;
      shares.buffers = messages() + workspace() + magnitudes();
      for (const auto& cost : costs_) shares.host += cost.away;
    }
    auto& evaluation = at(Phase::kEvaluation);
    evaluation.weights += gathered(false) + unpacked() + float8_weights();
    evaluation.gradients = between_steps();
    add_evaluation(evaluation);
    evaluation.buffers = messages() + workspace();
    auto& checkpoint = at(Phase::kCheckpoint);
    checkpoint.gradients = between_steps();
    checkpoint.buffers = workspace();
    // The memory of captured microbatches is theirs between steps as well.
    if (plan_.execution.capture.captured)
      for (const auto phase : {Phase::kEvaluation, Phase::kCheckpoint}) {
        at(phase).activations += steady.activations;
        at(phase).logits += steady.logits;
      }
    for (const auto phase : {Phase::kSteady, Phase::kEvaluation, Phase::kCheckpoint})
      (plan_.cuda ? at(phase).host : at(phase).buffers) += snapshot();
    // These are files, not tensors: on a CPU they add to the program's own memory.
    for (const auto phase : {Phase::kSteady, Phase::kEvaluation, Phase::kCheckpoint})
      (plan_.cuda ? at(phase).host : at(phase).framework) += copies();
    if (sharding_.double_buffer)
      checkpoint.weights +=
          std::min(gathered(true), (sharding_.overlap_gather ? 2 : 1) * total_.largest_unit * bytes_.values);
    for (auto& shares : out.phases) shares.framework += bytes_.reserved * shares.tensors();
    for (std::size_t i = 0; i < kPhaseCount; ++i)
      if (out.phases[i].total() > out.most().total()) out.peak = static_cast<Phase>(i);
    return out;
  }

  StageActivations activations(const plan::StagePlan& stage) const {
    const auto& cost = costs_[static_cast<std::size_t>(stage.stage)];
    return {(1 + bytes_.reserved) * cost.all(), (1 + bytes_.reserved) * cost.deferred()};
  }

 private:
  std::int64_t sequence() const { return plan_.batch.planned_length(); }
  double shard_of(double dense, double expert) const {
    return dense / sharding_.shards + expert / sharding_.expert_shards;
  }
  double trained_shard() const { return shard_of(total_.trained_dense, total_.trained_expert); }
  double optimizer_elements() const { return sharding_.optimizer ? trained_shard() : total_.trained(); }
  bool separate_masters() const { return sharding_.optimizer || sharding_.offloaded || bytes_.master != bytes_.values; }
  double trained_masters() const { return separate_masters() ? optimizer_elements() * bytes_.master : 0; }
  /// Frozen weights are kept in the compute dtype, as shards besides the gathered values.
  double frozen_shards() const {
    if (!sharding_.parameters) return 0;
    return shard_of(total_.dense - total_.trained_dense, total_.expert - total_.trained_expert) *
           size_of(plan_.types.compute);
  }
  double masters() const { return trained_masters() + frozen_shards(); }
  /// Weights of a tower whose outputs are cached: each rank keeps a part of them in host memory, for saved models.
  double cached_tower() const {
    if (plan_.adapters || !request_.saves) return 0;
    double elements = 0;
    for (const auto& each : plan_.model->layout.tower_parameters)
      if (each.cached) elements += static_cast<double>(each.shape.elements());
    return elements * size_of(plan_.types.compute) / plan_.mesh.world_size();
  }
  double matrices_shard() const { return shard_of(total_.dense_matrices, total_.expert_matrices); }
  double moments() const {
    const double matrices = sharding_.optimizer ? matrices_shard() : total_.dense_matrices + total_.expert_matrices;
    return moments_.tensors(optimizer_elements(), matrices) * bytes_.moment;
  }
  /// Bytes of weights and moments that this rank writes into checkpoints.
  double written() const {
    const double moments = moments_.tensors(trained_shard(), matrices_shard()) * bytes_.moment;
    return (trained_shard() * bytes_.master + moments) / sharding_.replicas;
  }
  /// Their copies stay allocated after the first save.
  double snapshot() const { return request_.saves && (plan_.cuda || request_.saves_in_background) ? written() : 0; }
  /// Copies in host memory; for device state, plus the buffer they go through.
  double copies() const { return request_.copies == 0 ? 0 : request_.copies + (plan_.cuda ? written() : 0); }
  double whole_gradients() const { return total_.trained() * bytes_.gradient; }
  /// Reduced gradients, kept until the next step replaces them.
  double reduced() const { return sharding_.optimizer ? trained_shard() * bytes_.reduced : 0; }
  double between_steps() const {
    const double reduced_here = sharding_.offloaded || bytes_.lean ? 0 : reduced();
    return (sharding_.gradients ? 0 : whole_gradients()) + reduced_here;
  }

  /// Memory that is always allocated.
  MemoryShares standing() const {
    MemoryShares out;
    const auto& s = sharding_;
    if (!s.parameters) out.weights = total_.total() * bytes_.values;
    (s.offloaded ? out.host : out.weights) += masters();
    (s.offloaded ? out.host : out.optimizer) += moments();
    if (s.offloaded) out.host += reduced();
    out.framework = request_.framework + nccl_buffers();
    return out;
  }

  /// The teacher's weights on this rank, with those that its forward pass gathers.
  double teacher_weights() const { return RankWalk(*plan_.teacher, {}, rank_).run().in(Phase::kEvaluation).weights; }

  /// Elements of the units gathered ahead of a layer. A layer's experts form a second unit after its dense part: in a
  /// forward pass the next unit is the next layer's dense part, in a backward pass the previous layer's experts.
  double ahead_of(double unit, double experts, bool backward) const {
    const auto& s = sharding_;
    const int units = backward ? s.prefetch() : s.overlap_gather ? s.forward_prefetch : 0;
    if (experts <= 0) return units * unit;
    const int first = (units + 1) / 2, second = units / 2;
    return (backward ? first : second) * experts + (backward ? second : first) * (unit - experts);
  }

  /// Parameters gathered for use.
  double gathered(bool backward) const {
    const auto& s = sharding_;
    if (!s.parameters) return 0;
    const double compute = bytes_.values;
    // Without sharding, the whole values are the shards, provided both have the same dtype.
    const bool same = bytes_.lean && bytes_.values == bytes_.master;
    const double expert = same && s.expert_shards == 1 ? 0 : total_.expert;
    if (same && s.shards == 1 && expert == 0) return 0;
    if (!s.reshard_after_forward || s.whole_stage)
      return std::max(0.0, most_gathered_ - (total_.expert - expert)) * compute;
    const auto freed = [&](double all, double unit, double experts) {
      const double ahead =
          bytes_.lean || s.double_buffer ? std::max(1, s.prefetch()) * unit : ahead_of(unit, experts, backward);
      if (bytes_.lean) return std::min(all, unit + ahead + unit / s.shards);
      // What is gathered from is a copy of the shard, where that is elsewhere or of another type.
      const double copy = (unit - experts) / s.shards + experts / s.expert_shards;
      const double gathered = std::min(all, unit + ahead);
      const bool copied = s.offloaded || (!plan_.adapters && bytes_.values != bytes_.master);
      return gathered + (copied && unit > 0 ? gathered / unit * copy : 0);
    };
    if (s.keep_experts) return (expert + freed(total_.dense, total_.largest_dense, 0)) * compute;
    return freed(total_.total(), total_.largest_unit, total_.largest_expert) * compute;
  }

  /// A quantised weight is dequantised for its matmul, in the compute dtype and, if different, in the matmul's dtype.
  double unpacked() const {
    if (!plan_.execution.precision.quantization) return 0;
    const auto product = plan_.execution.precision.quantization->compute, here = plan_.types.compute;
    return total_.largest_packed * (size_of(here) + (product == here ? 0 : size_of(product)));
  }

  /// Kept 8-bit weights: one form for results, one for input gradients.
  double float8_weights() const { return 2 * total_.kept_float8; }

  ActivationRequest of_length(std::int64_t length) const {
    return {.tokens = plan_.batch.microbatch * length / sizes_.cp,
            .sequence = length / sizes_.cp,
            .bytes = size_of(plan_.types.compute),
            .tp = sizes_.tp,
            .cp = sizes_.cp,
            .head_ranks = plan_.context.heads,
            .key_ranks = plan_.context.keys,
            .gathers_keys = plan_.context.gather,
            .sequence_parallel = sharding_.sequence_parallel,
            .shares = &plan_.shares,
            .expert_tensor = plan_.expert_tensor,
            .experts_apart = sizes_.ep * plan_.expert_tensor > 1,
            .cuda = plan_.cuda,
            .lean = bytes_.lean,
            .recompute = plan_.execution.activations.recompute,
            .modules = plan_.recompute_modules};
  }

  /// An adapter's result with dropout, beside the result; or what magnitudes multiply.
  int head_adapter_copies() const {
    if (!plan_.adapters || bytes_.lean || !defers_head(plan_)) return 0;
    const auto& spec = plan_.adapters->spec;
    return spec.dropout > 0 && !spec.dropout_first ? 2 : spec.magnitudes ? 1 : 0;
  }

  LossRequest loss_request() const {
    const auto& float8 = plan_.execution.precision.float8;
    const auto& autocast = plan_.execution.precision.autocast;
    const auto& spec = plan_.model->spec;
    return {.beside = bytes_.beside_logits,
            .plan = plan_.execution.loss,
            .gradient_bytes = plan_.adapters ? 0 : static_cast<int>(bytes_.gradient),
            .float8_gradient = !plan_.adapters && float8 && float8->has_weight_gradients() &&
                               plan::takes_float8(*float8, plan_.model->layout.head, {spec.outputs(), spec.hidden}),
            .product_bytes = autocast && !bytes_.lean ? size_of(*autocast) : 0,
            .adapter_copies = head_adapter_copies()};
  }

  StageCost cost_of(const plan::StagePlan& stage, const ActivationRequest& activation) const {
    StageCost out;
    const auto& spec = plan_.model->spec;
    const int offloaded =
        plan_.cuda && plan_.execution.activations.offloading ? plan_.execution.activations.offloading->layers : 0;
    double stays = 0, largest = 0;  // on the device, for offloaded layers
    for (const int layer : stage.part.layers) {
      auto request = activation;
      if (plan_.adapters) request.trained = plan_.adapters->layers[static_cast<std::size_t>(layer)];
      if (plan_.frozen) request.trained = plan_.frozen->layers[static_cast<std::size_t>(layer)];
      const auto each = layer_activations(spec, layer, request);
      // What the attention kernel itself keeps is not offloaded.
      const double away = layer < offloaded ? each.kept - each.of_kernel : 0;
      out.away += away;
      out.kept += each.kept - away;
      stays += away > 0 ? each.of_kernel : 0;
      largest = std::max(largest, away);
      out.kept_for_weights += each.kept_for_weights;
      // Beside what all layers keep: when the backward pass is at an earlier layer, this one's part of that is free.
      out.working = std::max(out.working - (each.kept - away), each.working);
      out.forward = std::max(out.forward, each.forward);
    }
    // Late in a backward pass, one offloaded layer is in use while the next is being copied back.
    out.kept = std::max(out.kept, stays + std::min(2, offloaded) * largest);
    if (stage.part.has_embedding && spec.embedding_norm)  // what it normalised
      out.kept += static_cast<double>(activation.tokens) * spec.hidden * activation.bytes /
                  (activation.sequence_parallel ? activation.tp : 1);
    if (stage.part.has_head) out.head = head_activations(spec, activation, loss_request());
    out.head_defers = (stage.part.has_head || stage.mtp_layers > 0) && defers_head(plan_);
    add_towers(stage, out);
    for (int i = 0; i < stage.mtp_layers; ++i) {
      const auto each = layer_activations(spec, spec.layers - 1, activation);
      const auto head = head_activations(spec, activation, loss_request());
      out.kept += each.kept + head.kept;
      out.kept_for_weights += each.kept_for_weights;
      out.working = std::max(out.working, each.working);
      out.head.logits += head.logits;
      out.head.working = std::max(out.head.working, head.working);
      out.head.working_forward = std::max(out.head.working_forward, head.working_forward);
      out.head.chunk = std::max(out.head.chunk, head.chunk);
    }
    return out;
  }

  /// Image encoders and projectors process one image per sequence; where they are frozen they keep nothing.
  void add_towers(const plan::StagePlan& stage, StageCost& out) const {
    for (const auto& tower : plan::towers_of(*plan_.model, stage.part)) {
      const double stream =
          static_cast<double>(plan_.batch.microbatch * tower.tokens * tower.hidden) * size_of(plan_.types.compute);
      if (plan::trains_tower(plan_, tower.fqn))
        out.kept += tower.layers * stream * (plan::recomputes_towers(plan_) ? 1 : kStreamsPerLayer);
      out.working = std::max(out.working, kStreamsPerLayer * stream);
      out.forward = std::max(out.forward, kStreamsPerLayer * stream);
    }
  }

  double message() const {
    const auto tokens = static_cast<double>(activation_.tokens) / (activation_.sequence_parallel ? sizes_.tp : 1);
    return tokens * static_cast<double>(plan::widest_message(plan_)) * size_of(plan_.types.message);
  }
  /// Posted receives, outgoing messages, and the token ids of two accumulation steps.
  double messages() const {
    const double ids =
        2.0 * 3 * 8 * static_cast<double>(plan_.batch.local * plan_.batch.merged * sequence()) / sizes_.cp;
    if (!plan_.pipelined) return ids;
    const auto& live = plan_.pipeline->schedule.proof.ranks[static_cast<std::size_t>(rank_)];
    return ids + (live.receive_buffers + (plan_.cuda && !bytes_.lean ? schedule::kMostLeaving : 1)) * message();
  }
  /// What LibTorch gives cuBLAS to work with, from the first matmul on: 32 MiB on compute capability 9 and later (8 MiB
  /// before).
  double workspace() const { return plan_.cuda && !bytes_.lean ? 32.0 * 1024 * 1024 : 0; }
  /// Products that the gradients of adapters' magnitudes are made from, a part of the rows at a time: the result twice,
  /// its gradient and both multiplied in float32 or wider.
  double magnitudes() const {
    const double exact = std::max(4, size_of(plan_.types.compute));
    return plan_.adapters && plan_.adapters->spec.magnitudes ? arch::kMagnitudeProducts * (2 + 3 * exact) : 0;
  }
  /// What NCCL allocates itself, as its receive buffers of messages and all-to-alls: for each sender, 9.4 MB
  /// (NCCL 2.28) per CTA, of which communicators for messages have 8, and others up to 32. Those of other collectives
  /// are not known.
  double nccl_buffers() const {
    if (!plan_.cuda || bytes_.lean || plan_.communication.backend == config::Backend::kMpi) return 0;
    constexpr double kPerCta = 9.4e6, kMessageCtas = 8, kMostCtas = 32;
    const auto here = members_of(plan_, plan::Channel::kPipeline, 0)[static_cast<std::size_t>(rank_)];
    double out = 0;
    for (const auto& row : plan::channels()) {
      const auto traffic = traffic_of(plan_, row.channel);
      if (!traffic.messages && !traffic.all_to_all) continue;
      const auto others = std::max(1.0, static_cast<double>(members_of(plan_, row.channel, here).size())) - 1;
      if (traffic.messages) out += kPerCta * kMessageCtas * (traffic.ring ? std::min(2.0, others) : others);
      if (traffic.all_to_all) out += kPerCta * kMostCtas * others;
    }
    return out;
  }
  /// Layers and head need their working memory one after the other.
  void add_evaluation(MemoryShares& shares) const {
    for (const auto& cost : validation_costs_) shares.activations = std::max(shares.activations, cost.forward);
    for (const auto& cost : validation_costs_) {
      const double logits = cost.head.logits + cost.head.working_forward + cost.head.chunk;
      if (cost.head.forward + logits <= shares.activations + shares.logits) continue;
      shares.activations = cost.head.forward;
      shares.logits = logits;
    }
  }

  /// Follows the rank's row of the schedule. Gradients of a sharded stage are allocated by its first backward pass; in
  /// the steady state, the last step's reduced gradients still exist.
  Moment busiest(bool steady) {
    const auto& s = sharding_;
    const double old = s.offloaded || !steady || bytes_.by_unit ? 0 : reduced();
    const int passes = plan_.batch.runs * plan_.batch.microbatches;
    adds_up_ = s.defer_reduction && !(bytes_.by_unit && passes == 1);
    most_ = now_ = graph_ = {};
    most_gradients_ = 0;
    now_gathered_ = most_gathered_ = 0;
    is_gathered_.assign(costs_.size(), false);
    now_.gradients = (s.gradients ? 0 : whole_gradients()) + old;
    has_gradients_.assign(costs_.size(), !s.gradients || (plan_.batch.runs > 1 && adds_up_));
    if (s.gradients && has_gradients_[0]) now_.gradients += whole_gradients();
    // The sums of former runs of the schedule.
    has_sums_.assign(costs_.size(), keeps_sums() && plan_.batch.runs > 1);
    if (has_sums_[0]) now_.gradients += reduced();
    for (const auto& slot : plan_.pipeline->schedule.training[static_cast<std::size_t>(rank_)])
      for (const auto& action : slot.actions()) follow(action);
    // With all reductions in progress: whole gradients, their sums, and copies if they are communicated in another
    // dtype.
    const double whole = old + (adds_up_ || !s.gradients ? whole_gradients() : 0);
    now_.gradients = std::max(now_.gradients, whole);
    // A single shard is the whole: what one pass made, or all did, is the sum.
    const bool whole_sums =
        (adds_up_ || passes == 1) && s.shards == 1 && (s.expert_shards == 1 || total_.trained_expert == 0);
    const double parts = whole_sums ? 0 : 2 * bytes_.reduced / s.shards;  // of sums that have just arrived
    const double unit = whole_sums ? bytes_.travelling : unit_gradients();
    if (!bytes_.by_unit)
      now_.gradients += reduced() + total_.trained() * bytes_.travelling;
    else if (s.gradients)  // a unit's whole gradients are freed when its part of the sum arrives
      now_.gradients = bytes_.lean ? std::max(whole + 2 * total_.largest_trained * bytes_.travelling, reduced())
                                   : std::max(whole + total_.largest_trained * (bytes_.travelling + parts),
                                              (s.offloaded ? 0 : reduced()) + total_.largest_trained * (unit + parts));
    else
      now_.gradients += reduced();
    note(0, 0, 0);
    // The first layer's backward pass runs beside the reductions of all units but its own and the embedding's.
    if (!bytes_.lean && sharding_.overlap_reduction) {
      double working = 0;
      for (std::size_t stage = 0; stage < costs_.size(); ++stage)
        if (const auto layers = plan_.pipeline->stages[stage].part.layers.size(); layers > 0)
          working = std::max(working, costs_[stage].working + costs_[stage].kept / static_cast<double>(layers));
      note(working, 0, -total_.largest_trained * (bytes_.reduced / s.shards + bytes_.travelling));
    }
    if (!plan_.execution.capture.captured) return most_;
    return {graph_.activations, graph_.logits, most_gradients_};
  }

  void note(double activations, double logits, double gradients) {
    const Moment here{now_.activations + activations, now_.logits + logits, now_.gradients + gradients};
    if (here.sum() > most_.sum()) most_ = here;
    most_activations_ = std::max(most_activations_, here.activations);
    most_gradients_ = std::max(most_gradients_, here.gradients);
    if (here.activations + here.logits > graph_.activations + graph_.logits) graph_ = here;
  }

  void follow(const schedule::Action& action) {
    const auto& cost = costs_[action.stage().at()];
    const double held = cost.deferred();
    const double stream = static_cast<double>(activation_.tokens) * activation_.bytes * plan_.model->spec.hidden;
    if (action.op() == schedule::Op::kForward) {
      gather(action.stage().at());
      now_.activations += cost.kept + cost.head.kept;
      now_.logits += cost.head.logits;
      // A loss in chunks computes the head's gradient, with those of other units still being reduced.
      const bool begins = cost.head.chunk > 0 && !bytes_.lean && !has_gradients_[action.stage().at()];
      note(2 * stream, cost.head.chunk, begins ? elements_[action.stage().at()].largest_trained * unit_gradients() : 0);
    } else if (action.op() == schedule::Op::kFullBackward || action.op() == schedule::Op::kBackwardInput) {
      note(stream, cost.head.working, 0);
      go_backward(action.stage().at());
      double last = 0;  // the first layer's backward pass, beside what the others deferred
      if (action.op() == schedule::Op::kBackwardInput) {
        now_.activations += held;
        const auto layers = plan_.pipeline->stages[action.stage().at()].part.layers.size();
        if (layers > 0) last = cost.working + (cost.kept - cost.kept_for_weights) / static_cast<double>(layers);
      }
      note(std::max(0.0, last), 0, 0);
    } else if (action.op() == schedule::Op::kBackwardWeight) {
      now_.activations -= held;
    } else if (action.op() == schedule::Op::kUnshard) {
      gather(action.stage().at());
    } else if (action.op() == schedule::Op::kReshard) {
      is_gathered_[action.stage().at()] = false;
      now_gathered_ -= elements_[action.stage().at()].total();
    }
  }

  /// Executes UNSHARD. A stage without one is gathered at its first use and stays gathered.
  void gather(std::size_t stage) {
    if (is_gathered_[stage]) return;
    is_gathered_[stage] = true;
    now_gathered_ += elements_[stage].total();
    most_gathered_ = std::max(most_gathered_, now_gathered_);
  }

  /// Bytes per element of the largest unit while units are reduced one after another: one is being computed, one
  /// communicated.
  double unit_gradients() const {
    if (bytes_.lean) return bytes_.values + 2 * bytes_.travelling;
    return bytes_.by_unit ? 2 * bytes_.gradient + bytes_.travelling : bytes_.gradient;
  }

  /// True if each microbatch's gradients are reduced, and added up on this device.
  bool keeps_sums() const {
    return sharding_.gradients && !adds_up_ && !bytes_.lean && bytes_.by_unit && !sharding_.offloaded;
  }

  /// First the head, then the layers, whose parameter gradients are produced unit by unit.
  void go_backward(std::size_t stage) {
    const auto& cost = costs_[stage];
    const bool allocate = !has_gradients_[stage];
    now_.activations -= cost.head.kept;
    now_.logits -= cost.head.logits;
    note(cost.working, 0, allocate ? elements_[stage].largest_trained * unit_gradients() : 0);
    now_.activations -= cost.kept;
    if (!allocate) return;
    if (adds_up_) {
      has_gradients_[stage] = true;
      now_.gradients += elements_[stage].trained() * bytes_.gradient;
    } else if (keeps_sums() && !has_sums_[stage]) {
      has_sums_[stage] = true;  // over the microbatches so far
      now_.gradients += shard_of(elements_[stage].trained_dense, elements_[stage].trained_expert) * bytes_.reduced;
    }
  }

  const plan::TrainingPlan& plan_;
  const MemoryRequest& request_;
  int rank_;
  const mesh::MeshSizes& sizes_;
  plan::Sharding sharding_;
  StateBytes bytes_;
  Moments moments_;
  bool adds_up_ = false;  ///< whole gradients are kept from microbatch to microbatch
  ActivationRequest activation_ = {};
  std::vector<StageCost> costs_ = {}, validation_costs_ = {};
  std::vector<StageElements> elements_ = {};
  StageElements total_ = {};
  Moment most_ = {}, now_ = {};
  double most_activations_ = 0, most_gradients_ = 0;
  Moment graph_ = {};  ///< when activations and logits are the most: what captured microbatches keep
  double now_gathered_ = 0, most_gathered_ = 0;                              ///< elements of gathered stages
  std::vector<bool> has_gradients_ = {}, has_sums_ = {}, is_gathered_ = {};  ///< by stage
};

}  // namespace

std::string_view name_of(Phase phase) {
  constexpr std::array<std::string_view, kPhaseCount> kNames = {"initialization", "first step", "steady", "evaluation",
                                                                "checkpoint"};
  return kNames[static_cast<std::size_t>(phase)];
}

std::string_view name_of(Fit fit) {
  constexpr std::array<std::string_view, 4> kNames = {"unknown", "fits", "tight", "does not fit"};
  return kNames[static_cast<std::size_t>(fit)];
}

std::vector<StageActivations> stage_activations(const plan::TrainingPlan& plan) {
  std::vector<StageActivations> out;
  for (const auto& stage : plan.pipeline->stages) out.push_back(RankWalk(plan, {}, stage.pp_rank).activations(stage));
  return out;
}

MemoryPlan plan_memory(const plan::TrainingPlan& plan, const MemoryRequest& request) {
  MemoryPlan out;
  out.capacity = request.capacity;
  for (int rank = 0; rank < plan.mesh.sizes().pp; ++rank) {
    out.ranks.push_back(RankWalk(plan, request, rank).run());
    if (out.ranks.back().most().total() > out.peak()) out.heaviest = rank;
  }
  if (out.capacity) {
    const double most = out.peak();
    out.fit = most > *out.capacity                       ? Fit::kDoesNotFit
              : most > plan::kTightShare * *out.capacity ? Fit::kTight
                                                         : Fit::kFits;
  }
  return out;
}

std::optional<Diagnostic> check_capacity(const MemoryPlan& memory) {
  if (memory.fit != Fit::kDoesNotFit) return std::nullopt;
  const auto& rank = memory.heaviest_rank();
  return Diagnostic{"does-not-fit"}
      .says("pp rank {} needs {} at its peak ({}); the device has {}", rank.pp_rank, format_bytes(memory.peak()),
            name_of(rank.peak), format_bytes(*memory.capacity))
      .hint("'automodel plan RECIPE --search' finds plans that fit")
      .of("hardware.memory");
}

}  // namespace automodel::estimate
