// The sections that say how training steps: step_scheduler, loss_fn, optimizer, lr_scheduler, clip_grad_norm, rng.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "config/python_class.h"
#include "config/types.h"

namespace automodel::config {

/// One signal or several, by name ("SIGTERM") or number; an empty list switches the watch off.
struct SignalList {
  std::vector<int> signals = {15};
  bool operator==(const SignalList&) const = default;
  static TypeInfo config_type();
};

struct StepSchedulerConfig {
  using IsSection = void;
  Field<int> global_batch_size{"global_batch_size", 32, "Sequences in an optimizer step, over all ranks.", at_least<1>};
  Field<int> local_batch_size{"local_batch_size", 1,
                              "Sequences per data-parallel rank in one gradient accumulation step.", at_least<1>};
  Field<std::optional<int>> num_epochs{"num_epochs", 10, "Passes over the data; null: as many as max_steps need.",
                                       at_least<1>};
  Field<std::optional<int>> max_steps{"max_steps", std::nullopt, "Optimizer steps; null: num_epochs passes.",
                                      at_least<1>};
  Field<std::optional<int>> ckpt_every_steps{"ckpt_every_steps", 100, "Steps between checkpoints; null: once an epoch.",
                                             at_least<1>};
  Field<bool> save_checkpoint_every_epoch{"save_checkpoint_every_epoch", true, "Checkpoint at the end of every epoch."};
  Field<bool> validate_on_checkpoint{"validate_on_checkpoint", true, "Validate whenever a checkpoint is due."};
  Field<std::optional<int>> val_every_steps{"val_every_steps", std::nullopt,
                                            "Steps between validations; null: only with checkpoints.", at_least<1>};
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
      "Signals that end the run at the end of the step; null: none. SIGUSR1 and Ctrl-C always do."};
};

struct MaskedCrossEntropyConfig {
  using IsSection = void;
  static constexpr std::array targets = {
      std::string_view("masked_ce"),
      std::string_view("nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy"),
      std::string_view("torch.nn.functional.cross_entropy"),
      std::string_view("torch.nn.CrossEntropyLoss"),
      std::string_view("torch.nn.modules.loss.CrossEntropyLoss"),
      std::string_view("nemo_automodel.components.loss.te_parallel_ce.TEParallelCrossEntropy"),
      std::string_view("te_parallel_ce")};
  static constexpr std::string_view kDoc = "Cross-entropy over the labels that count.";
  static constexpr bool kImplied = true;
  Field<bool> fp32_upcast{"fp32_upcast", true, "Compute in float32.",
                          Ignored{"cross-entropy is always computed in float32 or better"}};
  Field<int> ignore_index{"ignore_index", -100, "Label that does not count."};
  Field<std::string> reduction{"reduction", "sum", "Reduction inside the function.",
                               Ignored{"the loss is always the mean over all label tokens of the global batch"}};
  Field<Value> tp_group{"tp_group", nullptr, "Python object.", Ignored{"the group is the mesh's tp axis"}};
};
struct FusedLinearCrossEntropyConfig {
  using IsSection = void;
  static constexpr std::array targets = {
      std::string_view("fused_linear_ce"),
      std::string_view("nemo_automodel.components.loss.linear_ce.FusedLinearCrossEntropy")};
  static constexpr std::string_view kDoc =
      "Cross-entropy joined with the head's product, chunk of tokens by chunk: logits never exist as a whole. A chunk "
      "has "
      "so many tokens that its logits are about as large as the hidden states, at least 256.";
  Field<int> ignore_index{"ignore_index", -100, "Label that does not count."};
  Field<double> logit_softcapping{"logit_softcapping", 0.0, "Soft cap of the logits; 0: none.", at_least<0>};
  Field<std::string> reduction{"reduction", "sum", "Reduction inside the function.",
                               Ignored{"the loss is always the mean over all label tokens of the global batch"}};
  Field<std::string> impl{"impl", "cce", "Whose kernel.", Ignored{"there is one implementation"}};
};
struct ChunkedCrossEntropyConfig {
  using IsSection = void;
  static constexpr std::array targets = {
      std::string_view("chunked_ce"),
      std::string_view("nemo_automodel.components.loss.chunked_ce.ChunkedCrossEntropy")};
  static constexpr std::string_view kDoc =
      "The head's product and cross-entropy in chunks of a given length: logits never exist as a whole.";
  Field<int> chunk_len{"chunk_len", 512, "Tokens of a chunk.", at_least<1>};
  Field<bool> compile{"compile", true, "torch.compile.", Ignored{"there is nothing to compile"}};
  Field<int> ignore_index{"ignore_index", -100, "Label that does not count."};
  Field<std::string> reduction{"reduction", "sum", "Reduction inside the function.",
                               Ignored{"the loss is always the mean over all label tokens of the global batch"}};
};
using LossConfig = std::variant<MaskedCrossEntropyConfig, FusedLinearCrossEntropyConfig, ChunkedCrossEntropyConfig>;

