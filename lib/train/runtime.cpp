#include "train/runtime.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "ops/scalar_type.h"
#include "parallel/tensor/placement.h"
#include "plan/communicators.h"
#include "plan/sharding.h"
#include "train/initial_values.h"
#include "train/weight_files.h"

namespace automodel::train {
namespace {

using mesh::Axis;

model::StageModules modules_of(const plan::StagePlan& stage) {
  return {.embeddings = stage.part.has_embedding,
          .layers = stage.part.layers,
          .norm = stage.part.has_norm,
          .head = stage.part.has_head};
}

parallel::StorageOptions storage_of(const plan::TrainingPlan& plan, at::Device device) {
  return {.sharding = plan::stored_parts(plan.sharding),
          .compute = scalar_type(plan.types.compute),
          .master = scalar_type(plan.types.master),
          .gradient = scalar_type(plan.types.gradient),
          .reduce = scalar_type(plan.types.reduce),
          .device = device};
}

optim::Place place_of(const arch::Parameter& parameter) {
  if (parameter.role == arch::Role::kHead && parameter.tied_to.empty()) return optim::Place::kHead;
  const bool table = parameter.role == arch::Role::kHead || parameter.role == arch::Role::kEmbedding ||
                     parameter.role == arch::Role::kPositions || parameter.part == arch::Part::kInputsTable;
  return table ? optim::Place::kEmbedding : optim::Place::kLayers;
}

int index_of(const std::vector<optim::Matrix>& matrices, const std::string& name) {
  const auto found = std::find_if(matrices.begin(), matrices.end(), [&](const auto& m) { return m.name == name; });
  return found == matrices.end() ? -1 : static_cast<int>(found - matrices.begin());
}

}  // namespace

bool first_of_its_kind(const model::Weight& weight, int tp) {
  return weight.tensor_sharded ? tp % weight.tensor_replicas == 0 : tp == 0;
}

LocalStage::LocalStage(schedule::Stage number, const plan::ModelChoice& choice, model::StageModules modules,
                       model::StageOptions options, const parallel::StorageOptions& storage, const Groups& groups)
    : model_(choice.spec, choice.layout, std::move(modules), std::move(options)),
      data_parallel_(model_.weights(), storage, groups.dense, groups.expert),
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
  if (divisor_ > 0 && data_parallel_.options().sharding.defer_reduction)
    pipeline::scale_grads_by_divisor(model_.weights(), divisor_);
  data_parallel_.reduce();
}

void LocalStage::finish() {
  data_parallel_.finish();
  if (divisor_ == 0 || data_parallel_.options().sharding.defer_reduction) return;
  const ops::NoGraph guard;
  for (auto* storage : data_parallel_.storages())
    if (storage->gradient().defined()) storage->gradient().div_(divisor_);  // undefined for a frozen unit
}

void LocalStage::last_backward() {
  // With a divisor, gradients must not be reduced before it is applied.
  if (divisor_ == 0) data_parallel_.last_backward();
}

Runtime::Runtime(const plan::TrainingPlan& plan, comm::World& world, const parallel::WeightSource& source,
                 RuntimeOptions options)
    : plan_(plan), world_(world), options_(std::move(options)) {
  make_groups();
  make_seams();
  make_stages(source);
  if (options_.saves && !options_.forward_only && !plan_.adapters) keep_cached(source);
  if (!options_.forward_only) make_optimizer();
  if (plan_.teacher) make_teacher();
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
  const auto group = [&](plan::Channel channel) -> std::shared_ptr<comm::Communicator> {
    const auto members = plan::members_of(plan_, channel, rank);
    const auto traffic = plan::traffic_of(plan_, channel);
    return members.empty() ? nullptr
                           : world_.group(members, std::string(plan::name_of(channel)),
                                          {.collectives = traffic.collectives,
                                           .all_to_all = traffic.all_to_all,
                                           .messages = traffic.messages,
                                           .ring = traffic.ring});
  };
  groups_.pipeline = group(plan::Channel::kPipeline);
  groups_.tensor = group(plan::Channel::kTensor);
  groups_.shared_heads = group(plan::Channel::kSharedHeads);
  groups_.context = group(plan::Channel::kContext);
  groups_.context_heads = group(plan::Channel::kContextHeads);
  groups_.context_keys = group(plan::Channel::kContextKeys);
  groups_.dense = {group(plan::Channel::kDenseShard), group(plan::Channel::kDenseReplicate)};
  groups_.expert.shard = group(plan::Channel::kExpertShard);
  groups_.experts = group(plan::Channel::kExperts);
  groups_.tokens = group(plan::Channel::kTokens);
  groups_.tied = group(plan::Channel::kTied);
  // The parts of an expert are on consecutive ranks of a stage.
  const int ep = mesh.size(Axis::kEp), tensor = plan_.expert_tensor;
  const int here = mesh.position(rank, mesh::kStageRanks) % (ep * tensor);
  place_.expert = {ep, here / tensor, tensor, here % tensor};
}

