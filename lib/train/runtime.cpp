#include "train/runtime.h"

#include <algorithm>

#include <ATen/ops/cat.h>

#include "parallel/tensor/placement.h"
#include "train/tensor_types.h"

namespace automodel::train {
namespace {

using mesh::Axis;
using mesh::AxisSet;

model::StageModules modules_of(const plan::StagePlan& stage) {
  return {.embeddings = stage.part.has_embedding,
          .layers = stage.part.layers,
          .norm = stage.part.has_norm,
          .head = stage.part.has_head};
}

/// The strategy's switches.
parallel::DataParallelOptions sharding_of(const plan::TrainingPlan& plan, const config::DistributedConfig& distributed,
                                          at::Device device) {
  parallel::DataParallelOptions out;
  out.compute = scalar_type(plan.types.compute);
  out.master = scalar_type(plan.types.master);
  out.gradient = scalar_type(plan.types.gradient);
  out.reduce = scalar_type(plan.types.reduce);
  out.device = device;
  const auto sharding = plan::plan_sharding(distributed, plan.mesh.sizes(), plan.expert_tensor);
  out.shard_optimizer = sharding.optimizer;
  out.shard_gradients = sharding.gradients;
  out.shard_parameters = sharding.parameters;
  out.reshard_after_forward = sharding.reshard_after_forward;
  out.keep_experts = sharding.keep_experts;
  out.defer_reduction = sharding.defer_reduction;
  out.offloaded = sharding.offloaded;
  if (const auto* fsdp = std::get_if<config::FSDP2Config>(&distributed.strategy())) {
    out.overlap_gather = fsdp->enable_fsdp2_prefetch();
    out.forward_prefetch = fsdp->fsdp2_forward_prefetch_depth();
    out.backward_prefetch = fsdp->fsdp2_backward_prefetch_depth();
  } else if (const auto* megatron = std::get_if<config::MegatronFSDPConfig>(&distributed.strategy())) {
    out.overlap_reduction = megatron->overlap_grad_reduce() || sharding.gradients;
    out.overlap_gather = megatron->overlap_param_gather() || sharding.parameters;
    if (megatron->disable_bucketing()) out.bucket_bytes = std::int64_t{1} << 60;
  } else if (const auto* ddp = std::get_if<config::DDPConfig>(&distributed.strategy())) {
    if (ddp->bucket_cap_mb())
      out.bucket_bytes = std::max<std::int64_t>(1, static_cast<std::int64_t>(*ddp->bucket_cap_mb() * (1 << 20)));
  }
  return out;
}

}  // namespace

bool first_of_its_kind(const model::Weight& weight, int tp) {
  return weight.tensor_sharded ? tp % weight.tensor_replicas == 0 : tp == 0;
}

LocalStage::LocalStage(schedule::Stage number, const plan::ModelChoice& choice, model::StageModules modules,
                       model::StageOptions options, const parallel::DataParallelOptions& sharding, const Groups& groups)
    : model_(choice.spec, choice.layout, std::move(modules), std::move(options)),
      data_parallel_(model_.weights(), sharding, groups.dense, groups.expert),
      stage_(number, model_, this) {
  model_.set_observer(&data_parallel_);
}

void LocalStage::defer_head(int limit) {
  if (auto* head = model_.head(); head != nullptr) {
    waiting_head_.set_limit(limit);
    head->waiting = &waiting_head_;
  }
}

void LocalStage::reduce(bool last) {
  if (!waiting_head_.empty()) {
    data_parallel_.weight_gradients_begin();
    waiting_head_.drain();
    data_parallel_.weight_gradients_done();
  }
  if (!last) return;
  if (divisor_ > 0 && data_parallel_.options().defer_reduction)
    pipeline::scale_grads_by_divisor(model_.weights(), divisor_);
  data_parallel_.reduce();
}

void LocalStage::finish() {
  data_parallel_.finish();
  if (divisor_ == 0 || data_parallel_.options().defer_reduction) return;
  const ops::NoGraph guard;
  for (auto* storage : data_parallel_.storages())
    if (storage->gradient().defined()) storage->gradient().div_(divisor_);  // nothing of a frozen unit
}

void LocalStage::last_backward() {
  // With a divisor nothing may be reduced before it was applied.
  if (divisor_ == 0) data_parallel_.last_backward();
}

Runtime::Runtime(const plan::TrainingPlan& plan, const config::Recipe& recipe, comm::World& world,
                 const parallel::WeightSource& source, RuntimeOptions options)
    : plan_(plan), recipe_(recipe), world_(world), options_(options) {
  make_groups();
  make_seams();
  make_stages(source);
  make_optimizer();
}

Runtime::~Runtime() = default;

void Runtime::make_groups() {
  const auto& mesh = plan_.mesh;
  const int rank = world_.rank();
  place_ = {.pp = mesh.position(rank, Axis::kPp),
            .dp = mesh.position(rank, mesh::kDp),
            .cp = mesh.position(rank, Axis::kCp),
            .tp = mesh.position(rank, Axis::kTp),
            .dp_size = mesh.size(mesh::kDp),
            .cp_size = mesh.size(Axis::kCp),
            .tp_size = mesh.size(Axis::kTp)};
  const auto group = [&](AxisSet axes, const std::string& name) {
    return world_.group(mesh.group_of(rank, axes), name);
  };
  groups_.pipeline = group(Axis::kPp, "pp");
  groups_.tensor = group(Axis::kTp, "tp");
  if (const int kv_heads = plan_.model->spec.kv_heads; kv_heads < place_.tp_size && place_.tp_size % kv_heads == 0) {
    const int replicas = place_.tp_size / kv_heads, first = place_.tp / replicas * replicas;
    const auto ranks = mesh.group_of(rank, Axis::kTp);
    groups_.shared_heads = world_.group({ranks.begin() + first, ranks.begin() + first + replicas}, "shared heads");
  }
  groups_.context = group(Axis::kCp, "cp");
  if (place_.cp_size > 1) {
    // Neighbours of the group exchange heads; ranks at the same place of all such runs exchange keys.
    const auto ranks = mesh.group_of(rank, Axis::kCp);
    const int run = plan_.context.heads;
    std::vector<int> heads, keys;
    for (int i = 0; i < place_.cp_size; ++i) {
      if (i / run == place_.cp / run) heads.push_back(ranks[static_cast<std::size_t>(i)]);
      if (i % run == place_.cp % run) keys.push_back(ranks[static_cast<std::size_t>(i)]);
    }
    groups_.context_heads = world_.group(heads, "cp_heads");
    groups_.context_keys = world_.group(keys, "cp_keys");
  }
  const auto axes = mesh.data_parallel_axes();
  const bool replicated = !axes.replicate.empty() && mesh.size(axes.replicate) > 1;
  if (std::holds_alternative<config::DDPConfig>(recipe_.distributed->strategy())) {
    groups_.dense.shard = group(mesh::kDpCp, "dp_cp");
  } else {
    groups_.dense.shard = group(axes.shard, "dp_shard_cp");
    if (replicated) groups_.dense.replicate = group(axes.replicate, "dp_replicate");
  }
  make_expert_groups();
  const auto& pipeline = *plan_.pipeline;
  const bool tied = plan_.model->spec.tied_embeddings && pipeline.stages.size() > 1;
  if (tied) {
    const int first = pipeline.stages.front().pp_rank, last = pipeline.stages.back().pp_rank;
    const auto ranks = mesh.group_of(rank, Axis::kPp);
    const std::vector<int> members = {ranks[static_cast<std::size_t>(first)], ranks[static_cast<std::size_t>(last)]};
    if (first != last && (rank == members[0] || rank == members[1]))
      groups_.tied = world_.group(members, "tied embeddings");
  }
}

/// The ranks of a stage as (ep_shard, ep, parts of an expert), the last fastest.
void Runtime::make_expert_groups() {
  const auto& mesh = plan_.mesh;
  const int rank = world_.rank(), ep = mesh.size(Axis::kEp);
  const int tensor = recipe_.model_parallel->expert_tensor_parallel_size().value_or(1), run = ep * tensor;
  const auto stage = mesh.group_of(rank, mesh::kStageRanks);
  const int here = mesh.position(rank, mesh::kStageRanks);
  std::vector<int> together, alike;
  for (int i = 0; i < static_cast<int>(stage.size()); ++i) {
    if (i / run == here / run) together.push_back(stage[static_cast<std::size_t>(i)]);
    if (i % run == here % run) alike.push_back(stage[static_cast<std::size_t>(i)]);
  }
  place_.expert = {ep, here % run / tensor, tensor, here % tensor};
  groups_.expert.shard = world_.group(alike, "ep_shard");
  if (!plan_.model->spec.moe) return;
  groups_.experts = world_.group(together, "ep");
  groups_.tokens = world_.group(mesh.group_of(rank, {Axis::kCp, Axis::kTp}), "cp_tp");
}

model::Placement Runtime::placement(const arch::Parameter& parameter) const {
  if (parameter.is_expert())
    return parallel::expert_placement(parameter, plan_.model->spec.moe->experts, place_.expert);
  return parallel::tensor_placement(plan_.model->spec, plan_.model->layout, plan_.tensor, parameter,
                                    {place_.tp_size, place_.tp});
}

void Runtime::make_seams() {
  if (place_.tp_size > 1)
    tensor_ = std::make_unique<parallel::TensorParallel>(groups_.tensor, plan_.model->spec, plan_.model->layout,
                                                         plan_.tensor);
  if (place_.cp_size > 1)
    context_ = std::make_unique<parallel::ContextParallel>(parallel::ContextGroups{
        groups_.context_heads, groups_.context_keys,
        plan_.context.gather ? parallel::KeyTransport::kGather : parallel::KeyTransport::kRing});
  if (plan_.model->spec.moe) {
    const auto& m = recipe_.model_parallel();
    experts_ = std::make_unique<parallel::ExpertParallel>(
        groups_.experts, groups_.tokens,
        parallel::ExpertOptions{.overlap = m.overlap_moe_expert_parallel_comm(),
                                .late_weight_gradients = m.overlap_dispatch_backward_with_experts_wgrad(),
                                .tensor = place_.expert.tensor_size,
                                .device = world_.device()});
  }
  if (const auto& offloading = plan_.levers.offloading;
      offloading && (!world_.device().is_cpu() || options_.offload_on_cpu))
    offload_ = std::make_unique<ops::ActivationOffload>(
        world_.device(), ops::OffloadOptions{.double_buffering = offloading->double_buffering,
                                             .retain_host_buffers = offloading->retain_host_buffers});
}

model::StageOptions Runtime::stage_options() const {
  model::StageOptions options{
      .type = scalar_type(plan_.types.compute),
      .device = world_.device(),
      .seams = {.tensor = tensor_.get(), .context = context_.get(), .expert = experts_.get()},
      .placement = [this](const arch::Parameter& parameter) { return placement(parameter); },
      .ignore_label = std::visit([](const auto& loss) { return loss.ignore_index(); }, recipe_.loss_fn()),
      .adapters = plan_.adapters ? &plan_.adapters->spec : nullptr,
      .fused_accumulation = plan_.levers.fused_accumulation,
      .cast_inputs = plan_.types.cast_inputs,
      .offload = offload_.get(),
      .offloaded_layers = offload_ ? plan_.levers.offloading->layers : 0};
  if (plan_.levers.autocast) options.autocast = scalar_type(*plan_.levers.autocast);
  if (plan_.types.output) options.output = scalar_type(*plan_.types.output);
  if (const auto* fused = std::get_if<config::FusedLinearCrossEntropyConfig>(&recipe_.loss_fn()))
    options.logit_softcap = fused->logit_softcapping();
  return options;
}

void Runtime::make_stages(const parallel::WeightSource& source) {
  const auto& pipeline = *plan_.pipeline;
  const auto sharding = sharding_of(plan_, recipe_.distributed(), world_.device());
  std::vector<pipeline::Stage*> stages;
  for (const auto number : pipeline.schedule.placement.stages_of(place_.pp)) {
    auto& stage = stages_.emplace_back(std::make_unique<LocalStage>(
        number, *plan_.model, modules_of(pipeline.stages[number.at()]), stage_options(), sharding, groups_));
    stage->data_parallel().bind(source);
    if (plan_.levers.deferred_head) stage->defer_head(*plan_.levers.deferred_head);
    stages.push_back(&stage->stage());
  }
  const auto& made = pipeline.schedule;
  executor_ = std::make_unique<pipeline::Executor>(pipeline::Table{made.training, made.placement, made.shape},
                                                   pipeline::Table{made.evaluation, made.placement, made.shape},
                                                   place_.pp, groups_.pipeline.get(), stages);
  executor_->add_watch([this](const schedule::Slot& slot) {
    if (!slot.is_bubble()) world_.activity().begin_action(schedule::to_text(slot));
  });
}

void Runtime::make_optimizer() {
  std::vector<optim::Target> targets;
  // Every element of a gradient is counted on one rank of the world.
  const bool first_replica = !groups_.dense.replicate || groups_.dense.replicate->rank() == 0;
  for (auto& stage : stages_)
    for (auto* storage : stage->data_parallel().storages()) {
      const bool whole = !storage->sharded();
      const auto& reduce = storage->unit().expert ? groups_.expert : groups_.dense;
      optim::Target target{.value = storage->master(),
                           .gradient = [storage] { return storage->gradient(); },
                           .expert = storage->unit().expert};
      for (const auto& segment : storage->segments()) {
        const auto& weight = *segment.weight;
        // Experts are on a grid of their own, without tensor parallelism and replicas.
        const bool on_grid = weight.expert || (first_of_its_kind(weight, place_.tp) && first_replica);
        const bool mine = on_grid && (!whole || reduce.shard->rank() == 0) && !weight.copy;
        target.ranges.push_back({.name = weight.info.fqn,
                                 .group = weight.info.tied_to,
                                 .first = segment.first,
                                 .offset = segment.offset,
                                 .length = segment.length,
                                 .trained = weight.trained,
                                 .counted = mine});
      }
      targets.push_back(std::move(target));
    }
  optimizer_ = std::make_unique<optim::Optimizer>(recipe_.optimizer(), std::move(targets));
}

std::vector<LocalStage*> Runtime::stages() {
  std::vector<LocalStage*> out;
  for (auto& stage : stages_) out.push_back(stage.get());
  return out;
}

void Runtime::set_length(std::int64_t length) {
  if (length == length_) return;
  length_ = length;
  const auto here = length / place_.cp_size / token_shares();
  executor_->set_message({.sizes = {plan_.batch.microbatch, here, plan_.model->spec.hidden},
                          .type = scalar_type(plan_.types.message),
                          .device = world_.device(),
                          .side = plan_.model->spec.router_sums()});
}

void Runtime::set_generation(std::int64_t tokens) {
  length_ = -1;
  executor_->set_message({.sizes = {1, tokens / token_shares(), plan_.model->spec.hidden},
                          .type = scalar_type(plan_.types.message),
                          .device = world_.device()});
}

void Runtime::begin_step() {
  for (auto& stage : stages_) stage->data_parallel().begin_step();
}

void Runtime::finish_gradients() {
  for (auto& stage : stages_) stage->finish();
  if (tensor_) sum_partial_gradients();
  sum_tied_gradients();
}

/// Weights that every tensor-parallel rank has and uses for other tokens or heads, and key-value heads that several
/// ranks have for other queries.
void Runtime::sum_partial_gradients() {
  sum_over(*groups_.tensor, [](const model::Weight& weight) { return weight.tensor_partial; });
  if (groups_.shared_heads)
    sum_over(*groups_.shared_heads, [](const model::Weight& weight) { return weight.tensor_replicas > 1; });
}

/// Tensor-parallel ranks keep equal shards, so that what lies at one place belongs together.
void Runtime::sum_over(comm::Communicator& group, const std::function<bool(const model::Weight&)>& chosen) {
  const ops::NoGraph guard;
  std::vector<at::Tensor> parts;
  for (auto& stage : stages_)
    for (auto* storage : stage->data_parallel().storages())
      for (const auto& segment : storage->segments())
        if (segment.weight->trained && chosen(*segment.weight))
          parts.push_back(storage->gradient().narrow(0, segment.offset, segment.length));
  if (parts.empty()) return;
  const auto all = at::cat(parts);
  group.all_reduce(all, comm::ReduceOp::kSum)->wait();
  std::int64_t offset = 0;
  for (auto& part : parts) {
    part.copy_(all.narrow(0, offset, part.numel()));
    offset += part.numel();
  }
}

/// The two copies of a tied embedding get the same gradient: the sum of theirs.
void Runtime::sum_tied_gradients() {
  parallel::UnitStorage *embedding = nullptr, *head = nullptr;
  for (auto& stage : stages_)
    for (auto* storage : stage->data_parallel().storages()) {
      const bool copy = storage->unit().weights.front()->copy;
      if (copy) head = storage;
      if (storage->unit().weights.front()->info.role == arch::Role::kEmbedding) embedding = storage;
    }
  for (auto* each : {embedding, head})
    if (each != nullptr && !each->unit().trained()) return;
  if (groups_.tied) {
    auto* mine = embedding != nullptr ? embedding : head;
    groups_.tied->all_reduce(mine->gradient(), comm::ReduceOp::kSum)->wait();
  } else if (embedding != nullptr && head != nullptr) {
    const ops::NoGraph guard;
    embedding->gradient().add_(head->gradient());
    head->gradient().copy_(embedding->gradient());
  }
}

void Runtime::publish() {
  for (auto& stage : stages_) stage->data_parallel().publish();
}

}  // namespace automodel::train
