#include "plan/execution_choice.h"

#include <algorithm>

#include <fmt/format.h>

namespace automodel::plan {
namespace {

/// Tokens per chunk of the fused loss on a GPU. Every chunk reads the head's weight twice and its float32 gradient
/// once; an H100 takes as long for that as for the matmuls of about 930 tokens. Logits of 128,256 words then take 0.5
/// GB.
constexpr std::int64_t kLossRowsOnGpu = 2048;

Recompute recompute_of(const config::DistributedConfig& distributed, Located& report) {
  const auto asked = distributed.checkpointing();
  if (asked != Recompute::kNone) return asked;
  if (distributed.asked_checkpointing() != Recompute::kNone)
    report.warn("no-effect", "distributed.activation_checkpointing_scope")
        .says("no activations are recomputed: the scope excludes the language tower, the only one that is supported")
        .hint("use all or language");
  return Recompute::kNone;
}

/// The strategy's own autocast_dtype or, with Megatron Core's enable_autocast, the first one set of
/// model_parallel.autocast_dtype, the strategy's autocast_dtype, params_dtype and pipeline_dtype. Empty if that is the
/// compute dtype anyway.
std::optional<DType> autocast_of(const config::Recipe& recipe, DType compute, Located& report) {
  const auto& m = recipe.model_parallel();
  std::optional<DType> out = std::visit(
      [](const auto& strategy) -> std::optional<DType> {
        if constexpr (requires { strategy.autocast_dtype(); })
          return strategy.autocast_dtype();
        else
          return std::nullopt;
      },
      recipe.distributed->strategy());
  if (m.autocast_dtype() && !m.enable_autocast())
    report.warn("no-effect", "model_parallel.autocast_dtype")
        .says("autocast_dtype has no effect without enable_autocast")
        .hint("set model_parallel.enable_autocast: true");
  if (m.enable_autocast()) {
    const std::string key = "model_parallel.enable_autocast";
    if (m.autocast_dtype() && out && *m.autocast_dtype() != *out)
      report.refuse("precision-conflict", "model_parallel.autocast_dtype")
          .says("model_parallel.autocast_dtype is {}, but distributed.autocast_dtype is {}",
                name_of(*m.autocast_dtype()), name_of(*out))
          .hint("remove one of the two");
    for (const auto& dtype : {m.autocast_dtype(), out, m.params_dtype(), m.pipeline_dtype()})
      if (dtype) {
        out = dtype;
        break;
      }
    if (!out || *out == compute)
      report.warn("no-effect", key)
          .says("autocast has no effect: matmuls run in {} already", name_of(compute))
          .hint("set model_parallel.autocast_dtype to another dtype");
  }
  if (out == compute) out.reset();
  return out;
}

/// Applies Megatron Core's rules for cpu_offloading; empty if nothing is offloaded.
std::optional<ActivationOffloading> offloading_of(const config::ModelParallelConfig& m, const ExecutionRequest& request,
                                                  Recompute recompute, Located& report) {
  const std::string key = "model_parallel.cpu_offloading", layers = key + "_num_layers";
  if (!m.cpu_offloading()) {
    for (const char* child : {"_num_layers", "_activations", "_double_buffering", "_retain_pinned_cpu_buffers"})
      if (report.given(key + child))
        report.warn("no-effect", key + child)
            .says(key + child + " has no effect without cpu_offloading")
            .hint("set model_parallel.cpu_offloading: true");
    return std::nullopt;
  }
  if (request.pp > 1)
    report.refuse("bad-value", key)
        .says("offloading of activations does not work with pipeline parallelism (Megatron Core's rule)")
        .hint("set distributed.activation_checkpointing: full");
  if (recompute != Recompute::kNone)
    report.refuse("bad-value", key)
        .says("offloading of activations does not work with activation checkpointing (Megatron Core's rule)")
        .hint("choose one: set distributed.activation_checkpointing: false, or remove cpu_offloading");
  const ActivationOffloading out{.layers = m.cpu_offloading_num_layers(),
                                 .double_buffering = m.cpu_offloading_double_buffering(),
                                 .retain_host_buffers = m.cpu_offloading_retain_pinned_cpu_buffers()};
  if (out.layers < 0 || (request.layers && out.layers >= *request.layers)) {
    report.refuse("bad-value", layers)
        .says("activations of {} layers cannot be offloaded{}", out.layers,
              request.layers ? fmt::format(": the model has {}", *request.layers) : "")
        .hint(request.layers
                  ? fmt::format("0 to {}: the last layer is the first one in the backward pass", *request.layers - 1)
                  : "0 or more, but fewer than the model has layers");
    return std::nullopt;
  }
  const auto nothing = [&](const std::string& where, const std::string& why, const std::string& help) {
    report.warn("no-effect", where).says("no activations are offloaded: " + why).hint(help);
  };
  if (out.layers == 0)
    nothing(key, "cpu_offloading_num_layers is 0", "set cpu_offloading_num_layers to 1 or more");
  else if (!m.cpu_offloading_activations())
    nothing(key + "_activations", "cpu_offloading_activations is false", "set it to true, or remove cpu_offloading");
  else if (!request.cuda)
    nothing(key, "on a CPU they are in host memory already", "remove it, or plan for device: cuda");
  if (out.layers == 0 || !m.cpu_offloading_activations()) return std::nullopt;
  return out;
}

std::optional<Float8Plan> float8_of(const config::Recipe& recipe, Located& report) {
  if (!recipe.fp8()) return std::nullopt;
  const auto& asked = *recipe.fp8();
  if (asked.enabled())
    return Float8Plan{.recipe = asked.recipe_name().value_or(Float8Recipe::kTensorwise),
                      .left_out = asked.filter_fqns(),
                      .emulate = asked.emulate()};
  for (const char* key : {"fp8.recipe_name", "fp8.filter_fqns", "fp8.emulate"})
    if (report.given(key))
      report.warn("no-effect", key)
          .says(std::string(key) + " has no effect without fp8.enabled")
          .hint("set fp8.enabled: true");
  return std::nullopt;
}

std::optional<QuantizationPlan> quantization_of(const config::Recipe& recipe, DType compute, Located& report) {
  if (!recipe.quantization()) return std::nullopt;
  const auto& asked = *recipe.quantization();
  const bool four = asked.load_in_4bit(), eight = asked.load_in_8bit();
  if (!four)
    for (const char* key : {"quantization.bnb_4bit_quant_type", "quantization.bnb_4bit_use_double_quant",
                            "quantization.bnb_4bit_compute_dtype"})
      if (report.given(key))
        report.warn("no-effect", key)
            .says(std::string(key) + " has no effect without load_in_4bit")
            .hint("set quantization.load_in_4bit: true");
  if (!four && !eight) return std::nullopt;
  const std::string key = four ? "quantization.load_in_4bit" : "quantization.load_in_8bit";
  if (!recipe.peft())
    report.refuse("quantized-weights", key)
        .says("quantized weights are frozen, and there are no adapters to train instead")
        .hint("add a peft section, or remove quantization");
  if (recipe.fp8() && recipe.fp8()->enabled())
    report.refuse("quantized-weights", key)
        .says("matmuls with quantized weights cannot run in float8")
        .hint("remove fp8 or quantization");
  return QuantizationPlan{.base = {.bits = four ? 4 : 8, .small_scales = four && asked.double_quant()},
                          .compute = four ? asked.compute_dtype() : compute};
}

double router_bias_step_of(const config::Recipe& recipe, const ExecutionRequest& request, Located& report) {
  if (!recipe.model() || !recipe.model()->moe_overrides()) return 0;
  const double step = recipe.model()->moe_overrides()->gate_bias_update_factor().value_or(0);
  if (step == 0) return 0;
  const std::string key = "model.moe_overrides.gate_bias_update_factor";
  if (!request.router_biases)
    report.refuse("router-bias", key)
        .says("no router of this model has a correction bias")
        .hint("remove it; models with such biases name them e_score_correction_bias or expert_bias");
  else if (recipe.peft())
    report.refuse("router-bias", key)
        .says("only adapters are trained and saved: the routers' biases do not change")
        .hint("remove it, or peft");
  return step;
}

/// Megatron Core can shard weights beyond the tensor-parallel ranks and gather them for each use. Here, data-parallel
/// sharding serves that purpose, so such counts are rejected.
void check_weight_shards(const config::ModelParallelConfig& m, const config::LoadedRecipe& loaded, Located& report) {
  const auto check = [&](const std::string& key, const std::optional<int>& shards, int ranks) {
    if (shards && *shards > ranks && *shards % std::max(1, ranks) == 0)  // else Megatron Core's own check fails
      report.refuse("unsupported-option", "model_parallel." + key)
          .says("{} weight shards over {} tensor-parallel rank{} are not supported", *shards, ranks,
                ranks == 1 ? "" : "s")
          .hint(
              "remove it; strategy fsdp2, or megatron_fsdp with zero_dp_strategy 3, shards weights over "
              "data-parallel ranks and gathers them for use");
  };
  check("tensor_parallel_num_weight_shards", m.tensor_parallel_num_weight_shards(),
        loaded.recipe.distributed->tp_size().value_or(1));
  check("expert_tensor_parallel_num_weight_shards", m.expert_tensor_parallel_num_weight_shards(),
        m.expert_tensor_parallel_size().value_or(1));
}

}  // namespace

Execution choose_execution(const config::LoadedRecipe& loaded, const ExecutionRequest& request, Located& report) {
  const auto& recipe = loaded.recipe;
  const int pp = request.pp;
  const auto& m = recipe.model_parallel();
  Execution out;
  out.activations.recompute = recompute_of(recipe.distributed(), report);
  out.activations.kept_microbatches = m.num_microbatches_with_partial_activation_checkpoints();
  const std::string window = "model_parallel.num_microbatches_with_partial_activation_checkpoints";
  if (out.activations.kept_microbatches && *out.activations.kept_microbatches < 0)
    report.refuse("bad-value", window)
        .says("{} microbatches cannot keep their activations", *out.activations.kept_microbatches)
        .hint("0 or more");
  if (out.activations.kept_microbatches && out.activations.recompute == Recompute::kNone)
    report.warn("no-effect", window)
        .says("every microbatch keeps its activations: activation checkpointing is off")
        .hint("set distributed.activation_checkpointing: full");
  if (m.defer_embedding_wgrad_compute() && pp > 1) out.gradients.deferred_head = m.wgrad_deferral_limit();
  out.gradients.delay_weight_gradients = m.delay_wgrad_compute();
  out.precision.autocast = autocast_of(recipe, request.compute, report);
  out.precision.float8 = float8_of(recipe, report);
  out.precision.quantization = quantization_of(recipe, request.compute, report);
  out.precision.loss_scaler = request.compute == DType::kFloat16;
  out.precision.fused_accumulation = m.gradient_accumulation_fusion();
  out.precision.deterministic = config::deterministic(recipe);
  if (out.precision.deterministic && !request.cuda)
    report.warn("no-effect", m.deterministic_mode() ? "model_parallel.deterministic_mode" : "rng.deterministic")
        .says("on a CPU every run of a mesh is already bitwise reproducible")
        .hint("remove it, or plan for device: cuda");
  if (const auto* megatron = std::get_if<config::MegatronFSDPConfig>(&recipe.distributed->strategy()))
    out.gradients.check_gradients = megatron->check_for_nan_in_grad();
  if (m.hybrid_context_parallel())
    report.refuse("unsupported-option", "model_parallel.hybrid_context_parallel")
        .says("choosing the context-parallel size per sequence is not supported")
        .hint("remove it; distributed.cp_size applies to all sequences");
  out.activations.offloading = offloading_of(m, request, out.activations.recompute, report);
  out.experts.overlap_experts = m.overlap_moe_expert_parallel_comm();
  out.experts.late_expert_gradients = m.overlap_dispatch_backward_with_experts_wgrad();
  out.gradients.scale_in_schedule =
      pp > 1 && recipe.distributed->pipeline() && recipe.distributed->pipeline()->scale_grads_in_schedule();
  if (recipe.clip_grad_norm()) out.gradients.max_norm = recipe.clip_grad_norm()->max_norm();
  out.loss.ignore_label =
      std::visit([](const auto& loss) -> std::int64_t { return loss.ignore_index(); }, recipe.loss_fn());
  out.loss.in_place = std::holds_alternative<config::TEParallelCrossEntropyConfig>(recipe.loss_fn());
  if (const auto* fused = std::get_if<config::FusedLinearCrossEntropyConfig>(&recipe.loss_fn())) {
    out.loss.logit_softcap = fused->logit_softcapping();
    out.loss.loss_chunk = request.cuda ? kLossRowsOnGpu : 0;
  }
  if (const auto* chunked = std::get_if<config::ChunkedCrossEntropyConfig>(&recipe.loss_fn()))
    out.loss.loss_chunk = chunked->chunk_len();
  if (recipe.teacher_model()) {
    const auto& lesson = std::get<config::KDLossConfig>(recipe.kd_loss_fn());
    out.loss.distillation = DistillationPlan{.ratio = recipe.kd_ratio(), .temperature = lesson.temperature()};
    // Five tensors as large as the logits exist at once, so that they are always made in chunks.
    if (!out.loss.loss_chunk || lesson.chunk_size() > 0) out.loss.loss_chunk = lesson.chunk_size();
    if (out.loss.logit_softcap > 0)
      report.refuse("unsupported-option", "loss_fn.logit_softcapping")
          .says("the loss would cap a student's logits, but not those of its teacher")
          .hint("remove it; caps that config.json has are each model's own");
    if (request.head_rows_normed)
      report.refuse("unsupported-option", "model")
          .says("a model whose head's rows are normalised cannot be a student: its loss is not computed in chunks")
          .hint("choose another student");
  }
  if (out.loss.loss_chunk && request.head_rows_normed) {
    report.warn("no-effect", "loss_fn._target_")
        .says(
            "logits are not chunked: this model divides them by the norms of the head's rows, whose gradient is "
            "not computed in chunks")
        .hint("set loss_fn._target_: masked_ce");
    out.loss.loss_chunk.reset();
  }
  if (out.loss.loss_chunk && out.gradients.deferred_head) {
    report.warn("no-effect", "model_parallel.defer_embedding_wgrad_compute")
        .says("the head's weight gradient is not deferred: it is computed with the loss, one chunk of tokens at a time")
        .hint("remove it, or set loss_fn._target_: masked_ce");
    out.gradients.deferred_head.reset();
  }
  if ((out.loss.loss_chunk || out.loss.logit_softcap > 0) && request.classifier) {
    report.warn("no-effect", "loss_fn._target_")
        .says("the scores of a classifier are few: they are neither computed in chunks nor capped")
        .hint("set loss_fn._target_: masked_ce");
    out.loss.loss_chunk.reset();
    out.loss.logit_softcap = 0;
  }
  if (recipe.neftune()) out.embedding_noise = recipe.neftune()->noise_alpha();
  out.experts.router_bias_step = router_bias_step_of(recipe, request, report);
  check_weight_shards(m, loaded, report);
  return out;
}

RecomputeModules recompute_modules(const config::Recipe& recipe, bool training, Located& report) {
  using config::RecomputeModule;
  constexpr std::array kMembers = {
      std::pair{RecomputeModule::kCoreAttention, &RecomputeModules::core_attention},
      std::pair{RecomputeModule::kNorms, &RecomputeModules::norms},
      std::pair{RecomputeModule::kLatentUp, &RecomputeModules::latent_up},
      std::pair{RecomputeModule::kMlp, &RecomputeModules::mlp},
      std::pair{RecomputeModule::kExperts, &RecomputeModules::experts},
      std::pair{RecomputeModule::kExpertActivation, &RecomputeModules::expert_activation},
      std::pair{RecomputeModule::kSharedExperts, &RecomputeModules::shared_experts},
  };
  RecomputeModules out;
  const auto& asked = recipe.model_parallel->recompute_modules();
  const std::string key = "model_parallel.recompute_modules";
  if (asked.empty()) return out;
  report.plan_only(training, "recomputation of parts of layers",
                   {"unsupported",
                    "recomputation of parts of layers can be planned but not trained",
                    "set distributed.activation_checkpointing: selective, which recomputes the MLP",
                    {},
                    key});
  if (recipe.distributed->checkpointing() != Recompute::kNone) {
    report.warn("no-effect", key)
        .says("activation_checkpointing already decides what is recomputed")
        .hint("remove distributed.activation_checkpointing, or recompute_modules");
    return out;
  }
  for (const auto& [module, member] : kMembers)
    out.*member = std::find(asked.begin(), asked.end(), module) != asked.end();
  return out;
}

}  // namespace automodel::plan
