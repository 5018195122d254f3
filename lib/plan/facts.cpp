#include "plan/facts.h"

#include <array>
#include <functional>

#include <fmt/format.h>

#include "config/recipe.h"
#include "plan/communicators.h"
#include "plan/training_plan.h"

namespace automodel::plan {
namespace {

using config::Value;

constexpr Affects kNothing = {}, kNumbers = {.numbers = true}, kTime = {.time = true}, kMemory = {.memory = true};
constexpr Affects operator|(Affects a, Affects b) {
  return {a.numbers || b.numbers, a.time || b.time, a.memory || b.memory};
}

Value value_of(bool value) {
  return value;
}
Value value_of(int value) {
  return value;
}
Value value_of(std::int64_t value) {
  return value;
}
Value value_of(double value) {
  return value;
}
Value value_of(std::uint64_t value) {
  return static_cast<std::int64_t>(value);
}
Value value_of(DType value) {
  return name_of(value);
}
Value value_of(Recompute value) {
  return name_of(value);
}
Value value_of(const std::string& value) {
  return value;
}
Value value_of(config::Backend value) {
  return config::to_dict(value);
}
Value value_of(const ActivationOffloading& value) {
  Value out;
  out.set("layers", value.layers);
  out.set("double_buffering", value.double_buffering);
  out.set("retain_host_buffers", value.retain_host_buffers);
  return out;
}

Value value_of(const Float8Plan& value) {
  Value out;
  out.set("recipe", config::to_dict(value.recipe));
  out.set("left_out", Value::List(value.left_out.begin(), value.left_out.end()));
  out.set("emulate", value.emulate);
  out.set("keep_weights", value.keep_weights);
  return out;
}

Value value_of(const DistillationPlan& value) {
  Value out;
  out.set("ratio", value.ratio);
  out.set("temperature", value.temperature);
  return out;
}

Value value_of(const QuantizationPlan& value) {
  Value out;
  out.set("type", value.base.bits == 4 ? "nf4" : "int8");
  out.set("double_quant", value.base.small_scales);
  out.set("compute", name_of(value.compute));
  return out;
}

template <class List>
requires requires(const List& list) {
  std::string(*list.begin());
}
Value value_of(const List& list) {
  return Value::List(list.begin(), list.end());
}

template <class T>
Value value_of(const std::optional<T>& value) {
  return value ? value_of(*value) : Value();
}

template <class Part>
struct Fact {
  std::string_view name;
  Affects affects;
  std::string_view doc;
  Value (*get)(const Part&);
};

template <class Part, class T>
Part part_of(T Part::*);

/// A member of a part, or of a member of it.
template <auto Member, auto... Inner>
constexpr auto fact(std::string_view name, Affects affects, std::string_view doc = {}) {
  using Part = decltype(part_of(Member));
  return Fact<Part>{name, affects, doc, [](const Part& part) { return value_of(((part.*Member).*....*Inner)); }};
}

constexpr std::array kBatch = {
    fact<&BatchPlan::global>("global", kNumbers | kTime, "Sequences per optimizer step, over all ranks."),
    fact<&BatchPlan::local>("local", kNumbers | kTime | kMemory,
                            "Sequences per data-parallel rank and gradient accumulation step."),
    fact<&BatchPlan::runs>("runs", kNumbers | kTime | kMemory, "Passes through the pipeline per optimizer step."),
    fact<&BatchPlan::merged>("merged", kNumbers | kTime | kMemory,
                             "Gradient accumulation steps that one pass takes together."),
    fact<&BatchPlan::microbatch>("microbatch", kNumbers | kTime | kMemory, "Sequences per microbatch."),
    fact<&BatchPlan::microbatches>("microbatches", kNumbers | kTime | kMemory, "Microbatches per pass."),
    fact<&BatchPlan::length>("sequence_length", kNumbers | kTime | kMemory,
                             "Tokens per sequence; 0 if only the data determines it."),
    fact<&BatchPlan::multiple>("sequence_multiple", kTime | kMemory,
                               "Batches are padded to a multiple of this many tokens."),
    fact<&BatchPlan::validation_length>("validation_length", kMemory,
                                        "Tokens of the longest validation sequences; 0: as in training."),
};

constexpr std::array kTypes = {
    fact<&TypePlan::compute>("compute", kNumbers | kTime | kMemory,
                             "Parameters in forward and backward passes, and activations."),
    fact<&TypePlan::master>("master", kNumbers | kTime | kMemory, "Master weights, which the optimizer updates."),
    fact<&TypePlan::gradient>("gradient", kNumbers | kTime | kMemory,
                              "Gradients while they are accumulated over microbatches."),
    fact<&TypePlan::reduce>("reduce", kNumbers | kTime | kMemory, "Gradients during reduction between ranks."),
    fact<&TypePlan::first_moment>("first_moment", kNumbers | kTime | kMemory, "First moments, or momentum."),
    fact<&TypePlan::second_moment>("second_moment", kNumbers | kTime | kMemory, "Second moments."),
    fact<&TypePlan::message>("message", kNumbers | kTime | kMemory, "Activations between stages."),
    fact<&TypePlan::cast_inputs>("cast_inputs", kNumbers | kTime | kMemory, "A stage casts its inputs to `compute`."),
    fact<&TypePlan::output>("logits", kNumbers | kTime | kMemory, "Logits before the loss; null: `compute`."),
};

constexpr std::array kSharding = {
    fact<&Sharding::optimizer>("optimizer", kTime | kMemory, "Each rank holds the optimizer states of its shard."),
    fact<&Sharding::gradients>("gradients", kTime | kMemory, "Also the gradients."),
    fact<&Sharding::parameters>("parameters", kTime | kMemory, "Also the parameters, which are gathered for use."),
    fact<&Sharding::shards>("shards", kTime | kMemory, "Ranks over which one copy of a dense parameter is sharded."),
    fact<&Sharding::expert_shards>("expert_shards", kTime | kMemory, "The same for an expert's parameter."),
    fact<&Sharding::replicas>("replicas", kTime | kMemory,
                              "Replicas of each shard, over which gradients are all-reduced."),
    fact<&Sharding::whole_stage>("whole_stage", kTime | kMemory, "A whole stage is one unit; if false, each layer is."),
    fact<&Sharding::reshard_after_forward>("reshard_after_forward", kTime | kMemory,
                                           "Gathered parameters are freed between forward and backward."),
    fact<&Sharding::keep_experts>("keep_experts", kTime | kMemory,
                                  "Gathered parameters of experts are kept until the backward pass nevertheless."),
    fact<&Sharding::defer_reduction>("defer_reduction", kTime | kMemory,
                                     "Gradients are reduced only after the last microbatch."),
    fact<&Sharding::overlap_reduction>("overlap_reduction", kTime | kMemory,
                                       "A unit's gradients are reduced during the backward pass."),
    fact<&Sharding::overlap_gather>("overlap_gather", kTime | kMemory, "Units are gathered ahead of their use."),
    fact<&Sharding::forward_prefetch>("forward_prefetch", kTime | kMemory, "Units gathered ahead in the forward pass."),
    fact<&Sharding::backward_prefetch>("backward_prefetch", kTime | kMemory,
                                       "Units gathered ahead in the backward pass."),
    fact<&Sharding::double_buffer>("double_buffer", kTime | kMemory,
                                   "Gathered layers alternate between two persistent buffers."),
    fact<&Sharding::bucket_bytes>(
        "bucket_bytes", kTime | kMemory,
        "All-reduces of unsharded gradients are split into buckets of this size; null: one per unit."),
    fact<&Sharding::offloaded>("offloaded", kTime | kMemory,
                               "Master weights, reduced gradients and optimizer states are in host memory."),
};

constexpr std::array kExecution = {
    fact<&Execution::activations, &ActivationPlan::recompute>(
        "recompute", kTime | kMemory, "What the backward pass recomputes: none, selective or full."),
    fact<&Execution::activations, &ActivationPlan::kept_microbatches>(
        "kept_microbatches", kTime | kMemory,
        "Number of microbatches in flight that keep all activations; null: none."),
    fact<&Execution::gradients, &GradientPlan::deferred_head>(
        "deferred_head", kTime | kMemory,
        "Microbatches for which the head's weight gradient is deferred (0: all); null: none."),
    fact<&Execution::gradients, &GradientPlan::delay_weight_gradients>(
        "delay_weight_gradients", kTime | kMemory, "Input gradients are sent before weight gradients are computed."),
    fact<&Execution::precision, &PrecisionPlan::autocast>("autocast", kNumbers | kTime | kMemory,
                                                          "Dtype of matmuls; null: `compute`."),
    fact<&Execution::precision, &PrecisionPlan::float8>(
        "float8", kNumbers | kTime | kMemory,
        "Linear layers in float8: torchao's recipe, excluded modules, whether GPUs emulate too, and whether 8-bit "
        "weights are kept from one microbatch to the next; null: none."),
    fact<&Execution::precision, &PrecisionPlan::quantization>(
        "quantization", kNumbers | kTime | kMemory,
        "Quantised frozen weights under adapters: nf4 or int8, whether nf4's scales are in 8 "
        "bits, and the matmul dtype; null: not quantised."),
    fact<&Execution::precision, &PrecisionPlan::loss_scaler>("loss_scaler", kNumbers,
                                                             "Dynamic loss scaling (float16)."),
    fact<&Execution::gradients, &GradientPlan::check_gradients>("check_gradients", kNothing,
                                                                "A gradient that is not finite stops the run."),
    fact<&Execution::precision, &PrecisionPlan::fused_accumulation>(
        "fused_accumulation", kNumbers | kTime | kMemory,
        "Matmuls accumulate weight gradients directly in the gradient's dtype; on a GPU all but the grouped GEMMs of "
        "experts do so anyway."),
    fact<&Execution::precision, &PrecisionPlan::deterministic>("deterministic", kTime,
                                                               "On a GPU, only deterministic kernels."),
    fact<&Execution::experts, &ExpertPlan::overlap_experts>(
        "overlap_experts", kTime | kMemory,
        "Tokens are sent to experts in two halves: one is computed while the other is in transit."),
    fact<&Execution::experts, &ExpertPlan::late_expert_gradients>(
        "late_expert_gradients", kTime | kMemory,
        "Experts' weight gradients are computed while input gradients are sent back."),
    fact<&Execution::gradients, &GradientPlan::scale_in_schedule>(
        "scale_in_schedule", kNumbers, "Gradients are divided by the number of microbatches at the reduction."),
    fact<&Execution::gradients, &GradientPlan::max_norm>("max_norm", kNumbers,
                                                         "Maximum global gradient norm; null: no clipping."),
    fact<&Execution::loss, &LossPlan::ignore_label>("ignore_label", kNumbers,
                                                    "Labels with this value are excluded from the loss."),
    fact<&Execution::loss, &LossPlan::logit_softcap>(
        "logit_softcap", kNumbers | kTime, "Soft cap of the logits before the loss, as set by the recipe; 0: none."),
    fact<&Execution::embedding_noise>("embedding_noise", kNumbers | kTime,
                                      "Noise on token embeddings in training: NEFTune's alpha; 0: none."),
    fact<&Execution::experts, &ExpertPlan::router_bias_step>(
        "router_bias_step", kNumbers,
        "Step size of the router correction biases after every optimizer step, moved "
        "against expert load; 0 disables the update."),
    fact<&Execution::loss, &LossPlan::loss_chunk>(
        "loss_chunk", kTime | kMemory,
        "Tokens per chunk of the head's matmul and loss (0, on a CPU: chosen so that a chunk's logits are "
        "about as large as the hidden states, at least 256); null: not chunked."),
    fact<&Execution::loss, &LossPlan::in_place>(
        "loss_in_place", kMemory,
        "In an estimate for another stack, the gradient of the loss takes the place of the logits."),
    fact<&Execution::loss, &LossPlan::distillation>(
        "distillation", kNumbers | kTime | kMemory,
        "Weight of the divergence from the teacher, and its temperature; null: there is no teacher."),
    fact<&Execution::activations, &ActivationPlan::offloading>(
        "offloading", kTime | kMemory,
        "Activations kept in host memory: for how many layers, and with which buffers; null: none."),
    fact<&Execution::capture, &CapturePlan::captured>(
        "captured", kTime | kMemory, "Forward and backward of a microbatch are captured as a CUDA graph and replayed."),
    fact<&Execution::capture, &CapturePlan::not_captured>(
        "not_captured", kNothing,
        "Why microbatches are not captured although the recipe asks for it; null: captured, or "
        "not asked for."),
};

constexpr std::array kWeights = {
    fact<&WeightOrigin::folder>("folder", kNumbers, "Read from here; null: initialised from the seed."),
    fact<&WeightOrigin::zero>("zero", kNumbers, "Left zero (for loading a checkpoint)."),
    fact<&WeightOrigin::seed>("seed", kNumbers, "Seed of weights, data order and dropout."),
};

constexpr std::array kContext = {
    fact<&ContextPlan::heads>("heads", kTime | kMemory, "Number of adjacent ranks that exchange heads (all-to-all)."),
    fact<&ContextPlan::keys>("keys", kTime | kMemory, "Number of such groups that exchange keys and values."),
    fact<&ContextPlan::gather>("gather", kTime | kMemory,
                               "Keys and values are all-gathered instead of passed around a ring."),
};

constexpr std::array kCommunication = {
    fact<&CommunicationPlan::backend>("backend", kTime,
                                      "nccl, mpi, or auto: NCCL if each rank of a host has its own GPU, else MPI."),
    fact<&CommunicationPlan::timeout_minutes>("timeout_minutes", kNothing,
                                              "Minutes after which a wait counts as a hang."),
};

using arch::TensorOverlap;
constexpr std::array kOverlap = {
    fact<&TensorOverlap::gather>("gather", kTime | kMemory,
                                 "The all-gather runs in chunks, each multiplied on arrival."),
    fact<&TensorOverlap::scatter>("scatter", kTime | kMemory,
                                  "The reduce-scatter runs in chunks as they are computed."),
    fact<&TensorOverlap::scatter_in_backward>("scatter_in_backward", kTime | kMemory, "The same for input gradients."),
    fact<&TensorOverlap::gather_in_backward>("gather_in_backward", kTime | kMemory,
                                             "Inputs are gathered during the input-gradient matmul."),
    fact<&TensorOverlap::scatter_under_weights>(
        "scatter_under_weights", kTime | kMemory,
        "Input gradients are reduce-scattered during the weight-gradient matmul."),
    fact<&TensorOverlap::gather_attention>(
        "gather_attention", kTime | kMemory,
        "`gather` and `scatter_in_backward` also apply to the projections of queries, keys and values."),
    fact<&TensorOverlap::gather_mlp>("gather_mlp", kTime | kMemory,
                                     "The same for the first layers of MLPs, shared experts and recurrent mixers."),
};

// Decisions that `plan --json` prints in a form of its own. They have no row on the reference page.

constexpr std::array kMesh = {
    fact<&mesh::MeshSizes::pp>("pp", kTime | kMemory),
    fact<&mesh::MeshSizes::dp_replicate>("dp_replicate", kTime | kMemory),
    fact<&mesh::MeshSizes::dp_shard>("dp_shard", kTime | kMemory),
    fact<&mesh::MeshSizes::cp>("cp", kTime | kMemory),
    fact<&mesh::MeshSizes::tp>("tp", kTime | kMemory),
    fact<&mesh::MeshSizes::ep>("ep", kTime | kMemory),
};

constexpr std::array kRecomputeModules = {
    fact<&RecomputeModules::core_attention>("core_attention", kTime | kMemory),
    fact<&RecomputeModules::norms>("norms", kTime | kMemory),
    fact<&RecomputeModules::latent_up>("latent_up", kTime | kMemory),
    fact<&RecomputeModules::mlp>("mlp", kTime | kMemory),
    fact<&RecomputeModules::experts>("experts", kTime | kMemory),
    fact<&RecomputeModules::expert_activation>("expert_activation", kTime | kMemory),
    fact<&RecomputeModules::shared_experts>("shared_experts", kTime | kMemory),
};

using arch::AdapterSpec;
constexpr std::array kAdapters = {
    fact<&AdapterSpec::rank>("rank", kNumbers | kTime | kMemory),
    fact<&AdapterSpec::expert_rank>("expert_rank", kNumbers | kTime | kMemory),
    fact<&AdapterSpec::alpha>("alpha", kNumbers),
    fact<&AdapterSpec::dropout>("dropout", kNumbers | kTime | kMemory),
    fact<&AdapterSpec::dropout_first>("dropout_first", kNumbers | kTime | kMemory),
    fact<&AdapterSpec::magnitudes>("magnitudes", kNumbers | kTime | kMemory),
    Fact<AdapterSpec>{"start", kNumbers, "",
                      [](const AdapterSpec& spec) -> Value { return static_cast<int>(spec.start); }},
    fact<&AdapterSpec::weights>("weights", kNumbers | kTime | kMemory),
};

/// The optimizer's work per parameter; its rates are among `settings`.
Value update_of(const OptimizerPlan& optimizer) {
  if (const auto* adam = std::get_if<AdamRule>(&optimizer.rule)) return adam->amsgrad ? "adam, amsgrad" : "adam";
  if (const auto* sgd = std::get_if<SgdRule>(&optimizer.rule)) return sgd->momentum > 0 ? "sgd, momentum" : "sgd";
  return fmt::format("muon, {} iterations", std::get<MuonRule>(optimizer.rule).coefficients.size());
}

Value actions_of(const TrainingPlan& plan) {
  if (!plan.pipeline) return nullptr;
  Value::List rows;
  for (const auto& row : plan.pipeline->schedule.training) rows.emplace_back(schedule::to_text(row));
  return rows;
}

Value stages_of(const TrainingPlan& plan) {
  if (!plan.pipeline) return nullptr;
  Value::List rows;
  for (const auto& stage : plan.pipeline->stages)
    rows.emplace_back(Value::List{stage.pp_rank, value_of(stage.part.fqns)});
  return rows;
}

Value teacher_of(const TrainingPlan& plan) {
  if (!plan.teacher) return nullptr;
  const auto& teacher = *plan.teacher;
  Value out;
  out.set("model", teacher.model->config_text);
  out.set("folder", teacher.weights.folder ? Value(*teacher.weights.folder) : Value());
  out.set("dtype", name_of(teacher.types.compute));
  out.set("stages", stages_of(teacher));
  return out;
}

Value features_of(const TrainingPlan& plan) {
  if (!plan.features) return {};
  Value out;
  out.set("cached", plan.features->cached);
  out.set("whole", plan.features->whole);
  return out;
}

constexpr std::array kWork = {
    Fact<TrainingPlan>{"strategy", kNothing, "",
                       [](const TrainingPlan& plan) -> Value { return mesh::name_of(plan.mesh.strategy()); }},
    fact<&TrainingPlan::zero_level>("zero_dp_strategy", kNothing),
    fact<&TrainingPlan::cuda>("cuda", kNumbers | kTime | kMemory),
    fact<&TrainingPlan::expert_tensor>("expert_tensor", kTime | kMemory),
    Fact<TrainingPlan>{"model", kNumbers | kTime | kMemory, "",
                       [](const TrainingPlan& plan) { return plan.model ? Value(plan.model->config_text) : Value(); }},
    Fact<TrainingPlan>{"teacher", kNumbers | kTime | kMemory, "", teacher_of},
    Fact<TrainingPlan>{"frozen", kNumbers | kTime | kMemory, "",
                       [](const TrainingPlan& plan) { return plan.frozen ? value_of(plan.frozen->names) : Value(); }},
    Fact<TrainingPlan>{"features", kTime | kMemory, "", features_of},
    Fact<TrainingPlan>{"update", kNumbers | kTime | kMemory, "",
                       [](const TrainingPlan& plan) { return update_of(plan.optimizer); }},
    Fact<TrainingPlan>{"actions", kTime | kMemory, "", actions_of},
    Fact<TrainingPlan>{"stages", kTime | kMemory, "", stages_of},
};

template <class Rows>
std::vector<FactDoc> docs_of(const Rows& rows) {
  std::vector<FactDoc> out;
  for (const auto& row : rows) out.push_back({row.name, row.affects, row.doc});
  return out;
}

bool has(Affects affects, Effect effect) {
  return effect == nullptr || affects.*effect;
}

template <class Rows, class Part>
Value values_of(const Rows& rows, const Part& part, Effect effect) {
  Value out = Value::Map{};
  for (const auto& row : rows)
    if (has(row.affects, effect)) out.map()->emplace_back(row.name, row.get(part));
  return out;
}

constexpr std::array kTensor = {
    Fact<arch::TensorPlan>{"sequence_parallel", kTime | kMemory,
                           "Norms and the residual stream are sharded over tokens.",
                           [](const arch::TensorPlan& tensor) -> Value { return tensor.sequence_parallel; }},
    Fact<arch::TensorPlan>{"styles", kTime | kMemory, "Style of each module pattern.",
                           [](const arch::TensorPlan& tensor) {
                             Value styles = Value::Map{};
                             for (const auto& [pattern, style] : tensor.rows) styles.set(pattern, arch::name_of(style));
                             return styles;
                           }},
    Fact<arch::TensorPlan>{"overlap", kTime | kMemory, "Which communication overlaps with matmuls; see below.",
                           [](const arch::TensorPlan& tensor) { return values_of(kOverlap, tensor.overlap, nullptr); }},
};

/// What these sections do to time and memory is in other parts, except for the documents of a pack.
Value settings_of(const TrainingPlan& plan, Effect effect) {
  if (effect == nullptr || effect == &Affects::numbers) return plan.settings;
  Value out = Value::Map{};
  const auto* packs = plan.settings.find("packed_sequence");
  if (packs != nullptr) out.set("packed_sequence", *packs);
  return out;
}

Value adapters_of(const TrainingPlan& plan, Effect effect) {
  return plan.adapters ? values_of(kAdapters, plan.adapters->spec, effect) : Value();
}

/// One object of `plan --json`, or decisions that it prints in another form.
struct PlanPart {
  std::string_view name;
  std::string_view doc;
  std::vector<FactDoc> (*rows)();  ///< empty if the contents are documented elsewhere
  Value (*get)(const TrainingPlan& plan, Effect effect);
};

template <const auto& kRows, auto kPart>
constexpr PlanPart part(std::string_view name, std::string_view doc = {}) {
  return {name, doc, [] { return docs_of(kRows); },
          [](const TrainingPlan& plan, Effect effect) { return values_of(kRows, std::invoke(kPart, plan), effect); }};
}

const std::array kPrinted = {
    part<kCommunication, &TrainingPlan::communication>("communication", "How ranks communicate."),
    part<kBatch, &TrainingPlan::batch>("batch", "How the sequences of a step are distributed."),
    part<kTypes, &TrainingPlan::types>("dtypes",
                                       "Dtypes of everything that is stored, computed and sent (see precision.md)."),
    part<kSharding, &TrainingPlan::sharding>("sharding",
                                             "What is sharded over data-parallel ranks, and when it is communicated."),
    part<kExecution, &TrainingPlan::execution>("execution", "Execution options beyond the order of the schedule."),
    part<kTensor, &TrainingPlan::tensor>("tensor", "How modules are split over tensor-parallel ranks."),
    PlanPart{"overlap", "Part of `tensor`.", [] { return docs_of(kOverlap); }, nullptr},
    part<kContext, &TrainingPlan::context>("context", "How context-parallel ranks exchange keys, values and heads."),
    part<kWeights, &TrainingPlan::weights>("weights", "Where the weights come from."),
    PlanPart{"settings",
             "The recipe's sections that apply as written, with defaults filled in and without keys that have no "
             "effect (recipe-reference.md).",
             [] { return std::vector<FactDoc>(); }, settings_of},
};

const mesh::MeshSizes& sizes_of(const TrainingPlan& plan) {
  return plan.mesh.sizes();
}
const TrainingPlan& whole(const TrainingPlan& plan) {
  return plan;
}
const std::array kPrintedElsewhere = {
    part<kMesh, sizes_of>("mesh"),
    part<kRecomputeModules, &TrainingPlan::recompute_modules>("recompute_modules"),
    PlanPart{"adapters", "", [] { return docs_of(kAdapters); }, adapters_of},
    part<kWork, whole>("work"),
};

std::string text_of(Affects affects) {
  std::string out;
  for (const auto& [member, name] :
       {std::pair{&Affects::numbers, "numbers"}, {&Affects::time, "time"}, {&Affects::memory, "memory"}})
    if (affects.*member) out += (out.empty() ? "" : ", ") + std::string(name);
  return out;
}

}  // namespace

void write_parts(JsonWriter& json, const TrainingPlan& plan) {
  for (const auto& part : kPrinted) {
    if (part.get == nullptr) continue;
    json.key(part.name);
    json.document(config::to_json(part.get(plan, nullptr)));
  }
}

Value facts_of(const TrainingPlan& plan, Effect effect) {
  Value out = Value::Map{};
  for (const auto& parts : {std::span<const PlanPart>(kPrinted), std::span<const PlanPart>(kPrintedElsewhere)})
    for (const auto& part : parts)
      if (part.get != nullptr) out.map()->emplace_back(part.name, part.get(plan, effect));
  return out;
}

std::string parts_reference() {
  std::string out =
      "\n## Parts of the plan\n\nWhat a decision affects: `numbers` (what is computed, beyond rounding from another "
      "order of sums), `time` (of a step) or `memory` (of a rank). A past run corrects the time only of plans that "
      "equal "
      "its own in everything that affects time.\n\n| field | meaning |\n| --- | --- |\n";
  for (const auto& part : kPrinted)
    if (part.get != nullptr) out += fmt::format("| `{}` | {} |\n", part.name, part.doc);
  for (const auto& part : kPrinted) {
    const auto rows = part.rows();
    out += fmt::format("\n## `{}`\n\n{}\n", part.name, part.doc);
    if (!rows.empty()) out += "\n| field | affects | meaning |\n| --- | --- | --- |\n";
    for (const auto& row : rows) out += fmt::format("| `{}` | {} | {} |\n", row.name, text_of(row.affects), row.doc);
  }
  return out;
}

}  // namespace automodel::plan