/// Which operands of float8 products share a scale (torchao's Float8LinearConfig.from_recipe_name).
enum class Float8RecipeName { kTensorwise, kRowwise, kRowwiseWithGwHp };
template <>
struct EnumNames<Float8RecipeName> {
  using E = Float8RecipeName;
  static constexpr std::array names = {EnumName<E>{"tensorwise", E::kTensorwise}, EnumName<E>{"rowwise", E::kRowwise},
                                       EnumName<E>{"rowwise_with_gw_hp", E::kRowwiseWithGwHp}};
};

struct Float8Config {
  using IsSection = void;
  Field<bool> enabled{"enabled", false, "Compute linear layers in float8."};
  Field<std::optional<Float8RecipeName>> recipe_name{"recipe_name", std::nullopt,
                                                     "Granularity of the scales; null: tensorwise."};
  Field<std::vector<std::string>> filter_fqns{
      "filter_fqns", {}, "Modules in whose name one of these occurs keep their type."};
  Field<bool> emulate{"emulate", false, "Emulate with float32 GEMMs, even on a GPU that has float8 GEMMs."};
  Field<bool> enable_fsdp_float8_all_gather{
      "enable_fsdp_float8_all_gather", false, "Gather weights in float8.",
      Ignored{"weights are gathered in the type of computation and rounded where they are used; their scale is that of "
              "the whole weight"}};
  Field<bool> precompute_float8_dynamic_scale_for_fsdp{"precompute_float8_dynamic_scale_for_fsdp", false,
                                                       "Compute all weight scales at once, after a step.",
                                                       Ignored{"a weight's scale is computed where it is used"}};
  Field<bool> force_recompute_fp8_weight_in_bwd{"force_recompute_fp8_weight_in_bwd", false,
                                                "Round weights again in the backward pass.",
                                                Ignored{"no rounded weight is kept"}};
};

struct ParamGroupOverride {
  using IsSection = void;
  Field<std::string> pattern{"pattern", "",
                             "Regular expression; applies to parameters whose name it matches somewhere."};
  Field<double> lr_mult{"lr_mult", 1.0, "Factor of the learning rate.", at_least<0>};
  Field<double> wd_mult{"wd_mult", 1.0, "Factor of the weight decay.", at_least<0>};
};

/// What optimizers keep values in.
inline std::string state_type(const DType& type) {
  return type == DType::kFloat32 || type == DType::kBFloat16 ? "" : "must be float32 or bfloat16";
}

