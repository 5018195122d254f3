#include "plan/training_plan.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include <fmt/format.h>

#include "base/text_hash.h"
#include "config/optimizer_basics.h"
#include "plan/capture_choice.h"
#include "plan/costs.h"
#include "plan/facts.h"
#include "plan/idle_keys.h"
#include "plan/lr_schedule.h"
#include "plan/optimizer_choice.h"
#include "plan/pipeline_plan.h"
#include "plan/storage_units.h"
#include "plan/teacher_plan.h"
#include "plan/tensor_choice.h"
#include "plan/type_choice.h"
#include "plan/vision_choice.h"

namespace automodel::plan {
namespace {

using config::Recipe;

mesh::Strategy strategy_of(const config::DistributedConfig& distributed) {
  return *mesh::parse_strategy(distributed.strategy_name());
}

/// The number of ranks that the recipe's sizes imply if none is given.
std::int64_t implied_world(const config::DistributedConfig& d) {
  std::int64_t world = 1;
  for (const auto& size : {d.pp_size(), d.cp_size(), d.tp_size(), d.dp_size()}) world *= std::max(1, size.value_or(1));
  if (!d.dp_size()) world *= std::max(1, d.dp_replicate_size().value_or(1));
  if (const int ep = d.ep_size().value_or(1); !d.dp_size() && ep > 1) {
    // Experts are spread over the ranks of a stage: add enough data-parallel ranks for them.
    const auto stage = world / std::max(1, d.pp_size().value_or(1));
    world *= ep / std::gcd(stage, std::int64_t{ep});
  }
  return std::min<std::int64_t>(world, 1 << 24);
}

/// "nearest valid values: 4 and 8": the divisors of `whole` on either side of `size`.
std::string nearest_divisors(int whole, int size) {
  int down = std::min(size, whole), up = size;
  while (whole % down != 0) --down;
  while (up < whole && whole % up != 0) ++up;
  return up <= whole && whole % up == 0 ? fmt::format("nearest valid values: {} and {}", down, up)
                                        : fmt::format("nearest valid value: {}", down);
}

/// Meshes on which models are not trained whose layers differ in their heads, have inputs of their own, or use keys of
/// other layers (Gemma 4), or compress keys (DeepSeek V4).
void check_unlike_layers(const arch::ModelSpec& spec, const mesh::MeshSizes& sizes, bool training, Located& report) {
  const auto refuse = [&](bool stands, const char* key, const char* why) {
    if (stands)
      report.plan_only(training, why,
                       Diagnostic{"unsupported-option"}
                           .says("{}: {}", spec.model_type, why)
                           .hint("leave it out; meshes of each family: docs/models.md")
                           .of(key));
  };
  // Ranks that share a key-value head do so in all layers alike.
  const auto& full = spec.full_heads;
  const bool undivided =
      full && (full->heads % sizes.tp != 0 ||
               (full->kv_heads != spec.kv_heads && (full->kv_heads % sizes.tp != 0 || spec.kv_heads % sizes.tp != 0)));
  refuse(sizes.tp > 1 && undivided, "distributed.tp_size",
         "its layers differ in their heads, and tp_size does not divide those of all of them");
  refuse(sizes.tp > 1 && spec.compressed, "distributed.tp_size",
         "all heads share one key, and its attention is whole on every rank");
  refuse(sizes.cp > 1 && spec.compressed, "distributed.cp_size",
         "windows of tokens become entries, which ranks would have to exchange");
  refuse(sizes.pp > 1 && spec.layer_input > 0, "distributed.pp_size",
         "every layer has an input from the embeddings, which pipelines do not carry past the first stage");
  refuse(sizes.pp > 1 && spec.layers_without_keys > 0, "distributed.pp_size",
         "its last layers use keys of earlier ones, which pipelines do not carry to later stages");
}

/// Expert-parallel ranks must hold equal numbers of experts, or equal parts of their width.
void check_expert_ranks(const config::LoadedRecipe& loaded, const arch::ModelSpec& spec, const mesh::MeshSizes& sizes,
                        Located& report) {
  const int tensor = loaded.recipe.model_parallel->expert_tensor_parallel_size().value_or(1);
  const std::string tensor_key = "model_parallel.expert_tensor_parallel_size";
  if (!spec.moe) {
    for (const char* key : {"expert_tensor_parallel_size", "overlap_moe_expert_parallel_comm",
                            "overlap_dispatch_backward_with_experts_wgrad"})
      if (report.given(std::string("model_parallel.") + key))
        report.warn("no-effect", std::string("model_parallel.") + key)
            .says("{} has no effect: '{}' has no experts", key, spec.model_type)
            .hint("remove the key");
    if (sizes.ep > 1)
      report.refuse("bad-value", "distributed.ep_size")
          .says("ep_size is {}, but '{}' has no experts", sizes.ep, spec.model_type)
          .hint("ep_size: 1, or a model with experts");
    return;
  }
  if (spec.moe->experts % sizes.ep != 0)
    report.refuse("indivisible", "distributed.ep_size")
        .says("{} experts cannot be distributed evenly over {} expert-parallel ranks", spec.moe->experts, sizes.ep)
        .hint(nearest_divisors(spec.moe->experts, sizes.ep));
  if (tensor <= 1) return;
  if (spec.moe->bias)
    return void(
        report.refuse("bad-value", tensor_key)
            .says("the experts of '{}' have biases and cannot be split over ranks", spec.model_type)
            .hint("set expert_tensor_parallel_size: 1; distributed.ep_size distributes whole experts over ranks"));
  if (spec.moe->ffn % tensor != 0)
    report.refuse("indivisible", tensor_key)
        .says("experts of width {} cannot be split evenly over {} ranks", spec.moe->ffn, tensor)
        .hint(nearest_divisors(spec.moe->ffn, tensor));
  if (sizes.per_stage() % (sizes.ep * tensor) != 0)
    report.refuse("indivisible", tensor_key)
        .says("{} ranks of a pipeline stage cannot be divided into groups of ep_size {} x {} ranks", sizes.per_stage(),
              sizes.ep, tensor)
        .hint(nearest_divisors(sizes.per_stage() / sizes.ep, tensor));
}

/// Runs Megatron Core's own checks with the sizes from `distributed`.
void check_megatron(const config::LoadedRecipe& loaded, const mesh::MeshSizes& sizes, const TypePlan& types,
                    Located& report) {
  auto m = loaded.recipe.model_parallel();
  m.tensor_model_parallel_size = sizes.tp;
  m.pipeline_model_parallel_size = sizes.pp;
  m.context_parallel_size = sizes.cp;
  m.expert_model_parallel_size = sizes.ep;
  if (!m.pipeline_dtype()) m.pipeline_dtype = types.message;  // this program has a default
  Diagnostics warnings;
  report.refuse_all(config::post_init(m, warnings), "model_parallel");
  report.warn_all(std::move(warnings), "model_parallel");
  if (m.overlap_p2p_comm() && m.batch_p2p_comm() && report.given("model_parallel.batch_p2p_comm"))
    report.refuse("bad-value", "model_parallel.overlap_p2p_comm")
        .says("overlap_p2p_comm and batch_p2p_comm cannot both be true")
        .hint("choose one");
}

/// Megatron-FSDP's level of sharding.
std::optional<int> plan_level(const config::LoadedRecipe& loaded, Located& report) {
  const auto* megatron = std::get_if<config::MegatronFSDPConfig>(&loaded.recipe.distributed->strategy());
  if (megatron == nullptr) return std::nullopt;
  const auto& level = megatron->zero_dp_strategy();
  if (level.named_less)
    report.warn("sharding-level", "distributed.zero_dp_strategy")
        .says("parameters are sharded together with gradients and optimizer states: this is optim_grads_params")
        .hint("no_shard, optim, optim_grads or optim_grads_params");
  return level.level;
}

/// Tokens per sequence; 0 if only the data itself determines it.
std::int64_t length_of(const config::DatasetConfig& dataset) {
  std::int64_t longest = 0;
  bool known = true;  // of every part of a mixture
  config::each_part(dataset, [&](const auto& data) {
    std::int64_t own = 0;
    if constexpr (requires { data.uses_length(); })
      own = data.uses_length() ? data.seq_length().value_or(0) : 0;
    else if constexpr (requires { data.seq_length().has_value(); })
      own = data.seq_length().value_or(0);
    else if constexpr (requires { data.seq_length(); })
      own = data.seq_length();
    known = known && own > 0;
    longest = std::max(longest, own);
  });
  return known ? longest : 0;
}

std::int64_t validation_length(const Recipe& recipe) {
  std::int64_t longest = recipe.validation_dataset() ? length_of(*recipe.validation_dataset()) : 0;
  for (const auto& [name, dataset] : recipe.validation_datasets()) longest = std::max(longest, length_of(dataset));
  return longest;
}

constexpr const char* kPackKey = "packed_sequence.packed_sequence_size";

/// Tokens per sequence according to the data sections, and the key that sets it.
std::pair<std::int64_t, std::string> data_length(const Recipe& recipe) {
  if (!recipe.dataset()) return {0, ""};
  if (const int size = recipe.packed_sequence->packed_sequence_size(); size > 0) return {size, kPackKey};
  return {length_of(*recipe.dataset()), "dataset.seq_length"};
}

/// The same, falling back to pp_seq_len.
std::pair<std::int64_t, std::string> sequence_length(const Recipe& recipe) {
  if (const auto data = data_length(recipe); data.first > 0) return data;
  if (recipe.distributed->pipeline() && recipe.distributed->pipeline()->pp_seq_len())
    return {*recipe.distributed->pipeline()->pp_seq_len(), "distributed.pipeline.pp_seq_len"};
  return {0, ""};
}

/// Checks learning rates, weight decay and parameter groups, as far as possible without the data.
void check_optimizer(const Recipe& recipe, const arch::ModelSpec* spec, Located& report) {
  if (std::holds_alternative<config::DionMuonConfig>(recipe.optimizer()) && spec != nullptr && spec->moe)
    report.refuse("unsupported-option", "optimizer._target_")
        .says("dion.Muon is for models without experts: NeMo AutoModel leaves stacked experts to AdamW")
        .hint("set optimizer._target_: muon, which orthogonalises the matrices of each expert, or adamw");
  // The run has at most max_steps steps.
  constexpr std::int64_t kUnknown = std::int64_t{1} << 40;
  const std::int64_t steps = recipe.step_scheduler().max_steps().value_or(0);
  const auto basics = config::basics_of(recipe.optimizer());
  Diagnostics problems = config::check_overrides(basics.overrides);
  make_lr_schedule(recipe.lr_scheduler(), basics.lr, basics.weight_decay, steps > 0 ? steps : kUnknown, problems);
  report.refuse_all(std::move(problems));
}

/// `length`: tokens per sequence that `key` says, or 0; `longest`: of the data's rows, if they are open. Computed
/// positions begin anew in each document of a pack, so that its length says nothing about them.
void check_positions(const arch::ModelSpec& spec, std::int64_t length, const std::string& key, std::int64_t longest,
                     Located& report) {
  const std::int64_t most = std::max(length, longest);
  if (spec.max_positions <= 0 || most <= spec.max_positions) return;
  const auto place = length > 0 ? key : "dataset";
  if (spec.learned_positions)
    return void(report.refuse("sequence-too-long", place)
                    .says("sequences have {} tokens; the model accepts at most {}", most, spec.max_positions)
                    .hint("{} or less, or a model with a larger max_position_embeddings", spec.max_positions));
  if (key == kPackKey) return;
  report.warn("beyond-positions", place)
      .says("sequences have {} tokens; the model's max_position_embeddings is {}", most, spec.max_positions)
      .hint("{} or less, or scale its positions: model.config.rope_scaling", spec.max_positions);
}

constexpr std::int64_t kAssumedLength = 4096;  // assumed tokens per sequence

BatchPlan plan_batch(const config::LoadedRecipe& loaded, const mesh::MeshSizes& sizes, const arch::ModelSpec* spec,
                     const PlanRequest& request, Located& report) {
  const auto& steps = loaded.recipe.step_scheduler();
  BatchPlan batch{.global = steps.global_batch_size(), .local = steps.local_batch_size()};
  const int unit = batch.local * sizes.dp();
  if (batch.global % unit != 0) {
    const int down = batch.global / unit * unit;
    report.refuse("indivisible", "step_scheduler.global_batch_size")
        .says("global_batch_size {} is not a multiple of local_batch_size {} x data-parallel size {}", batch.global,
              batch.local, sizes.dp())
        .hint(down > 0 ? fmt::format("nearest valid values: {} and {}", down, down + unit)
                       : fmt::format("at least {}, or a smaller local_batch_size", unit));
  } else {
    batch.runs = batch.global / unit;
  }
  const auto [length, key] = sequence_length(loaded.recipe);
  batch.length = length;
  const auto& pipeline = loaded.recipe.distributed->pipeline();
  if (pipeline && pipeline->pp_seq_len() && sizes.pp > 1 && *pipeline->pp_seq_len() != length)
    report.refuse("length-conflict", "distributed.pipeline.pp_seq_len")
        .says("distributed.pipeline.pp_seq_len is {}, but {} is {}", *pipeline->pp_seq_len(), key, length)
        .hint("pp_seq_len: {}, or remove it: stages use the length of the data", length);
  batch.validation_length = validation_length(loaded.recipe);
  if (batch.validation_length == 0) batch.validation_length = request.longest_validation_row.value_or(0);
  if (batch.length == 0 && !request.training) batch.length = loaded.recipe.packed_sequence->packed_sequence_size();
  if (batch.length == 0 && request.longest_row) {
    batch.assumed_length = *request.longest_row;
  } else if (batch.length == 0 && spec != nullptr && request.training) {
    batch.assumed_length = spec->max_positions;  // until the data is open
  } else if (batch.length == 0 && spec != nullptr) {
    batch.assumed_length = std::min<std::int64_t>(spec->max_positions, kAssumedLength);
    report.warn("length-unknown", "dataset")
        .says("the sequence length is unknown: shapes and estimates assume {} tokens", batch.assumed_length)
        .hint("give distributed.pipeline.pp_seq_len, or dataset.seq_length if the data set has that key");
  }
  if (spec != nullptr) check_positions(*spec, length, key, request.longest_row.value_or(0), report);
  const std::int64_t chunks = std::int64_t{2} * sizes.cp;
  if (length > 0 && sizes.cp > 1 && length % chunks != 0) {
    const auto down = length / chunks * chunks;
    report.refuse("indivisible", key)
        .says("sequences of {} tokens cannot be divided evenly into 2 x cp_size = {} chunks", length, chunks)
        .hint("nearest valid values: {} and {}", down, down + chunks);
  }
  return batch;
}

std::optional<mesh::MeshSizes> plan_mesh(const config::LoadedRecipe& loaded, const PlanRequest& request,
                                         const ModelChoice* model, Located& report) {
  const auto& d = loaded.recipe.distributed();
  mesh::MeshRequest sizes{.strategy = strategy_of(d),
                          .dp_size = d.dp_size(),
                          .dp_replicate_size = d.dp_replicate_size(),
                          .tp_size = d.tp_size(),
                          .pp_size = d.pp_size(),
                          .cp_size = d.cp_size(),
                          .ep_size = d.ep_size()};
  // Advice that the next check would refuse is no advice.
  const auto suits = [&](const mesh::MeshSizes& other) {
    Located probe(loaded);
    plan_batch(loaded, other, nullptr, request, probe);
    if (model == nullptr) return probe.ok();
    check_expert_ranks(loaded, model->spec, other, probe);
    choose_tensor_plan(loaded, *model, other, {}, probe);
    return probe.ok() && other.pp <= model->spec.layers;
  };
  Diagnostics problems;
  const auto out =
      mesh::resolve_sizes(sizes, request.world_size ? *request.world_size : implied_world(d), problems, suits);
  report.refuse_all(std::move(problems), "");
  return out;
}

/// A plan is for the recipe's machine, which may differ from the one it is made on.
bool plans_for_cuda(const Recipe& recipe, const PlanRequest& request, const Costs& costs, Located& report) {
  const auto& asked = recipe.hardware->profile();
  if (recipe.device() == config::Device::kCpu && asked && costs.is_gpu(*asked))
    report.warn("device-conflict", "hardware.profile")
        .says("device is cpu: memory and time are those of this machine, not of the profile '{}'", *asked)
        .hint("set device: cuda to plan for it, or remove the profile");
  if (recipe.device() != config::Device::kAuto) return recipe.device() == config::Device::kCuda;
  if (request.cuda_available || request.training) return request.cuda_available;
  if (config::backend_of(recipe) == config::Backend::kNccl) return true;
  return asked && costs.is_gpu(*asked);
}

/// Sequence lengths must be a multiple of this: context-parallel ranks have two chunks each, and tensor-parallel ranks
/// may divide the tokens among them.
std::int64_t token_multiple(const TrainingPlan& plan) {
  const auto& sizes = plan.mesh.sizes();
  const bool experts = plan.model && plan.model->spec.moe;
  const bool divided = sizes.tp > 1 && (plan.tensor.sequence_parallel || experts);
  return std::lcm(sizes.cp > 1 ? 2 * sizes.cp : 1, divided ? sizes.cp * sizes.tp : 1);
}

/// On a CPU, ranks communicate over MPI regardless of the recipe, so that GPU recipes also run there, with a warning.
CommunicationPlan communication_of(const Recipe& recipe, bool cuda, Located& report) {
  const auto asked = config::backend_of(recipe);
  CommunicationPlan out;
  out.timeout_minutes = recipe.dist_env->timeout_minutes().value_or(out.timeout_minutes);
  out.backend = cuda ? asked.value_or(config::Backend::kAuto) : config::Backend::kMpi;
  if (!cuda && asked == config::Backend::kNccl)
    report.warn("no-effect", report.given("dist_env.backend") ? "dist_env.backend" : "distributed.backend")
        .says("nccl is for GPUs; on a CPU the ranks communicate over MPI")
        .hint("set it to auto, which uses what is available");
  return out;
}

WeightOrigin weight_origin(const TrainingPlan& plan, const Recipe& recipe) {
  WeightOrigin out{.zero = !recipe.model_parallel->perform_initialization(),
                   .seed = static_cast<std::uint64_t>(config::seed_of(recipe))};
  if (plan.model && plan.model->load_weights) out.folder = plan.model->folder.native();
  return out;
}

/// Sections that the runtime reads directly. Keys that take effect through a decision of the plan are reported with
/// that decision.
config::Value acting_sections(const Recipe& recipe) {
  config::Value out = config::Value::Map{};
  const auto add = [&](const char* name, const auto& section) {
    if constexpr (requires { section.has_value(); }) {
      out.set(name, section ? config::acting(*section) : config::Value());
    } else {
      out.set(name, config::acting(section));
    }
  };
  add("step_scheduler", recipe.step_scheduler());
  add("dataset", recipe.dataset());
  add("dataloader", recipe.dataloader());
  add("packed_sequence", recipe.packed_sequence());
  add("validation_dataset", recipe.validation_dataset());
  add("loss_fn", recipe.loss_fn());
  add("optimizer", recipe.optimizer());
  add("lr_scheduler", recipe.lr_scheduler());
  return out;
}

/// If sequences are longer than the selection, it is made of the whole sequence, and a layer that reuses an earlier
/// layer's must be in the same stage.
void check_token_index(const TrainingPlan& plan, Located& report) {
  if (!plan.model || !plan.model->spec.index) return;
  const auto& index = *plan.model->spec.index;
  const auto longest = std::max(plan.batch.length, plan.batch.validation_length);
  const auto& sizes = plan.mesh.sizes();
  if (sizes.cp > 1 && (plan.batch.length == 0 || longest > index.top_k)) {
    const auto& spec = plan.model->spec;
    const auto undivided = undivided_heads(spec.heads, spec.latent ? spec.heads : spec.kv_heads, sizes);
    if (!undivided.empty())
      report.refuse("recurrent-context", "distributed.cp_size")
          .says(
              "attention sees tokens that an index selects from the whole sequence: its {} per rank are not divisible "
              "by cp_size {}",
              undivided, sizes.cp)
          .hint("choose a cp_size that divides them, or sequences of at most {} tokens, which are seen whole",
                index.top_k);
  }
  if (!plan.pipeline || plan.batch.planned_length() <= index.top_k) return;
  for (const auto& stage : plan.pipeline->stages) {
    if (stage.part.layers.empty() || !index.reuses(stage.part.layers.front())) continue;
    const int layer = stage.part.layers.front();
    report.refuse("split-conflict", "distributed.pipeline")
        .says("stage {} begins with layer {}, which uses the tokens selected by layer {}", stage.stage, layer,
              index.chooser(layer))
        .hint("begin stages with layers that select tokens themselves, or train with sequences of at most {} tokens",
              index.top_k)
        .exits(ExitCode::kRefused);
  }
}

/// 8-bit weights are kept where that leaves the plan fitting.
void forget_weights_that_do_not_fit(TrainingPlan& plan, const config::Recipe& recipe, Costs& costs) {
  auto& float8 = plan.execution.precision.float8;
  if (!float8 || !float8->keep_weights) return;
  const auto memory = costs.memory(plan, recipe);
  if (memory.capacity && memory.heaviest() > memory.usual()) float8->keep_weights = false;
}

}  // namespace

PlanResult make_plan(const config::LoadedRecipe& loaded, const PlanRequest& request, Costs& costs) {
  Located report(loaded);
  PlanResult result;
  const Recipe& recipe = loaded.recipe;
  for (const auto& warning : loaded.warnings) report.warnings().push_back(warning);
  auto model = choose_model(loaded, report, request.training);
  const auto sizes = plan_mesh(loaded, request, model ? &*model : nullptr, report);
  if (sizes) {
    const arch::ModelSpec* spec = model ? &model->spec : nullptr;
    TrainingPlan plan{.mesh = mesh::DeviceMesh(*sizes, strategy_of(recipe.distributed()))};
    plan.recipe_path = loaded.path;
    plan.cuda = plans_for_cuda(recipe, request, costs, report);
    plan.zero_level = plan_level(loaded, report);
    plan.stack = request.training ? config::Stack::kOwn : recipe.hardware->stack();
    if (!plan.cuda) warn_of_gpu_estimates(recipe.hardware(), report);
    plan.recompute_modules = recompute_modules(recipe, request.training, report);
    plan.expert_tensor = std::max(1, recipe.model_parallel->expert_tensor_parallel_size().value_or(1));
    plan.types = choose_types(loaded, spec, plan.cuda, report);
    plan.execution = choose_execution(loaded,
                                      {.pp = sizes->pp,
                                       .compute = plan.types.compute,
                                       .cuda = plan.cuda,
                                       .layers = spec != nullptr ? std::optional<int>(spec->layers) : std::nullopt,
                                       .head_rows_normed = spec != nullptr && spec->head_rows_normed,
                                       .classifier = spec != nullptr && spec->classes > 0,
                                       .router_biases = spec == nullptr || (spec->moe && spec->moe->correction_bias)},
                                      report);
    plan.batch = plan_batch(loaded, *sizes, spec, request, report);
    check_optimizer(recipe, spec, report);
    plan.pipelined = sizes->pp > 1;
    check_megatron(loaded, *sizes, plan.types, report);
    if (spec != nullptr) check_expert_ranks(loaded, *spec, *sizes, report);
    if (model && !model->spec.plan_only.empty())
      report.plan_only(request.training, model->spec.plan_only,
                       Diagnostic{"unsupported-model"}
                           .says("this model can be planned but not trained: " + model->spec.plan_only)
                           .hint("known families: see docs/models.md")
                           .of("model"));
    if (spec != nullptr) check_unlike_layers(*spec, *sizes, request.training, report);
    check_vision(loaded, model ? &*model : nullptr, *sizes, request.training, report);
    if (model) {
      choose_processor(loaded, *model, report, request.training);
      const auto [tokens, key] = sequence_length(recipe);
      plan.tensor = choose_tensor_plan(loaded, *model, *sizes, {tokens, key}, report);
    }
    const auto& few_bits = plan.execution.precision.quantization;
    if (model)
      plan.adapters = choose_adapters(loaded, *model, few_bits ? std::optional(few_bits->base) : std::nullopt,
                                      request.training, report);
    if (model) plan.frozen = choose_frozen(loaded, *model, report);
    plan.context =
        choose_context_plan(loaded, model ? &*model : nullptr, plan.tensor, *sizes, plan.batch.shortest(), report);
    plan.model = std::move(model);
    choose_features(loaded, request.features, plan, report);
    plan.sharding = plan_sharding(recipe.distributed(), *sizes, plan.expert_tensor,
                                  plan.pipelined ? 2 : plan.batch.runs);  // pipelines run several microbatches
    if (auto& float8 = plan.execution.precision.float8)
      float8->keep_weights = (!plan.cuda || plan.stack == config::Stack::kOwn) &&
                             !stored_parts(plan.sharding).parameters && (plan.pipelined || plan.batch.runs > 1);
    choose_storage_units(plan.sharding, recipe.distributed(), plan.model ? &plan.model->spec : nullptr, report);
    plan.sharding.sequence_parallel = plan.tensor.sequence_parallel;  // either section may request it
    plan.batch.multiple = token_multiple(plan);
    plan.communication = communication_of(recipe, plan.cuda, report);
    plan.weights = weight_origin(plan, recipe);
    plan.optimizer = plan_optimizer(recipe.optimizer(), spec != nullptr ? spec->hidden : 1);
    check_idle_keys(recipe, plan, costs, report);
    plan.first_step = recipe.step_scheduler->start_step();
    plan.settings = acting_sections(recipe);
    if (plan.model) plan.shares = tensor_shares(*plan.model, plan.tensor, sizes->tp);
    if (request.training)
      for (const auto& key : loaded.unsupported)
        report.refuse("unsupported", key.key)
            .says("{} is not supported: {}", key.key, key.reason)
            .hint("'automodel plan' shows everything of this recipe that is not supported");
    // Before the schedule is chosen, which depends on what else needs memory.
    if (recipe.teacher_model() && report.ok()) plan.teacher = plan_teacher(loaded, plan, request, costs, report);
    if ((plan.model || plan.pipelined) && report.ok())
      plan_pipeline(plan, loaded, request, costs, report);
    else if (plan.pipelined)
      check_schedule_name(loaded, report);
    if (plan.model && report.ok()) forget_weights_that_do_not_fit(plan, recipe, costs);
    check_token_index(plan, report);
    if (report.ok()) choose_capture(plan, loaded, report);
    costs.check_machine(plan, recipe, report);
    plan.ignored = loaded.ignored;
    plan.unsupported = loaded.unsupported;
    std::ranges::copy(report.unsupported(), std::back_inserter(plan.unsupported));
    plan.warnings = report.warnings();
    if (report.ok()) result.plan = std::move(plan);
  }
  result.problems = std::move(report.problems());
  result.warnings = std::move(report.warnings());
  return result;
}

std::vector<arch::Parameter> all_parameters(const TrainingPlan& plan) {
  return plan.adapters ? plan.adapters->all : plan.frozen ? plan.frozen->all : arch::parameters(plan.model->layout);
}

std::uint64_t fingerprint(const TrainingPlan& plan) {
  TextHash hash;
  hash.mix(config::to_json(facts_of(plan)));
  return hash.value();
}

}  // namespace automodel::plan