model::Placement Runtime::placement(const arch::Parameter& parameter, const Place& place) const {
  if (parameter.is_expert()) return parallel::expert_placement(parameter, plan_.model->spec.moe->experts, place.expert);
  return parallel::tensor_placement(plan_.model->spec, plan_.model->layout, plan_.tensor, parameter,
                                    {place.tp_size, place.tp});
}

void Runtime::make_seams() {
  if (place_.tp_size > 1)
    tensor_ = std::make_unique<parallel::TensorParallel>(groups_.tensor, plan_.model->spec, plan_.model->layout,
                                                         plan_.tensor);
  if (place_.cp_size > 1)
    context_ = std::make_unique<parallel::ContextParallel>(parallel::ContextGroups{
        groups_.context, groups_.context_heads, groups_.context_keys,
        plan_.context.gather ? parallel::KeyTransport::kGather : parallel::KeyTransport::kRing});
  if (plan_.model->spec.moe) {
    experts_ = std::make_unique<parallel::ExpertParallel>(
        groups_.experts, groups_.tokens,
        parallel::ExpertOptions{
            .plan = plan_.execution.experts, .tensor = place_.expert.tensor_size, .device = world_.device()});
  }
  if (const auto& offloading = plan_.execution.activations.offloading;
      offloading && (!world_.device().is_cpu() || options_.offload_on_cpu))
    offload_ = std::make_unique<ops::ActivationOffload>(world_.device(), *offloading);
}

model::StageOptions Runtime::stage_options() const {
  model::StageOptions options{
      .type = scalar_type(plan_.types.compute),
      .device = world_.device(),
      .seams = {.tensor = tensor_.get(), .context = context_.get(), .expert = experts_.get()},
      .placement = [this](const arch::Parameter& parameter) { return placement(parameter, place_); },
      .execution = plan_.execution,
      .adapters = plan_.adapters ? &plan_.adapters->spec : nullptr,
      .frozen = plan_.frozen ? &plan_.frozen->names : nullptr,
      .cast_inputs = plan_.types.cast_inputs,
      .whole_stage = plan_.sharding.whole_stage,
      .offload = offload_.get()};
  if (plan_.types.output) options.output = scalar_type(*plan_.types.output);
  return options;
}

void Runtime::make_stages(const parallel::WeightSource& source) {
  const auto& pipeline = *plan_.pipeline;
  const auto storage = storage_of(plan_, world_.device());
  std::vector<pipeline::Stage*> stages;
  for (const auto number : pipeline.schedule.placement.stages_of(place_.pp)) {
    auto& stage = stages_.emplace_back(std::make_unique<LocalStage>(
        number, *plan_.model, modules_of(pipeline.stages[number.at()]), stage_options(), storage, groups_));
    stage->data_parallel().bind(source);
    if (plan_.execution.gradients.deferred_head) stage->defer_head(*plan_.execution.gradients.deferred_head);
    stages.push_back(&stage->stage());
  }
  const auto& made = pipeline.schedule;
  pipeline_ =
      std::make_unique<pipeline::Pipeline>(pipeline::Table{made.training, made.placement, made.shape},
                                           pipeline::Table{made.evaluation, made.placement, made.shape}, place_.pp,
                                           groups_.pipeline.get(), stages, world_.device(), make_capture());
  pipeline_->add_watch([this](const schedule::Slot& slot) {
    if (!slot.is_bubble()) world_.activity().begin_action(schedule::to_text(slot));
  });
}

/// Null if microbatches are not captured.
std::unique_ptr<ops::WorkCapture> Runtime::make_capture() const {
  if (!plan_.execution.capture.captured) return nullptr;
  const auto& make = options_.capture || world_.device().is_cpu() ? options_.capture : ops::loaded_capture();
  return make ? make() : nullptr;
}

