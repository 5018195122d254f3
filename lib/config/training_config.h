// Sections that control the training steps: step_scheduler, loss_fn, optimizer, lr_scheduler, clip_grad_norm, rng.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "config/python_class.h"
#include "config/types.h"
#include "plan/values/float8.h"

namespace automodel::config {

/// One or several signals, by name ("SIGTERM") or number. An empty list disables signal handling.
struct SignalList {
  std::vector<int> signals = {15};
  bool operator==(const SignalList&) const = default;
  static TypeInfo config_type();
};

struct StepSchedulerConfig {
  using IsSection = void;
  Field<int> global_batch_size{"global_batch_size", 32, "Sequences per optimizer step, over all ranks.", at_least<1>};
  Field<int> local_batch_size{"local_batch_size", 1, "Sequences per data-parallel rank and gradient accumulation step.",
                              at_least<1>};
  Field<std::optional<int>> num_epochs{"num_epochs", 10, "Passes over the data; null: as many as max_steps needs.",
                                       at_least<1>};
  Field<std::optional<int>> max_steps{"max_steps", std::nullopt, "Optimizer steps; null: num_epochs passes.",
                                      at_least<1>};
  Field<std::optional<int>> ckpt_every_steps{"ckpt_every_steps", 100,
                                             "Steps between checkpoints; null: once per epoch.", at_least<1>};
  Field<bool> save_checkpoint_every_epoch{"save_checkpoint_every_epoch", true, "Checkpoint at the end of every epoch."};
  Field<bool> validate_on_checkpoint{"validate_on_checkpoint", true, "Validate whenever a checkpoint is due."};
  Field<std::optional<int>> val_every_steps{"val_every_steps", std::nullopt,
                                            "Steps between validations; null: only with checkpoints.", at_least<1>};
  Field<std::optional<int>> early_stopping_patience{"early_stopping_patience", std::nullopt,
                                                    "Validations without a lower loss on the set that "
                                                    "checkpoint.best_metric_key names, after which the run saves and "
                                                    "ends; null: it never ends early.",
                                                    at_least<1>};
  Field<double> early_stopping_threshold{"early_stopping_threshold", 0.0,
                                         "By how much more than this the loss must be lower to count.", at_least<0>};
  Field<int> log_remote_every_steps{"log_remote_every_steps", 1, "Steps between records sent to remote loggers.",
                                    Ignored{"there are no remote loggers; the JSON lines hold every step"}};
  Field<int> loss_average_window_steps{"loss_average_window_steps", 50, "Window of the averaged loss.",
                                       Ignored{"the log holds the loss of each step, not an average"}};
  Field<std::optional<int>> gc_every_steps{"gc_every_steps", std::nullopt,
                                           "Steps between Python's garbage collections.",
                                           Ignored{"there is no garbage collector"}};
  Field<int> start_step{"start_step", 0, "Number of the first step.", at_least<0>};
  Field<int> start_epoch{"start_epoch", 0, "Number of the first epoch.", at_least<0>};
  Field<SignalList> preemption_signal{
      "preemption_signal",
      {},
      "Signals that end the run after the current step; null: none. SIGUSR1 and Ctrl-C always do."};
};

struct MaskedCrossEntropyConfig {
  using IsSection = void;
  static constexpr std::array targets = {
      std::string_view("masked_ce"), std::string_view("nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy"),
      std::string_view("torch.nn.functional.cross_entropy"), std::string_view("torch.nn.CrossEntropyLoss"),
      std::string_view("torch.nn.modules.loss.CrossEntropyLoss")};
  static constexpr std::string_view kDoc = "Cross-entropy over the label tokens.";
  static constexpr bool kImplied = true;
  Field<bool> fp32_upcast{"fp32_upcast", true, "Compute in float32.",
                          Ignored{"cross-entropy is always computed in float32 or better"}};
  Field<int> ignore_index{"ignore_index", -100, "Label excluded from the loss."};
  Field<std::string> reduction{"reduction", "sum", "Reduction inside the function.",
                               Ignored{"the loss is always the mean over all label tokens of the global batch"}};
};
struct TEParallelCrossEntropyConfig {
  using IsSection = void;
  static constexpr std::array targets = {
      std::string_view("te_parallel_ce"),
      std::string_view("nemo_automodel.components.loss.te_parallel_ce.TEParallelCrossEntropy")};
  static constexpr std::string_view kDoc =
      "The same loss as masked_ce. In estimates for another hardware.stack its gradient takes the place of the logits, "
      "as in Transformer Engine's kernel and other fused ones.";
  Field<int> ignore_index{"ignore_index", -100, "Label excluded from the loss."};
  Field<std::string> reduction{"reduction", "sum", "Reduction inside the function.",
                               Ignored{"the loss is always the mean over all label tokens of the global batch"}};
  Field<Value> tp_group{"tp_group", nullptr, "Python object.", Ignored{"the group is the mesh's tp axis"}};
};
struct FusedLinearCrossEntropyConfig {
  using IsSection = void;
  static constexpr std::array targets = {
      std::string_view("fused_linear_ce"),
      std::string_view("nemo_automodel.components.loss.linear_ce.FusedLinearCrossEntropy"),
      std::string_view("nemo_automodel.components.models.gemma4_moe.loss.Gemma4TensorParallelFusedLinearCrossEntropy")};
  static constexpr std::string_view kDoc =
      "Cross-entropy fused with the head's matmul over chunks of tokens, so the full logits are never materialized. "
      "The chunk length (at least 256) is chosen so that a chunk's logits are about as large as the hidden states.";
  Field<int> ignore_index{"ignore_index", -100, "Label excluded from the loss."};
  Field<double> logit_softcapping{"logit_softcapping", 0.0, "Soft cap of the logits; 0: none.", at_least<0>};
  Field<std::string> reduction{"reduction", "sum", "Reduction inside the function.",
                               Ignored{"the loss is always the mean over all label tokens of the global batch"}};
  Field<std::string> impl{"impl", "cce", "Kernel implementation.", Ignored{"there is one implementation"}};
};
struct ChunkedCrossEntropyConfig {
  using IsSection = void;
  static constexpr std::array targets = {
      std::string_view("chunked_ce"),
      std::string_view("nemo_automodel.components.loss.chunked_ce.ChunkedCrossEntropy")};
  static constexpr std::string_view kDoc =
      "The head's matmul and cross-entropy over chunks of a given length, so the full logits are never materialized.";
  Field<int> chunk_len{"chunk_len", 512, "Tokens per chunk.", at_least<1>};
  Field<bool> compile{"compile", true, "torch.compile.", Ignored{"there is nothing to compile"}};
  Field<int> ignore_index{"ignore_index", -100, "Label excluded from the loss."};
  Field<std::string> reduction{"reduction", "sum", "Reduction inside the function.",
                               Ignored{"the loss is always the mean over all label tokens of the global batch"}};
};
using LossConfig = std::variant<MaskedCrossEntropyConfig, TEParallelCrossEntropyConfig, FusedLinearCrossEntropyConfig,
                                ChunkedCrossEntropyConfig>;

struct KDLossConfig {
  using IsSection = void;
  static constexpr std::array targets = {std::string_view("kd_loss"),
                                         std::string_view("nemo_automodel.components.loss.kd_loss.KDLoss")};
  static constexpr std::string_view kDoc =
      "Divergence KL(teacher || student) of the two models' tokens at a temperature T, times T squared.";
  static constexpr bool kImplied = true;
  Field<double> temperature{"temperature", 1.0, "What both models' logits are divided by.",
                            [](const double& value) -> std::string {
                              return value > 0 && std::isfinite(value) ? "" : "must be greater than 0 and finite";
                            }};
  Field<int> ignore_index{"ignore_index", -100, "Label excluded from the loss: that of loss_fn."};
  Field<int> chunk_size{"chunk_size", 0,
                        "Tokens per chunk of head and loss; 0: enough that a chunk's logits are about as large as the "
                        "hidden states, at least 256.",
                        at_least<0>};
  Field<bool> fp32_upcast{"fp32_upcast", true, "Compute in float32.",
                          Ignored{"the divergence is always computed in float32 or better"}};
  Field<Value> tp_group{"tp_group", nullptr, "Python object.", Ignored{"the group is the mesh's tp axis"}};
};
using KDLoss = std::variant<KDLossConfig>;

template <>
struct EnumNames<plan::Float8Recipe> {
  using E = plan::Float8Recipe;
  static constexpr std::array names = {EnumName<E>{"tensorwise", E::kTensorwise}, EnumName<E>{"rowwise", E::kRowwise},
                                       EnumName<E>{"rowwise_with_gw_hp", E::kRowwiseWideWeight}};
};

struct Float8Config {
  using IsSection = void;
  Field<bool> enabled{"enabled", false, "Compute linear layers in float8."};
  Field<std::optional<plan::Float8Recipe>> recipe_name{"recipe_name", std::nullopt,
                                                       "Granularity of the scales; null: tensorwise."};
  Field<std::vector<std::string>> filter_fqns{
      "filter_fqns", {}, "Modules whose name contains one of these keep their dtype."};
  Field<bool> emulate{"emulate", false, "Emulate with float32 GEMMs, even on a GPU that has float8 GEMMs."};
  Field<bool> enable_fsdp_float8_all_gather{"enable_fsdp_float8_all_gather", false, "Gather weights in float8.",
                                            Ignored{"weights are gathered in the compute dtype and quantized where "
                                                    "they are used; their scale is that of the whole weight"}};
  Field<bool> precompute_float8_dynamic_scale_for_fsdp{"precompute_float8_dynamic_scale_for_fsdp", false,
                                                       "Compute all weight scales at once, after a step.",
                                                       Ignored{"a weight's scale is computed where it is used"}};
  Field<bool> force_recompute_fp8_weight_in_bwd{"force_recompute_fp8_weight_in_bwd", false,
                                                "Quantize weights again in the backward pass.",
                                                Ignored{"no quantized weight is kept"}};
};

struct ParamGroupOverride {
  using IsSection = void;
  Field<std::string> pattern{"pattern", "", "Regular expression that is searched for in parameter names."};
  Field<double> lr_mult{"lr_mult", 1.0, "Multiplier of the learning rate.", at_least<0>};
  Field<double> wd_mult{"wd_mult", 1.0, "Multiplier of the weight decay.", at_least<0>};
};

/// Validates the dtype of optimizer state.
inline std::string state_type(const DType& type) {
  return type == DType::kFloat32 || type == DType::kBFloat16 ? "" : "must be float32 or bfloat16";
}

/// Fields common to Adam and AdamW.
struct AdamFields {
  Field<double> lr{"lr", 1e-4, "Learning rate.", at_least<0>};
  Field<std::array<double, 2>> betas{"betas", {0.9, 0.999}, "Decay rates of the first and second moment.", fractions};
  Field<double> eps{"eps", 1e-8, "Term added to the square root of the second moment.", at_least<0>};
  Field<bool> amsgrad{"amsgrad", false, "Use the running maximum of the second moment."};
  Field<bool> maximize{"maximize", false, "Ascend."};
  Field<std::vector<ParamGroupOverride>> param_group_overrides{
      "param_group_overrides", {}, "Multipliers for groups of parameters."};
  Field<std::optional<DType>> exp_avg_dtype{"exp_avg_dtype", std::nullopt,
                                            "Dtype of the first moment; null: that of the master weights.", state_type};
  Field<std::optional<DType>> exp_avg_sq_dtype{
      "exp_avg_sq_dtype", std::nullopt, "Dtype of the second moment; null: that of the master weights.", state_type};
  Field<std::optional<DType>> main_grads_dtype{"main_grads_dtype", std::nullopt,
                                               "Dtype in which gradients are accumulated over microbatches; null: that "
                                               "of the master weights (docs/precision.md).",
                                               state_type};
  Field<std::optional<DType>> main_params_dtype{
      "main_params_dtype", std::nullopt, "Dtype of the master weights that the optimizer updates; null: float32.",
      state_type};
  Field<bool> fused{"fused", false, "Fused kernel.", Ignored{"the optimizer is always fused"}};
  Field<std::optional<bool>> foreach{"foreach", std::nullopt, "Multi-tensor kernels.",
                                     Ignored{"the optimizer is always fused"}};
  Field<bool> capturable{"capturable", false, "CUDA graphs.",
                         Ignored{"the optimizer's step is not captured; model_parallel.enable_cuda_graph captures "
                                 "microbatches"}};
};
struct AdamWConfig : AdamFields {
  using IsSection = void;
  static constexpr std::array targets = {std::string_view("adamw"),
                                         std::string_view("torch.optim.AdamW"),
                                         std::string_view("torch.optim.adamw.AdamW"),
                                         std::string_view("transformer_engine.pytorch.optimizers.FusedAdam"),
                                         std::string_view("transformer_engine.pytorch.optimizers.fused_adam.FusedAdam"),
                                         std::string_view("flashoptim.FlashAdamW")};
  static constexpr std::string_view kDoc = "Adam with decoupled weight decay (Loshchilov and Hutter).";
  static constexpr bool kImplied = true;
  Field<double> weight_decay{"weight_decay", 0.01,
                             "Weight decay, on every parameter unless param_group_overrides says otherwise.",
                             at_least<0>};
  Field<Value> adam_w_mode{"adam_w_mode", nullptr, "Decoupled weight decay.", Ignored{"_target_ decides this"}};
  Field<Value> bias_correction{"bias_correction", nullptr, "Bias correction.", Ignored{"moments are always corrected"}};
  Field<Value> master_weights{"master_weights", nullptr, "Float32 master weights.",
                              Ignored{"the strategy's mixed-precision policy decides this"}};
  Field<Value> master_weight_dtype{"master_weight_dtype", nullptr, "Dtype of master weights.",
                                   Ignored{"the strategy's mixed-precision policy decides this"}};
  Field<Value> store_param_remainders{"store_param_remainders", nullptr, "Master weights as parameter plus remainder.",
                                      Ignored{"master weights are stored whole"}};
  Field<Value> master_weight_bits{"master_weight_bits", nullptr, "Bits per master weight.",
                                  Ignored{"the strategy's mixed-precision policy decides this"}};
  Field<Value> compress_state_dict{"compress_state_dict", nullptr, "Optimizer states compressed in checkpoints.",
                                   Ignored{"checkpoints hold optimizer states as the optimizer does"}};
};
struct AdamConfig : AdamFields {
  using IsSection = void;
  static constexpr std::array targets = {std::string_view("adam"), std::string_view("torch.optim.Adam"),
                                         std::string_view("torch.optim.adam.Adam")};
  static constexpr std::string_view kDoc = "Adam; weight decay is added to the gradient.";
  Field<double> weight_decay{
      "weight_decay", 0.01, "L2 penalty, on every parameter unless param_group_overrides says otherwise.", at_least<0>};
};
struct SgdConfig {
  using IsSection = void;
  static constexpr std::array targets = {std::string_view("sgd"), std::string_view("torch.optim.SGD"),
                                         std::string_view("torch.optim.sgd.SGD")};
  static constexpr std::string_view kDoc = "Stochastic gradient descent, optionally with momentum.";
  Field<double> lr{"lr", 1e-3, "Learning rate.", at_least<0>};
  Field<double> weight_decay{
      "weight_decay", 0.0, "L2 penalty, on every parameter unless param_group_overrides says otherwise.", at_least<0>};
  Field<double> momentum{"momentum", 0.0, "Momentum factor; 0: no momentum buffer.", at_least<0>};
  Field<double> dampening{"dampening", 0.0, "Dampening of the gradient in the momentum.", at_least<0>};
  Field<bool> nesterov{"nesterov", false, "Nesterov momentum; needs momentum, and dampening 0."};
  Field<bool> maximize{"maximize", false, "Ascend."};
  Field<std::optional<bool>> fused{"fused", std::nullopt, "Fused kernel.", Ignored{"there is one implementation"}};
  Field<std::optional<bool>> foreach{"foreach", std::nullopt, "Multi-tensor kernels.",
                                     Ignored{"there is one implementation"}};
  Field<bool> differentiable{"differentiable", false, "Autograd through the step.",
                             Ignored{"steps are not differentiated"}};
  Field<std::vector<ParamGroupOverride>> param_group_overrides{
      "param_group_overrides", {}, "Multipliers for groups of parameters."};
};
/// How the magnitude of Muon's update scales with the matrix shape [rows, columns].
enum class MuonScale { kOriginal, kMatchRmsAdamW };
template <>
struct EnumNames<MuonScale> {
  using E = MuonScale;
  static constexpr std::array names = {EnumName<E>{"original", E::kOriginal},
                                       EnumName<E>{"match_rms_adamw", E::kMatchRmsAdamW}};
};

/// Settings of matrix optimizers for AdamW, which handles all other parameters.
struct ScalarFields {
  Field<std::optional<double>> scalar_lr{
      "scalar_lr", std::nullopt, "AdamW's learning rate, for all parameters except the layers' matrices; null: lr.",
      at_least<0>};
  Field<std::array<double, 2>> scalar_betas{
      "scalar_betas", {0.9, 0.999}, "AdamW's decay rates of the first and second moment.", fractions};
  Field<double> scalar_eps{"scalar_eps", 1e-8, "Term that AdamW adds to the square root of the second moment.",
                           at_least<0>};
  Field<std::optional<double>> embed_lr{"embed_lr", std::nullopt,
                                        "AdamW's learning rate for embeddings; null: scalar_lr.", at_least<0>};
};
struct MuonConfig : ScalarFields {
  using IsSection = void;
  static constexpr std::array targets = {std::string_view("muon"), std::string_view("torch.optim.Muon"),
                                         std::string_view("torch.optim._muon.Muon")};
  static constexpr std::string_view kDoc =
      "Muon (Jordan): orthogonalised momentum for the matrices inside the layers; AdamW for embeddings, head, norms "
      "and biases.";
  Field<double> lr{"lr", 1e-3, "Learning rate.", at_least<0>};
  Field<double> weight_decay{"weight_decay", 0.1,
                             "Decoupled weight decay, on every parameter unless param_group_overrides says otherwise.",
                             at_least<0>};
  Field<double> momentum{"momentum", 0.95, "Momentum factor.", fraction};
  Field<bool> nesterov{"nesterov", true, "Nesterov momentum."};
  Field<std::array<double, 3>> ns_coefficients{
      "ns_coefficients", {3.4445, -4.7750, 2.0315}, "Coefficients of the Newton-Schulz iteration."};
  Field<double> eps{"eps", 1e-7, "Lower bound of the norm that a matrix is divided by.", positive};
  Field<int> ns_steps{"ns_steps", 5, "Newton-Schulz iterations, below 100.", at_least<0>};
  Field<std::optional<MuonScale>> adjust_lr_fn{
      "adjust_lr_fn", std::nullopt,
      "How a matrix's learning rate depends on its shape [rows, columns]: original (and null) scales by sqrt(max(1, "
      "rows / columns)); match_rms_adamw by 0.2 sqrt(max(rows, columns)), for rates tuned for AdamW."};
  Field<std::optional<double>> lm_head_lr{"lm_head_lr", std::nullopt,
                                          "AdamW's learning rate for the head; null: scalar_lr.", at_least<0>};
  Field<std::vector<ParamGroupOverride>> param_group_overrides{
      "param_group_overrides", {}, "Multipliers for groups of parameters."};
};
enum class DionScale { kSpectralNorm, kRmsNorm };
template <>
struct EnumNames<DionScale> {
  using E = DionScale;
  static constexpr std::array names = {EnumName<E>{"spectral_norm", E::kSpectralNorm},
                                       EnumName<E>{"rms_norm", E::kRmsNorm}};
};
enum class DionScalar { kAdamW };
template <>
struct EnumNames<DionScalar> {
  using E = DionScalar;
  static constexpr std::array names = {EnumName<E>{"adamw", E::kAdamW}};
};
struct DionMuonConfig : ScalarFields {
  using IsSection = void;
  static constexpr std::array targets = {std::string_view("dion_muon"), std::string_view("dion.Muon"),
                                         std::string_view("dion.muon.Muon")};
  static constexpr std::string_view kDoc =
      "Muon from Microsoft's dion, with NeMo AutoModel's parameter groups: momentum is a plain sum, and each of the "
      "five orthogonalisation iterations has its own polynomial; AdamW for embeddings and head (without weight decay), "
      "norms and biases. For models without experts.";
  Field<double> lr{"lr", 5e-4, "Learning rate.", at_least<0>};
  Field<double> weight_decay{"weight_decay", 0.0, "Decoupled weight decay of everything but embeddings and head.",
                             at_least<0>};
  Field<double> mu{"mu", 0.95, "Momentum factor.", fraction};
  Field<bool> nesterov{"nesterov", false, "Nesterov momentum."};
  Field<double> epsilon{"epsilon", 1e-8, "Added to the norm that a matrix is divided by.", at_least<0>};
  Field<std::optional<DionScale>> adjust_lr{
      "adjust_lr", DionScale::kSpectralNorm,
      "How a matrix's learning rate depends on its shape [rows, columns]: spectral_norm scales by sqrt(rows / "
      "columns), rms_norm by 0.2 sqrt(max(rows, columns)); null: no scaling."};
  Field<Value> betas{"betas", nullptr, "Decay of moments.",
                     Ignored{"scalar_betas takes its place, as in NeMo AutoModel"}};
  Field<DionScalar> scalar_opt{"scalar_opt", DionScalar::kAdamW,
                               "Optimizer of all parameters except the layers' matrices."};
  Field<std::optional<double>> lm_head_lr{
      "lm_head_lr", std::nullopt, "AdamW's learning rate for the head; null: lr / sqrt(hidden size).", at_least<0>};
  Field<bool> flatten{"flatten", false, "Flatten tensors of more dimensions into matrices.",
                      Ignored{"every matrix has two dimensions"}};
  Field<bool> use_triton{"use_triton", false, "Triton kernels.", Ignored{"there is one implementation"}};
  Field<bool> no_compile{"no_compile", false, "Without torch.compile.", Ignored{"there is nothing to compile"}};
  Field<std::vector<ParamGroupOverride>> param_group_overrides{
      "param_group_overrides", {}, "Multipliers for groups of parameters."};
};
using OptimizerConfig = std::variant<AdamWConfig, AdamConfig, SgdConfig, MuonConfig, DionMuonConfig>;

enum class DecayStyle { kCosine, kLinear, kConstant, kInverseSquareRoot, kWsd };
template <>
struct EnumNames<DecayStyle> {
  using E = DecayStyle;
  static constexpr std::array names = {
      EnumName<E>{"cosine", E::kCosine}, EnumName<E>{"linear", E::kLinear}, EnumName<E>{"constant", E::kConstant},
      EnumName<E>{"inverse-square-root", E::kInverseSquareRoot}, EnumName<E>{"WSD", E::kWsd}};
};
enum class WsdDecayStyle { kLinear, kCosine, kExponential, kMinusSqrt };
template <>
struct EnumNames<WsdDecayStyle> {
  using E = WsdDecayStyle;
  static constexpr std::array names = {EnumName<E>{"linear", E::kLinear}, EnumName<E>{"cosine", E::kCosine},
                                       EnumName<E>{"exponential", E::kExponential},
                                       EnumName<E>{"minus_sqrt", E::kMinusSqrt}};
};
enum class WeightDecayStyle { kConstant, kLinear, kCosine };
template <>
struct EnumNames<WeightDecayStyle> {
  using E = WeightDecayStyle;
  static constexpr std::array names = {EnumName<E>{"constant", E::kConstant}, EnumName<E>{"linear", E::kLinear},
                                       EnumName<E>{"cosine", E::kCosine}};
};

enum class LrSchedulerClass { kOptimizerParam };
template <>
struct EnumNames<LrSchedulerClass> {
  using E = LrSchedulerClass;
  static constexpr std::array names = {EnumName<E>{"OptimizerParamScheduler", E::kOptimizerParam}};
};

struct LrSchedulerConfig {
  using IsSection = void;
  Field<PythonClass<LrSchedulerClass>> target{
      "_target_", {}, "nemo_automodel.components.optim.scheduler.OptimizerParamScheduler"};
  Field<std::optional<int>> lr_warmup_steps{"lr_warmup_steps", std::nullopt,
                                            "Steps of warm-up; null: a tenth of all steps, at most 1000.", at_least<0>};
  Field<std::optional<int>> lr_decay_steps{"lr_decay_steps", std::nullopt,
                                           "Step at which the decay ends; null: the last step.", at_least<1>};
  Field<DecayStyle> lr_decay_style{"lr_decay_style", DecayStyle::kCosine, "Shape of the decay."};
  Field<std::optional<double>> init_lr{"init_lr", std::nullopt, "Rate at step 0; null: a tenth of optimizer.lr.",
                                       at_least<0>};
  Field<std::optional<double>> max_lr{"max_lr", std::nullopt, "Rate after warm-up; null: optimizer.lr.", at_least<0>};
  Field<std::optional<double>> min_lr{"min_lr", std::nullopt,
                                      "Rate after the decay; null: a hundredth of optimizer.lr.", at_least<0>};
  Field<std::optional<double>> start_wd{"start_wd", std::nullopt,
                                        "Weight decay at step 0; null: optimizer.weight_decay.", at_least<0>};
  Field<std::optional<double>> end_wd{"end_wd", std::nullopt, "Weight decay at the end; null: optimizer.weight_decay.",
                                      at_least<0>};
  Field<std::optional<int>> wd_incr_steps{"wd_incr_steps", std::nullopt,
                                          "Steps over which the weight decay changes; null: all.", at_least<0>};
  Field<WeightDecayStyle> wd_incr_style{"wd_incr_style", WeightDecayStyle::kConstant,
                                        "Shape of the weight decay's change."};
  Field<bool> use_checkpoint_opt_param_scheduler{
      "use_checkpoint_opt_param_scheduler", true,
      "On resume, use the checkpoint's schedule; if false, it must agree with the recipe's."};
  Field<bool> override_opt_param_scheduler{
      "override_opt_param_scheduler", false,
      "On resume, use the recipe's schedule; takes precedence over use_checkpoint_opt_param_scheduler."};
  Field<std::optional<int>> wsd_decay_steps{"wsd_decay_steps", std::nullopt,
                                            "Steps of the final decay; required by WSD.", at_least<1>};
  Field<std::optional<WsdDecayStyle>> lr_wsd_decay_style{"lr_wsd_decay_style", std::nullopt,
                                                         "Shape of the final decay; required by WSD."};
};

struct ClipGradNormConfig {
  using IsSection = void;
  Field<std::optional<double>> max_norm{"max_norm", 1.0, "Maximum global gradient norm; null disables clipping.",
                                        positive};
  Field<std::optional<std::string>> backend{"backend", std::nullopt, "Kernel implementation.",
                                            Ignored{"there is one implementation"}};
};

enum class RngClass { kStateful };
template <>
struct EnumNames<RngClass> {
  static constexpr std::array names = {EnumName<RngClass>{"StatefulRNG", RngClass::kStateful}};
};

struct RngConfig {
  using IsSection = void;
  Field<PythonClass<RngClass>> target{"_target_", {}, "nemo_automodel.components.training.rng.StatefulRNG"};
  Field<std::optional<int>> seed{"seed", std::nullopt, "Seed, in its older location.",
                                 Ignored{"the top-level seed applies, as in NeMo AutoModel; 42 if there is none"}};
  Field<bool> ranked{"ranked", true, "Add the rank to the seed.",
                     Ignored{"random numbers are keyed by name and element; ranks agree by construction"}};
  Field<bool> deterministic{"deterministic", false, "The same as model_parallel.deterministic_mode."};
};

}  // namespace automodel::config