/// What Adam and AdamW have in common.
struct AdamFields {
  Field<double> lr{"lr", 1e-4, "Learning rate.", at_least<0>};
  Field<std::array<double, 2>> betas{"betas", {0.9, 0.999}, "Decay of the first and second moment.", fractions};
  Field<double> eps{"eps", 1e-8, "Term added to the square root of the second moment.", at_least<0>};
  Field<bool> amsgrad{"amsgrad", false, "Keep the largest second moment."};
  Field<bool> maximize{"maximize", false, "Ascend."};
  Field<std::vector<ParamGroupOverride>> param_group_overrides{
      "param_group_overrides", {}, "Factors for groups of parameters."};
  Field<std::optional<DType>> exp_avg_dtype{"exp_avg_dtype", std::nullopt,
                                            "Type in which the first moment is kept; null: the masters'.", state_type};
  Field<std::optional<DType>> exp_avg_sq_dtype{
      "exp_avg_sq_dtype", std::nullopt, "Type in which the second moment is kept; null: the masters'.", state_type};
  Field<std::optional<DType>> main_grads_dtype{
      "main_grads_dtype", std::nullopt,
      "Type in which gradients are summed over microbatches; null: the masters' (docs/precision.md).", state_type};
  Field<std::optional<DType>> main_params_dtype{
      "main_params_dtype", std::nullopt, "Type of the values that the optimizer changes; null: float32.", state_type};
  Field<bool> fused{"fused", false, "Fused kernel.", Ignored{"the optimizer is always fused"}};
  Field<std::optional<bool>> foreach{"foreach", std::nullopt, "Multi-tensor kernels.",
                                     Ignored{"the optimizer is always fused"}};
  Field<bool> capturable{"capturable", false, "CUDA graphs.", Ignored{"steps are not captured in CUDA graphs"}};
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
  Field<Value> adam_w_mode{"adam_w_mode", nullptr, "Decoupled weight decay.", Ignored{"_target_ says so"}};
  Field<Value> bias_correction{"bias_correction", nullptr, "Bias correction.", Ignored{"moments are always corrected"}};
  Field<Value> master_weights{"master_weights", nullptr, "Float32 masters.",
                              Ignored{"the strategy's mixed-precision policy says so"}};
  Field<Value> store_param_remainders{"store_param_remainders", nullptr, "Masters in parts.",
                                      Ignored{"masters are whole"}};
  Field<Value> master_weight_bits{"master_weight_bits", nullptr, "Size of masters.",
                                  Ignored{"the strategy's mixed-precision policy says so"}};
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
  static constexpr std::string_view kDoc = "Stochastic gradient descent, with momentum where it is set.";
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
      "param_group_overrides", {}, "Factors for groups of parameters."};
};
/// Orders of magnitude of an update by the sizes of a matrix [rows, columns].
enum class MuonScale { kOriginal, kMatchRmsAdamW };
template <>
struct EnumNames<MuonScale> {
  using E = MuonScale;
  static constexpr std::array names = {EnumName<E>{"original", E::kOriginal},
                                       EnumName<E>{"match_rms_adamw", E::kMatchRmsAdamW}};
};