/// Adds the unit's matrices that the optimizer updates as a whole, and the groups of ranks that hold parts of them.
void Runtime::add_matrices(optim::Target& target, const parallel::UnitStorage& storage) const {
  const auto& unit = storage.unit();
  const bool apart = unit.expert ? place_.expert.tensor_size > 1 : place_.tp_size > 1;
  for (std::size_t i = 0; i < unit.weights.size(); ++i) {
    const auto& weight = *unit.weights[i];
    if (!weight.trained || !optim::needs_whole_matrix(plan_.optimizer, weight.info)) continue;
    optim::Matrix matrix{.name = weight.info.fqn,
                         .shape = weight.full,
                         .offset = storage.offset_of(i),
                         .length = weight.parameter.numel()};
    if (weight.info.is_expert() && weight.info.expert < 0) {
      matrix.shape = weight.parameter.shape;  // a stack of this rank's experts, each whole
    } else if (apart && !weight.slice.whole()) {
      const int ranks = unit.expert ? place_.expert.tensor_size : place_.tp_size;
      for (int rank = 0; rank < ranks; ++rank) {
        auto place = place_;
        (unit.expert ? place.expert.tensor_rank : place.tp) = rank;
        matrix.slices.push_back(placement(weight.info, place).slice);
      }
    }
    target.matrices.push_back(std::move(matrix));
  }
  if (target.matrices.empty()) return;
  const auto& reduce = unit.expert ? groups_.expert : groups_.dense;
  target.groups = {.shard = reduce.shard, .sharded = storage.sharded(), .length = storage.master().numel()};
  target.groups.device = world_.device();
  if (storage.sharded()) target.groups.begin = reduce.shard->rank() * target.groups.length;
  if (!apart) return;
  target.groups.tensor = unit.expert ? groups_.experts : groups_.tensor;
  const int ranks = unit.expert ? place_.expert.tensor_size : place_.tp_size;
  const int first = unit.expert ? groups_.experts->rank() / ranks * ranks : 0;
  for (int rank = 0; rank < ranks; ++rank) target.groups.tensor_members.push_back(first + rank);
}

void Runtime::make_optimizer() {
  std::vector<optim::Target> targets;
  // For norms, each gradient element is counted on exactly one rank.
  const bool first_replica = !groups_.dense.replicate || groups_.dense.replicate->rank() == 0;
  for (auto& stage : stages_)
    for (auto* storage : stage->data_parallel().storages()) {
      const bool whole = !storage->sharded();
      const auto& reduce = storage->unit().expert ? groups_.expert : groups_.dense;
      optim::Target target{.value = storage->master(),
                           .gradient = [storage] { return storage->gradient(); },
                           .expert = storage->unit().expert};
      add_matrices(target, *storage);
      for (const auto& segment : storage->segments()) {
        const auto& weight = *segment.weight;
        // Experts have a mesh of their own, without tensor-parallel copies and replica groups.
        const bool on_grid = weight.expert || (first_of_its_kind(weight, place_.tp) && first_replica);
        const bool mine = on_grid && (!whole || reduce.shard->rank() == 0) && !weight.copy;
        target.ranges.push_back({.name = weight.info.fqn,
                                 .group = weight.info.tied_to,
                                 .first = segment.first,
                                 .offset = segment.offset,
                                 .length = segment.length,
                                 .trained = weight.trained,
                                 .counted = mine,
                                 .place = place_of(weight.info),
                                 .matrix = index_of(target.matrices, weight.info.fqn)});
      }
      targets.push_back(std::move(target));
    }
  optimizer_ = std::make_unique<optim::Optimizer>(plan_.optimizer, std::move(targets));
}

/// With groups of its own: which ranks share what may differ from the student's.
void Runtime::make_teacher() {
  const auto& plan = *plan_.teacher;
  auto source = initial_values(plan);
  if (plan.model->load_weights) {
    Diagnostics problems;
    auto files = WeightFiles::open(plan.model->folder, *plan.model, world_.rank() == 0, problems);
    if (!problems.empty()) throw Error(std::move(problems));
    source = stored_values(std::move(files));
  }
  teacher_ = std::make_unique<Runtime>(plan, world_, source,
                                       RuntimeOptions{.offload_on_cpu = options_.offload_on_cpu, .forward_only = true});
}

void Runtime::teach(std::vector<model::Microbatch>& microbatches) {
  if (!teacher_) return;
  auto& pipeline = teacher_->pipeline();
  const auto most = static_cast<std::size_t>(pipeline.most_microbatches());
  auto* last = teacher_->stages_.back().get();
  for (std::size_t begin = 0; begin < microbatches.size(); begin += most) {
    const auto end = std::min(begin + most, microbatches.size());
    std::vector<model::Microbatch> part(microbatches.begin() + static_cast<std::ptrdiff_t>(begin),
                                        microbatches.begin() + static_cast<std::ptrdiff_t>(end));
    std::vector<std::int64_t> lengths;
    for (auto& each : part) {
      each.draw = {};
      each.parts = {};
      lengths.push_back(each.length);
    }
    teacher_->set_lengths(std::move(lengths));
    const auto inputs = pipeline.head_inputs(part);
    AUTOMODEL_CHECK(inputs.size() == (stages_.back()->model().modules().head ? part.size() : 0),
                    "the heads of a student and its teacher are on one rank");
    for (std::size_t i = 0; i < inputs.size(); ++i)
      microbatches[begin + i].teacher =
          std::make_shared<const model::TeacherHead>(model::TeacherHead{&last->model(), inputs[i]});
  }
}

