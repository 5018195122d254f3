// Every decision of a plan says what it affects; runs and plans are compared by these statements.
#include "plan/facts.h"

#include <functional>
#include <map>
#include <memory>
#include <set>

#include <catch2/catch.hpp>

#include "estimate/past_runs.h"
#include "planned.h"

namespace automodel::plan {
namespace {

using estimate::EstimatedPlan;
using Change = std::function<void(EstimatedPlan&)>;

EstimatedPlan small_plan() {
  return test::planned(
      "model: {config: {architectures: [LlamaForCausalLM], model_type: llama, hidden_size: 64, intermediate_size: 128, "
      "num_hidden_layers: 4, num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 96, "
      "max_position_embeddings: 128}}\n"
      "device: cpu\npeft: {dim: 4}\ndistributed: {strategy: fsdp2, pp_size: 2, dp_size: 2, pipeline: {}}\n"
      "step_scheduler: {global_batch_size: 8, local_batch_size: 4}\ndataset: {_target_: mock, seq_length: 64}\n");
}

template <class T>
void change(T& value) {
  if constexpr (std::is_same_v<T, bool>)
    value = !value;
  else
    value += 1;
}

template <auto Part, auto... Member>
Change other() {
  return [](EstimatedPlan& plan) { change(((plan.*Part).*....*Member)); };
}
template <auto Part, auto... Member>
Change set(auto to) {
  return [to](EstimatedPlan& plan) { ((plan.*Part).*....*Member) = to; };
}

constexpr auto kBatch = &TrainingPlan::batch;
constexpr auto kTypes = &TrainingPlan::types;
constexpr auto kSharding = &TrainingPlan::sharding;
constexpr auto kExecution = &TrainingPlan::execution;
constexpr auto kContext = &TrainingPlan::context;
constexpr auto kModules = &TrainingPlan::recompute_modules;
constexpr auto kWeights = &TrainingPlan::weights;
constexpr auto kCommunication = &TrainingPlan::communication;

template <auto Member>
Change overlap() {
  return [](EstimatedPlan& plan) { change(plan.tensor.overlap.*Member); };
}
template <auto Member>
Change adapters() {
  return [](EstimatedPlan& plan) { change(plan.adapters->spec.*Member); };
}
template <auto Member>
Change sizes() {
  return [](EstimatedPlan& plan) {
    auto other = plan.mesh.sizes();
    other.*Member *= 2;
    plan.mesh = mesh::DeviceMesh(other, plan.mesh.strategy());
  };
}

/// A plan that differs in this decision only.
const std::map<std::string, Change>& changes() {
  using arch::AdapterSpec;
  using arch::TensorOverlap;
  static const std::map<std::string, Change> kChanges = {
      {"communication.backend", set<kCommunication, &CommunicationPlan::backend>(config::Backend::kNccl)},
      {"communication.timeout_minutes", set<kCommunication, &CommunicationPlan::timeout_minutes>(3.0)},
      {"batch.global", other<kBatch, &BatchPlan::global>()},
      {"batch.local", other<kBatch, &BatchPlan::local>()},
      {"batch.runs", other<kBatch, &BatchPlan::runs>()},
      {"batch.merged", other<kBatch, &BatchPlan::merged>()},
      {"batch.microbatch", other<kBatch, &BatchPlan::microbatch>()},
      {"batch.microbatches", other<kBatch, &BatchPlan::microbatches>()},
      {"batch.sequence_length", other<kBatch, &BatchPlan::length>()},
      {"batch.sequence_multiple", other<kBatch, &BatchPlan::multiple>()},
      {"batch.validation_length", other<kBatch, &BatchPlan::validation_length>()},
      {"dtypes.compute", set<kTypes, &TypePlan::compute>(DType::kFloat64)},
      {"dtypes.master", set<kTypes, &TypePlan::master>(DType::kFloat64)},
      {"dtypes.gradient", set<kTypes, &TypePlan::gradient>(DType::kFloat64)},
      {"dtypes.reduce", set<kTypes, &TypePlan::reduce>(DType::kFloat64)},
      {"dtypes.first_moment", set<kTypes, &TypePlan::first_moment>(DType::kFloat64)},
      {"dtypes.second_moment", set<kTypes, &TypePlan::second_moment>(DType::kFloat64)},
      {"dtypes.message", set<kTypes, &TypePlan::message>(DType::kFloat64)},
      {"dtypes.cast_inputs", other<kTypes, &TypePlan::cast_inputs>()},
      {"dtypes.logits", set<kTypes, &TypePlan::output>(DType::kFloat64)},
      {"sharding.optimizer", other<kSharding, &Sharding::optimizer>()},
      {"sharding.gradients", other<kSharding, &Sharding::gradients>()},
      {"sharding.parameters", other<kSharding, &Sharding::parameters>()},
      {"sharding.shards", other<kSharding, &Sharding::shards>()},
      {"sharding.expert_shards", other<kSharding, &Sharding::expert_shards>()},
      {"sharding.replicas", other<kSharding, &Sharding::replicas>()},
      {"sharding.whole_stage", other<kSharding, &Sharding::whole_stage>()},
      {"sharding.reshard_after_forward", other<kSharding, &Sharding::reshard_after_forward>()},
      {"sharding.keep_experts", other<kSharding, &Sharding::keep_experts>()},
      {"sharding.defer_reduction", other<kSharding, &Sharding::defer_reduction>()},
      {"sharding.overlap_reduction", other<kSharding, &Sharding::overlap_reduction>()},
      {"sharding.overlap_gather", other<kSharding, &Sharding::overlap_gather>()},
      {"sharding.forward_prefetch", other<kSharding, &Sharding::forward_prefetch>()},
      {"sharding.backward_prefetch", other<kSharding, &Sharding::backward_prefetch>()},
      {"sharding.double_buffer", other<kSharding, &Sharding::double_buffer>()},
      {"sharding.bucket_bytes", set<kSharding, &Sharding::bucket_bytes>(1 << 20)},
      {"sharding.offloaded", other<kSharding, &Sharding::offloaded>()},
      {"execution.recompute",
       set<kExecution, &Execution::activations, &ActivationPlan::recompute>(Recompute::kSelective)},
      {"execution.kept_microbatches", set<kExecution, &Execution::activations, &ActivationPlan::kept_microbatches>(1)},
      {"execution.deferred_head", set<kExecution, &Execution::gradients, &GradientPlan::deferred_head>(0)},
      {"execution.delay_weight_gradients",
       other<kExecution, &Execution::gradients, &GradientPlan::delay_weight_gradients>()},
      {"execution.autocast", set<kExecution, &Execution::precision, &PrecisionPlan::autocast>(DType::kBFloat16)},
      {"execution.float8", set<kExecution, &Execution::precision, &PrecisionPlan::float8>(Float8Plan{})},
      {"execution.quantization",
       set<kExecution, &Execution::precision, &PrecisionPlan::quantization>(QuantizationPlan{})},
      {"execution.loss_scaler", other<kExecution, &Execution::precision, &PrecisionPlan::loss_scaler>()},
      {"execution.check_gradients", other<kExecution, &Execution::gradients, &GradientPlan::check_gradients>()},
      {"execution.fused_accumulation", other<kExecution, &Execution::precision, &PrecisionPlan::fused_accumulation>()},
      {"execution.deterministic", other<kExecution, &Execution::precision, &PrecisionPlan::deterministic>()},
      {"execution.overlap_experts", other<kExecution, &Execution::experts, &ExpertPlan::overlap_experts>()},
      {"execution.late_expert_gradients", other<kExecution, &Execution::experts, &ExpertPlan::late_expert_gradients>()},
      {"execution.scale_in_schedule", other<kExecution, &Execution::gradients, &GradientPlan::scale_in_schedule>()},
      {"execution.max_norm", set<kExecution, &Execution::gradients, &GradientPlan::max_norm>(0.25)},
      {"execution.ignore_label", other<kExecution, &Execution::loss, &LossPlan::ignore_label>()},
      {"execution.logit_softcap", other<kExecution, &Execution::loss, &LossPlan::logit_softcap>()},
      {"execution.distillation", set<kExecution, &Execution::loss, &LossPlan::distillation>(DistillationPlan{})},
      {"execution.embedding_noise", other<kExecution, &Execution::embedding_noise>()},
      {"execution.router_bias_step", other<kExecution, &Execution::experts, &ExpertPlan::router_bias_step>()},
      {"execution.loss_chunk", set<kExecution, &Execution::loss, &LossPlan::loss_chunk>(0)},
      {"execution.loss_in_place", other<kExecution, &Execution::loss, &LossPlan::in_place>()},
      {"execution.offloading",
       set<kExecution, &Execution::activations, &ActivationPlan::offloading>(ActivationOffloading{.layers = 1})},
      {"execution.captured", other<kExecution, &Execution::capture, &CapturePlan::captured>()},
      {"execution.not_captured", set<kExecution, &Execution::capture, &CapturePlan::not_captured>("a reason")},
      {"tensor.sequence_parallel", [](EstimatedPlan& plan) { change(plan.tensor.sequence_parallel); }},
      {"tensor.styles",
       [](EstimatedPlan& plan) { plan.tensor.rows.emplace_back("lm_head", arch::TensorStyle::kColwise); }},
      {"tensor.overlap", overlap<&TensorOverlap::gather>()},
      {"overlap.gather", overlap<&TensorOverlap::gather>()},
      {"overlap.scatter", overlap<&TensorOverlap::scatter>()},
      {"overlap.scatter_in_backward", overlap<&TensorOverlap::scatter_in_backward>()},
      {"overlap.gather_in_backward", overlap<&TensorOverlap::gather_in_backward>()},
      {"overlap.scatter_under_weights", overlap<&TensorOverlap::scatter_under_weights>()},
      {"overlap.gather_attention", overlap<&TensorOverlap::gather_attention>()},
      {"overlap.gather_mlp", overlap<&TensorOverlap::gather_mlp>()},
      {"context.heads", other<kContext, &ContextPlan::heads>()},
      {"context.keys", other<kContext, &ContextPlan::keys>()},
      {"context.gather", other<kContext, &ContextPlan::gather>()},
      {"weights.folder", set<kWeights, &WeightOrigin::folder>("a folder")},
      {"weights.zero", other<kWeights, &WeightOrigin::zero>()},
      {"weights.seed", other<kWeights, &WeightOrigin::seed>()},
      {"mesh.pp", sizes<&mesh::MeshSizes::pp>()},
      {"mesh.dp_replicate", sizes<&mesh::MeshSizes::dp_replicate>()},
      {"mesh.dp_shard", sizes<&mesh::MeshSizes::dp_shard>()},
      {"mesh.cp", sizes<&mesh::MeshSizes::cp>()},
      {"mesh.tp", sizes<&mesh::MeshSizes::tp>()},
      {"mesh.ep", sizes<&mesh::MeshSizes::ep>()},
      {"recompute_modules.core_attention", other<kModules, &RecomputeModules::core_attention>()},
      {"recompute_modules.norms", other<kModules, &RecomputeModules::norms>()},
      {"recompute_modules.latent_up", other<kModules, &RecomputeModules::latent_up>()},
      {"recompute_modules.mlp", other<kModules, &RecomputeModules::mlp>()},
      {"recompute_modules.experts", other<kModules, &RecomputeModules::experts>()},
      {"recompute_modules.expert_activation", other<kModules, &RecomputeModules::expert_activation>()},
      {"recompute_modules.shared_experts", other<kModules, &RecomputeModules::shared_experts>()},
      {"adapters.rank", adapters<&AdapterSpec::rank>()},
      {"adapters.expert_rank", adapters<&AdapterSpec::expert_rank>()},
      {"adapters.alpha", adapters<&AdapterSpec::alpha>()},
      {"adapters.dropout", adapters<&AdapterSpec::dropout>()},
      {"adapters.dropout_first", adapters<&AdapterSpec::dropout_first>()},
      {"adapters.magnitudes", adapters<&AdapterSpec::magnitudes>()},
      {"adapters.start", [](EstimatedPlan& plan) { plan.adapters->spec.start = arch::AdapterStart::kKaiming; }},
      {"adapters.weights", [](EstimatedPlan& plan) { plan.adapters->spec.weights.pop_back(); }},
      {"work.strategy",
       [](EstimatedPlan& plan) { plan.mesh = mesh::DeviceMesh(plan.mesh.sizes(), mesh::Strategy::kMegatronFsdp); }},
      {"work.zero_dp_strategy", [](EstimatedPlan& plan) { plan.zero_level = 3; }},
      {"work.cuda", [](EstimatedPlan& plan) { change(plan.cuda); }},
      {"work.expert_tensor", [](EstimatedPlan& plan) { change(plan.expert_tensor); }},
      {"work.model", [](EstimatedPlan& plan) { plan.model->config_text += " "; }},
      {"work.teacher", [](EstimatedPlan& plan) { plan.teacher = std::make_shared<const TrainingPlan>(plan); }},
      {"work.frozen", [](EstimatedPlan& plan) { plan.frozen = FrozenPart{.names = {"lm_head.weight"}}; }},
      {"work.features", [](EstimatedPlan& plan) { plan.features = FeaturePlan{.cached = true}; }},
      {"work.update", [](EstimatedPlan& plan) { plan.optimizer.rule = AdamRule{.amsgrad = true}; }},
      {"work.actions", [](EstimatedPlan& plan) { plan.pipeline->schedule.training[0].pop_back(); }},
      {"work.stages", [](EstimatedPlan& plan) { plan.pipeline->stages[0].part.fqns.pop_back(); }},
  };
  return kChanges;
}

/// Decisions that do not change the time of a step. Listed here once more, since a wrong statement would let runs with
/// other settings correct a plan's time.
const std::set<std::string> kWithoutTime = {"communication.timeout_minutes",
                                            "batch.validation_length",
                                            "execution.loss_scaler",
                                            "execution.check_gradients",
                                            "execution.scale_in_schedule",
                                            "execution.max_norm",
                                            "execution.ignore_label",
                                            "execution.router_bias_step",
                                            "execution.loss_in_place",
                                            "execution.not_captured",
                                            "weights.folder",
                                            "weights.zero",
                                            "weights.seed",
                                            "adapters.alpha",
                                            "adapters.start",
                                            "work.strategy",
                                            "work.zero_dp_strategy"};

/// Names of decisions, as "part.name"; each of tensor.overlap, too.
std::set<std::string> names_of(const config::Value& facts) {
  std::set<std::string> out;
  for (const auto& [part, values] : *facts.map())
    if (values.map() != nullptr && part != "settings")
      for (const auto& [name, value] : *values.map()) {
        out.insert(part + "." + name);
        if (name == "overlap")
          for (const auto& [inner, each] : *value.map()) out.insert(name + "." + inner);
      }
  return out;
}

}  // namespace

TEST_CASE("plans that differ in a decision have other fingerprints, and other keys if it affects time", "[plan]") {
  const auto plan = small_plan();
  const auto names = names_of(facts_of(plan));
  const auto with_time = names_of(facts_of(plan, &Affects::time));
  CHECK(names.size() > 90);
  for (const auto& name : names) {
    INFO(name);
    const auto found = changes().find(name);
    if (found == changes().end()) {
      FAIL_CHECK("a new decision: add a change of it to this test");
      continue;
    }
    auto other = plan;
    found->second(other);
    CHECK(fingerprint(other) != fingerprint(plan));
    CHECK((estimate::run_key(other) != estimate::run_key(plan)) == !kWithoutTime.contains(name));
    CHECK(with_time.contains(name) == !kWithoutTime.contains(name));
  }
  for (const auto& [name, change] : changes()) CHECK(names.contains(name));
}

TEST_CASE("packs of documents take another time than whole sequences, and other sections do not say", "[plan]") {
  const auto plan = small_plan();
  auto other = plan;
  other.settings.set("packed_sequence", config::Value::Map{{"packed_sequence_size", 64}});
  CHECK(estimate::run_key(other) != estimate::run_key(plan));
  other = plan;
  other.settings.set("lr_scheduler", config::Value::Map{{"lr_warmup_steps", 64}});
  CHECK(estimate::run_key(other) == estimate::run_key(plan));
  CHECK(fingerprint(other) != fingerprint(plan));
}

}  // namespace automodel::plan