/// What optimizers of matrices say of AdamW, which takes everything else.
struct ScalarFields {
  Field<std::optional<double>> scalar_lr{
      "scalar_lr", std::nullopt, "AdamW's rate for everything but the matrices of layers; null: lr.", at_least<0>};
  Field<std::array<double, 2>> scalar_betas{
      "scalar_betas", {0.9, 0.999}, "AdamW's decay of the first and second moment.", fractions};
  Field<double> scalar_eps{"scalar_eps", 1e-8, "AdamW's term added to the square root of the second moment.",
                           at_least<0>};
  Field<std::optional<double>> embed_lr{"embed_lr", std::nullopt, "AdamW's rate for embeddings; null: scalar_lr.",
                                        at_least<0>};
};
struct MuonConfig : ScalarFields {
  using IsSection = void;
  static constexpr std::array targets = {std::string_view("muon"), std::string_view("torch.optim.Muon"),
                                         std::string_view("torch.optim._muon.Muon")};
  static constexpr std::string_view kDoc =
      "Muon (Jordan): momentum of the matrices inside the layers, orthogonalised; AdamW for embeddings, head, norms "
      "and "
      "biases.";
  Field<double> lr{"lr", 1e-3, "Learning rate.", at_least<0>};
  Field<double> weight_decay{"weight_decay", 0.1,
                             "Decoupled weight decay, on every parameter unless param_group_overrides says otherwise.",
                             at_least<0>};
  Field<double> momentum{"momentum", 0.95, "Momentum factor.", fraction};
  Field<bool> nesterov{"nesterov", true, "Nesterov momentum."};
  Field<std::array<double, 3>> ns_coefficients{
      "ns_coefficients", {3.4445, -4.7750, 2.0315}, "Coefficients of the Newton-Schulz iteration."};
  Field<double> eps{"eps", 1e-7, "Smallest norm that a matrix is divided by.", positive};
  Field<int> ns_steps{"ns_steps", 5, "Newton-Schulz iterations, below 100.", at_least<0>};
  Field<std::optional<MuonScale>> adjust_lr_fn{
      "adjust_lr_fn", std::nullopt,
      "How the rate of a matrix [rows, columns] follows its sizes: original (and null), times sqrt(max(1, rows / "
      "columns)); match_rms_adamw, times 0.2 sqrt(max(rows, columns)), for rates that were chosen for AdamW."};
  Field<std::optional<double>> lm_head_lr{"lm_head_lr", std::nullopt, "AdamW's rate for the head; null: scalar_lr.",
                                          at_least<0>};
  Field<std::vector<ParamGroupOverride>> param_group_overrides{
      "param_group_overrides", {}, "Factors for groups of parameters."};
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
      "Muon of Microsoft's dion, with NeMo AutoModel's groups: the momentum is a sum, each of five iterations has a "
      "polynomial of its own; AdamW for embeddings and head (without weight decay), norms and biases. For models "
      "without experts.";
  Field<double> lr{"lr", 5e-4, "Learning rate.", at_least<0>};
  Field<double> weight_decay{"weight_decay", 0.0, "Decoupled weight decay of everything but embeddings and head.",
                             at_least<0>};
  Field<double> mu{"mu", 0.95, "Momentum factor.", fraction};
  Field<bool> nesterov{"nesterov", false, "Nesterov momentum."};
  Field<double> epsilon{"epsilon", 1e-8, "Added to the norm that a matrix is divided by.", at_least<0>};
  Field<std::optional<DionScale>> adjust_lr{"adjust_lr", DionScale::kSpectralNorm,
                                            "How the rate of a matrix [rows, columns] follows its sizes: "
                                            "spectral_norm, times sqrt(rows / columns); rms_norm, "
                                            "times 0.2 sqrt(max(rows, columns)); null: not."};
  Field<Value> betas{"betas", nullptr, "Decay of moments.",
                     Ignored{"scalar_betas takes its place, as in NeMo AutoModel"}};
  Field<DionScalar> scalar_opt{"scalar_opt", DionScalar::kAdamW, "Rule for everything but the matrices of layers."};
  Field<std::optional<double>> lm_head_lr{"lm_head_lr", std::nullopt,
                                          "AdamW's rate for the head; null: lr / sqrt(hidden size).", at_least<0>};
  Field<bool> flatten{"flatten", false, "Tensors of more dimensions as matrices.",
                      Ignored{"every matrix has two dimensions"}};
  Field<bool> use_triton{"use_triton", false, "Triton kernels.", Ignored{"there is one implementation"}};
  Field<bool> no_compile{"no_compile", false, "Without torch.compile.", Ignored{"there is nothing to compile"}};
  Field<std::vector<ParamGroupOverride>> param_group_overrides{
      "param_group_overrides", {}, "Factors for groups of parameters."};
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
                                           "Step at which the decay ends; null: the last.", at_least<1>};
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
  Field<WeightDecayStyle> wd_incr_style{"wd_incr_style", WeightDecayStyle::kConstant, "Shape of that change."};
  Field<bool> use_checkpoint_opt_param_scheduler{
      "use_checkpoint_opt_param_scheduler", true,
      "On resume, take the schedule of the checkpoint; false: the two must agree."};
  Field<bool> override_opt_param_scheduler{"override_opt_param_scheduler", false,
                                           "On resume, take the schedule of the recipe, whatever the other key says."};
  Field<std::optional<int>> wsd_decay_steps{"wsd_decay_steps", std::nullopt,
                                            "Steps of the final decay; needed under WSD.", at_least<1>};
  Field<std::optional<WsdDecayStyle>> lr_wsd_decay_style{"lr_wsd_decay_style", std::nullopt,
                                                         "Shape of the final decay; needed under WSD."};
};

struct ClipGradNormConfig {
  using IsSection = void;
  Field<std::optional<double>> max_norm{
      "max_norm", 1.0, "Largest norm of all gradients together; null switches clipping off.", positive};
  Field<std::optional<std::string>> backend{"backend", std::nullopt, "Whose kernel.",
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
  Field<std::optional<int>> seed{"seed", std::nullopt, "Seed, in its older place.",
                                 Ignored{"the top-level seed counts, as in NeMo AutoModel; 42 where there is none"}};
  Field<bool> ranked{"ranked", true, "Add the rank to the seed.",
                     Ignored{"random numbers are keyed by name and element; ranks agree by construction"}};
};

}  // namespace automodel::config