std::vector<LocalStage*> Runtime::stages() {
  std::vector<LocalStage*> out;
  for (auto& stage : stages_) out.push_back(stage.get());
  return out;
}

PictureInput Runtime::picture_input() const {
  return {.wanted = std::ranges::any_of(stages_, [](const auto& stage) { return stage->model().modules().embeddings; }),
          .features = options_.features.get(),
          .type = scalar_type(plan_.types.compute)};
}

void Runtime::keep_cached(const parallel::WeightSource& source) {
  std::vector<arch::Parameter> cached;
  std::int64_t all = 0;
  for (auto& info : arch::parameters(plan_.model->layout))
    if (info.cached) all += info.shape.elements(), cached.push_back(std::move(info));
  const auto begin = all * world_.rank() / world_.size(), end = all * (world_.rank() + 1) / world_.size();
  std::int64_t at = 0;
  for (auto& info : cached) {
    const auto size = info.shape.elements();
    const auto first = std::clamp(begin, at, at + size) - at, last = std::clamp(end, at, at + size) - at;
    at += size;
    if (first == last) continue;
    auto values = at::empty({last - first}, at::TensorOptions().dtype(scalar_type(plan_.types.compute)));
    source(model::whole_weight(info), first, values);
    kept_parts_.push_back({std::move(info), first, std::move(values)});
  }
}

void Runtime::set_lengths(std::vector<std::int64_t> lengths) {
  if (lengths == lengths_) return;
  lengths_ = std::move(lengths);
  std::vector<std::int64_t> here;
  for (const auto length : lengths_) here.push_back(length / place_.cp_size / token_shares());
  pipeline_->set_message({.rows = plan_.batch.microbatch,
                          .tokens = std::move(here),
                          .widths = plan::message_widths(plan_),
                          .type = scalar_type(plan_.types.message),
                          .device = world_.device(),
                          .side = plan_.model->spec.router_sums()});
}

void Runtime::set_generation(std::int64_t tokens) {
  lengths_.clear();
  pipeline_->set_message({.rows = 1,
                          .tokens = {tokens / token_shares()},
                          .widths = plan::message_widths(plan_),
                          .type = scalar_type(plan_.types.message),
                          .device = world_.device()});
}

void Runtime::begin_step() {
  for (auto& stage : stages_) {
    stage->data_parallel().begin_step();
    stage->model().loads().clear();
  }
}

/// Each token is routed on exactly one rank and loads are integers, so their sums over all ranks, and therefore the
/// biases, are the same on every mesh.
void Runtime::move_router_biases() {
  const double step = plan_.execution.experts.router_bias_step;
  if (step == 0) return;
  const ops::NoGraph guard;
  const auto& spec = plan_.model->spec;
  auto loads = at::zeros({spec.layers, spec.moe->experts}, at::TensorOptions().dtype(at::kDouble));
  for (auto& stage : stages_) stage->model().loads().add_to(loads);
  world_.control().all_reduce(loads, comm::ReduceOp::kSum)->wait();
  const auto moves = (loads.mean(1, true) - loads).sign().mul(step);
  for (auto& stage : stages_)
    for (auto* storage : stage->data_parallel().storages())
      for (const auto& segment : storage->segments()) {
        const auto& info = segment.weight->info;
        if (info.part != arch::Part::kRouterBias) continue;
        auto bias = storage->master().narrow(0, segment.offset, segment.length);
        bias.add_(moves.select(0, info.layer).narrow(0, segment.first, segment.length).to(bias.options()));
      }
}

void Runtime::finish_gradients() {
  for (auto& stage : stages_) stage->finish();
  if (tensor_) sum_partial_gradients();
  sum_tied_gradients();
}

/// Sums the gradients of weights that are replicated on tensor-parallel ranks but applied to different tokens or heads,
/// and of key-value heads that several ranks hold for different query heads.
void Runtime::sum_partial_gradients() {
  sum_over(*groups_.tensor, [](const model::Weight& weight) { return weight.tensor_partial; });
  if (groups_.shared_heads)
    sum_over(*groups_.shared_heads, [](const model::Weight& weight) { return weight.tensor_replicas > 1; });
}

/// Tensor-parallel ranks have shards of equal layout, so elements at the same offset correspond.
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

/// Gives both copies of a tied embedding the sum of their gradients.
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
