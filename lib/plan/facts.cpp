#include "plan/facts.h"

#include <array>

#include <fmt/format.h>

#include "config/recipe.h"
#include "plan/communicators.h"
#include "plan/training_plan.h"

namespace automodel::plan {
namespace {

using config::Value;

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
  return value == Recompute::kNone ? "none" : value == Recompute::kFull ? "full" : "selective";
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
  Value::List names;
  for (const auto& name : value.left_out) names.emplace_back(name);
  out.set("left_out", std::move(names));
  out.set("emulate", value.emulate);
  return out;
}

Value value_of(const QuantizationPlan& value) {
  Value out;
  out.set("type", value.base.bits == 4 ? "nf4" : "int8");
  out.set("double_quant", value.base.small_scales);
  out.set("compute", name_of(value.compute));
  return out;
}

template <class T>
Value value_of(const std::optional<T>& value) {
  return value ? value_of(*value) : Value();
}

template <class Part>
struct Fact {
  std::string_view name;
  std::string_view doc;
  Value (*get)(const Part&);
};

template <class Part, class T>
Part part_of(T Part::*);

template <auto Member>
constexpr auto fact(std::string_view name, std::string_view doc) {
  using Part = decltype(part_of(Member));
  return Fact<Part>{name, doc, [](const Part& part) { return value_of(part.*Member); }};
}

constexpr std::array kBatch = {
    fact<&BatchPlan::global>("global", "Sequences per optimizer step, over all ranks."),
    fact<&BatchPlan::local>("local", "Sequences per data-parallel rank and gradient accumulation step."),
    fact<&BatchPlan::runs>("runs", "Gradient accumulation steps per optimizer step."),
    fact<&BatchPlan::microbatch>("microbatch", "Sequences per microbatch."),
    fact<&BatchPlan::microbatches>("microbatches", "Microbatches per gradient accumulation step."),
    fact<&BatchPlan::length>("sequence_length", "Tokens per sequence; 0 if only the data determines it."),
    fact<&BatchPlan::multiple>("sequence_multiple", "Batches are padded to a multiple of this many tokens."),
    fact<&BatchPlan::validation_length>("validation_length",
                                        "Tokens of the longest validation sequences; 0: as in training."),
};

constexpr std::array kTypes = {
    fact<&TypePlan::compute>("compute", "Parameters in forward and backward passes, and activations."),
    fact<&TypePlan::master>("master", "Master weights, which the optimizer updates."),
    fact<&TypePlan::gradient>("gradient", "Gradients while they are accumulated over microbatches."),
    fact<&TypePlan::reduce>("reduce", "Gradients during reduction between ranks."),
    fact<&TypePlan::first_moment>("first_moment", "First moments, or momentum."),
    fact<&TypePlan::second_moment>("second_moment", "Second moments."),
    fact<&TypePlan::message>("message", "Activations between stages."),
    fact<&TypePlan::cast_inputs>("cast_inputs", "A stage casts its inputs to `compute`."),
    fact<&TypePlan::output>("logits", "Logits before the loss; null: `compute`."),
};

constexpr std::array kSharding = {
    fact<&Sharding::optimizer>("optimizer", "Each rank holds the optimizer states of its shard."),
    fact<&Sharding::gradients>("gradients", "Also the gradients."),
    fact<&Sharding::parameters>("parameters", "Also the parameters, which are gathered for use."),
    fact<&Sharding::shards>("shards", "Ranks over which one copy of a dense parameter is sharded."),
    fact<&Sharding::expert_shards>("expert_shards", "The same for an expert's parameter."),
    fact<&Sharding::replicas>("replicas", "Replicas of each shard, over which gradients are all-reduced."),
    fact<&Sharding::whole_stage>("whole_stage", "A whole stage is one unit; if false, each layer is."),
    fact<&Sharding::reshard_after_forward>("reshard_after_forward",
                                           "Gathered parameters are freed between forward and backward."),
    fact<&Sharding::keep_experts>("keep_experts",
                                  "Gathered parameters of experts are kept until the backward pass nevertheless."),
    fact<&Sharding::defer_reduction>("defer_reduction", "Gradients are reduced only after the last microbatch."),
    fact<&Sharding::overlap_reduction>("overlap_reduction", "A unit's gradients are reduced during the backward pass."),
    fact<&Sharding::overlap_gather>("overlap_gather", "Units are gathered ahead of their use."),
    fact<&Sharding::forward_prefetch>("forward_prefetch", "Units gathered ahead in the forward pass."),
    fact<&Sharding::backward_prefetch>("backward_prefetch", "Units gathered ahead in the backward pass."),
    fact<&Sharding::double_buffer>("double_buffer", "Gathered layers alternate between two persistent buffers."),
    fact<&Sharding::bucket_bytes>(
        "bucket_bytes", "All-reduces of unsharded gradients are split into buckets of this size; null: one per unit."),
    fact<&Sharding::offloaded>("offloaded",
                               "Master weights, reduced gradients and optimizer states are in host memory."),
};

constexpr std::array kExecution = {
    fact<&Levers::recompute>("recompute", "What the backward pass recomputes: none, selective or full."),
    fact<&Levers::kept_microbatches>("kept_microbatches",
                                     "Number of microbatches in flight that keep all activations; null: none."),
    fact<&Levers::deferred_head>("deferred_head",
                                 "Microbatches for which the head's weight gradient is deferred (0: all); null: none."),
    fact<&Levers::delay_weight_gradients>("delay_weight_gradients",
                                          "Input gradients are sent before weight gradients are computed."),
    fact<&Levers::autocast>("autocast", "Dtype of matmuls; null: `compute`."),
    fact<&Levers::float8>(
        "float8",
        "Linear layers in float8: torchao's recipe, excluded modules, and whether GPUs emulate too; null: none."),
    fact<&Levers::quantization>("quantization",
                                "Quantised frozen weights under adapters: nf4 or int8, whether nf4's scales are in 8 "
                                "bits, and the matmul dtype; null: not quantised."),
    fact<&Levers::loss_scaler>("loss_scaler", "Dynamic loss scaling (float16)."),
    fact<&Levers::check_gradients>("check_gradients", "A gradient that is not finite stops the run."),
    fact<&Levers::fused_accumulation>("fused_accumulation",
                                      "Matmuls accumulate weight gradients directly in the gradient's dtype."),
    fact<&Levers::deterministic>("deterministic", "On a GPU, only deterministic kernels."),
    fact<&Levers::overlap_experts>(
        "overlap_experts", "Tokens are sent to experts in two halves: one is computed while the other is in transit."),
    fact<&Levers::late_expert_gradients>("late_expert_gradients",
                                         "Experts' weight gradients are computed while input gradients are sent back."),
    fact<&Levers::scale_in_schedule>("scale_in_schedule",
                                     "Gradients are divided by the number of microbatches at the reduction."),
    fact<&Levers::max_norm>("max_norm", "Maximum global gradient norm; null: no clipping."),
    fact<&Levers::ignore_label>("ignore_label", "Labels with this value are excluded from the loss."),
    fact<&Levers::logit_softcap>("logit_softcap",
                                 "Soft cap of the logits before the loss, as set by the recipe; 0: none."),
    fact<&Levers::embedding_noise>("embedding_noise",
                                   "Noise on token embeddings in training: NEFTune's alpha; 0: none."),
    fact<&Levers::router_bias_step>("router_bias_step",
                                    "Step size of the router correction biases after every optimizer step, moved "
                                    "against expert load; 0 disables the update."),
    fact<&Levers::loss_chunk>("loss_chunk",
                              "Tokens per chunk of the head's matmul and loss (0: chosen so that a chunk's logits are "
                              "about as large as the hidden states, at least 256); null: not chunked."),
    fact<&Levers::offloading>(
        "offloading", "Activations kept in host memory: for how many layers, and with which buffers; null: none."),
    fact<&Levers::captured>("captured",
                            "Forward and backward of a microbatch are captured as a CUDA graph and replayed."),
    fact<&Levers::not_captured>("not_captured",
                                "Why microbatches are not captured although the recipe asks for it; null: captured, or "
                                "not asked for."),
};

constexpr std::array kWeights = {
    fact<&WeightOrigin::folder>("folder", "Read from here; null: initialised from the seed."),
    fact<&WeightOrigin::zero>("zero", "Left zero (for loading a checkpoint)."),
    fact<&WeightOrigin::seed>("seed", "Seed of weights, data order and dropout."),
};

constexpr std::array kContext = {
    fact<&ContextPlan::heads>("heads", "Number of adjacent ranks that exchange heads (all-to-all)."),
    fact<&ContextPlan::keys>("keys", "Number of such groups that exchange keys and values."),
    fact<&ContextPlan::gather>("gather", "Keys and values are all-gathered instead of passed around a ring."),
};

constexpr std::array kCommunication = {
    fact<&CommunicationPlan::backend>("backend",
                                      "nccl, mpi, or auto: NCCL if each rank of a host has its own GPU, else MPI."),
    fact<&CommunicationPlan::timeout_minutes>("timeout_minutes", "Minutes after which a wait counts as a hang."),
};

using arch::TensorOverlap;
constexpr std::array kOverlap = {
    fact<&TensorOverlap::gather>("gather", "The all-gather runs in chunks, each multiplied on arrival."),
    fact<&TensorOverlap::scatter>("scatter", "The reduce-scatter runs in chunks as they are computed."),
    fact<&TensorOverlap::scatter_in_backward>("scatter_in_backward", "The same for input gradients."),
    fact<&TensorOverlap::gather_in_backward>("gather_in_backward",
                                             "Inputs are gathered during the input-gradient matmul."),
    fact<&TensorOverlap::scatter_under_weights>(
        "scatter_under_weights", "Input gradients are reduce-scattered during the weight-gradient matmul."),
    fact<&TensorOverlap::gather_attention>("gather_attention",
                                           "`gather` also applies to the projections of queries, keys and values."),
    fact<&TensorOverlap::gather_mlp>("gather_mlp", "`gather` also applies to the MLP's first layer."),
};

template <class Rows>
std::vector<FactDoc> docs_of(const Rows& rows) {
  std::vector<FactDoc> out;
  for (const auto& row : rows) out.push_back({row.name, row.doc});
  return out;
}

template <class Rows, class Part>
Value values_of(const Rows& rows, const Part& part) {
  Value out = Value::Map{};
  for (const auto& row : rows) out.map()->emplace_back(row.name, row.get(part));
  return out;
}

Value tensor_of(const TrainingPlan& plan) {
  Value out = Value::Map{};
  out.set("sequence_parallel", plan.tensor.sequence_parallel);
  Value styles = Value::Map{};
  for (const auto& [pattern, style] : plan.tensor.rows) styles.set(pattern, arch::name_of(style));
  out.set("styles", std::move(styles));
  out.set("overlap", values_of(kOverlap, plan.tensor.overlap));
  return out;
}

std::vector<FactDoc> tensor_docs() {
  return {{"sequence_parallel", "Norms and the residual stream are sharded over tokens."},
          {"styles", "Style of each module pattern."},
          {"overlap", "Which communication overlaps with matmuls; see below."}};
}

std::vector<FactDoc> no_docs() {
  return {};
}

const std::array kParts = {
    PlanPart{"communication", "How ranks communicate.", [] { return docs_of(kCommunication); },
             [](const TrainingPlan& plan) { return values_of(kCommunication, plan.communication); }},
    PlanPart{"batch", "How the sequences of a step are distributed.", [] { return docs_of(kBatch); },
             [](const TrainingPlan& plan) { return values_of(kBatch, plan.batch); }},
    PlanPart{"dtypes", "Dtypes of everything that is stored, computed and sent (see precision.md).",
             [] { return docs_of(kTypes); }, [](const TrainingPlan& plan) { return values_of(kTypes, plan.types); }},
    PlanPart{"sharding", "What is sharded over data-parallel ranks, and when it is communicated.",
             [] { return docs_of(kSharding); },
             [](const TrainingPlan& plan) { return values_of(kSharding, plan.sharding); }},
    PlanPart{"execution", "Execution options beyond the order of the schedule.", [] { return docs_of(kExecution); },
             [](const TrainingPlan& plan) { return values_of(kExecution, plan.levers); }},
    PlanPart{"tensor", "How modules are split over tensor-parallel ranks.", tensor_docs, tensor_of},
    PlanPart{"overlap", "Part of `tensor`.", [] { return docs_of(kOverlap); }, nullptr},
    PlanPart{"context", "How context-parallel ranks exchange keys, values and heads.", [] { return docs_of(kContext); },
             [](const TrainingPlan& plan) { return values_of(kContext, plan.context); }},
    PlanPart{"weights", "Where the weights come from.", [] { return docs_of(kWeights); },
             [](const TrainingPlan& plan) { return values_of(kWeights, plan.weights); }},
    PlanPart{"settings",
             "The recipe's sections that apply as written, with defaults filled in and without keys that have no "
             "effect (recipe-reference.md).",
             no_docs, [](const TrainingPlan& plan) { return plan.settings; }},
};

}  // namespace

void write_parts(JsonWriter& json, const TrainingPlan& plan) {
  for (const auto& part : kParts) {
    if (part.get == nullptr) continue;
    json.key(part.name);
    json.document(config::to_json(part.get(plan)));
  }
}

std::string parts_reference() {
  std::string out = "\n## Parts of the plan\n\n| field | meaning |\n| --- | --- |\n";
  for (const auto& part : kParts)
    if (part.get != nullptr) out += fmt::format("| `{}` | {} |\n", part.name, part.doc);
  for (const auto& part : kParts) {
    const auto rows = part.rows();
    out += fmt::format("\n## `{}`\n\n{}\n", part.name, part.doc);
    if (!rows.empty()) out += "\n| field | meaning |\n| --- | --- |\n";
    for (const auto& row : rows) out += fmt::format("| `{}` | {} |\n", row.name, row.doc);
  }
  return out;
}

}  // namespace automodel::plan
