// The whole recipe and its loading: text -> tree -> overrides -> environment -> sections -> rules across sections.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/data_config.h"
#include "config/distributed_config.h"
#include "config/environment.h"
#include "config/fault_tolerance_config.h"
#include "config/freeze_config.h"
#include "config/model_config.h"
#include "config/model_parallel_config.h"
#include "config/neftune_config.h"
#include "config/override.h"
#include "config/peft_config.h"
#include "config/processor_config.h"
#include "config/quantization_config.h"
#include "config/reader.h"
#include "config/run_config.h"
#include "config/training_config.h"

namespace automodel::config {

enum class Device { kAuto, kCpu, kCuda };
template <>
struct EnumNames<Device> {
  static constexpr std::array names = {EnumName<Device>{"auto", Device::kAuto}, EnumName<Device>{"cpu", Device::kCpu},
                                       EnumName<Device>{"cuda", Device::kCuda}};
};

struct Recipe {
  using IsSection = void;
  // Defined in type_table.cpp: they are as long as the recipe and would otherwise be compiled in every file that uses
  // one.
  Recipe();
  ~Recipe();
  Recipe(const Recipe&);
  Recipe(Recipe&&) noexcept;
  Recipe& operator=(const Recipe&);
  Recipe& operator=(Recipe&&) noexcept;

  Field<Value> recipe{"recipe", nullptr,
                      "NeMo AutoModel's recipe class: those for LLM fine-tuning and pretraining, FinetuneRecipeForVLM, "
                      "TrainFinetuneRecipeForSequenceClassification and "
                      "KnowledgeDistillationRecipeForNextTokenPrediction."};
  Field<Device> device{"device", Device::kAuto, "cpu or cuda; auto: cuda if available."};
  Field<std::optional<int>> seed{"seed", std::nullopt, "Seed of weights, data order and dropout; null: 42.",
                                 at_least<0>};
  Field<StepSchedulerConfig> step_scheduler{
      "step_scheduler", {}, "Batch sizes, number of steps, and how often to validate and save."};
  Field<DistEnvConfig> dist_env{"dist_env", {}, "Communication backend and time limits."};
  Field<std::optional<ModelConfig>> model{"model", std::nullopt, "The model."};
  Field<std::optional<ModelConfig>> teacher_model{
      "teacher_model", std::nullopt,
      "Distillation: the frozen model that `model` learns from, on the same mesh, with the same vocabulary."};
  Field<double> kd_ratio{
      "kd_ratio", 0.5,
      "Distillation: weight of the divergence from the teacher; the cross-entropy's is 1 - kd_ratio. 1: no "
      "cross-entropy is computed.",
      [](const double& value) -> std::string { return value >= 0 && value <= 1 ? "" : "must be in [0, 1]"; }};
  Field<KDLoss> kd_loss_fn{"kd_loss_fn", KDLossConfig{}, "Distillation: the divergence from the teacher."};
  Field<bool> offload_teacher_model{"offload_teacher_model", false, "The teacher's weights in host memory.",
                                    Unsupported{"the teacher stays on the device; fsdp2 shards it over ranks"}};
  Field<bool> separate_meshes{"separate_meshes", false, "The teacher on ranks of its own.",
                              Unsupported{"the teacher is on the student's ranks"}};
  Field<Value> teacher_distributed{"teacher_distributed", nullptr, "The mesh of a teacher on ranks of its own.",
                                   Unsupported{"the teacher is on the student's mesh"}};
  Field<DistributedConfig> distributed{"distributed", {}, "Mesh, strategy and pipeline."};
  Field<ModelParallelConfig> model_parallel{"model_parallel", {}, "Fields of Megatron Core's ModelParallelConfig."};
  Field<LossConfig> loss_fn{"loss_fn", MaskedCrossEntropyConfig{}, "The loss."};
  Field<std::optional<DatasetConfig>> dataset{"dataset", std::nullopt, "Training data."};
  Field<DataloaderConfig> dataloader{"dataloader", {}, "How training data is loaded."};
  Field<std::optional<DatasetConfig>> validation_dataset{"validation_dataset", std::nullopt, "Validation data."};
  Field<std::map<std::string, DatasetConfig>> validation_datasets{
      Prefix{}, "validation_dataset", {}, "Further validation sets; metrics go to validation_NAME.jsonl."};
  Field<DataloaderConfig> validation_dataloader{"validation_dataloader", {}, "How validation data is loaded."};
  Field<PackedSequenceConfig> packed_sequence{
      "packed_sequence", {}, "Packing of several rows of training data into one sequence."};
  Field<std::optional<ProcessorConfig>> processor{"processor", std::nullopt,
                                                  "How pictures become pixels; for models with a vision tower."};
  Field<std::optional<PeftConfig>> peft{"peft", std::nullopt,
                                        "Low-rank adapters (LoRA) that are trained instead of the model's weights."};
  Field<std::optional<FreezeConfig>> freeze_config{"freeze_config", std::nullopt,
                                                   "Modules whose parameters are frozen."};
  Field<std::optional<NeftuneConfig>> neftune{"neftune", std::nullopt, "Noise on token embeddings (NEFTune)."};
  Field<OptimizerConfig> optimizer{"optimizer", AdamWConfig{}, "The optimizer."};
  Field<std::optional<LrSchedulerConfig>> lr_scheduler{"lr_scheduler", std::nullopt,
                                                       "Learning-rate schedule; null: a constant rate."};
  Field<std::optional<ClipGradNormConfig>> clip_grad_norm{"clip_grad_norm", ClipGradNormConfig{},
                                                          "Gradient clipping; null disables it."};
  Field<CheckpointConfig> checkpoint{"checkpoint", {}, "Checkpoints, and where the run's files go."};
  Field<FaultToleranceConfig> fault_tolerance{
      "fault_tolerance", {}, "Restarts, and steps whose loss or gradient is bad."};
  Field<std::optional<GenerationConfig>> generation{"generation", std::nullopt,
                                                    "Text to generate at the end of the run."};
  Field<LoggingConfig> logging{"logging", {}, "What a run writes and shows."};
  Field<HardwareConfig> hardware{"hardware", {}, "The machine that estimates assume."};
  Field<RngConfig> rng{"rng", {}, "Seed, in its older location."};
  Field<Value> ci{"ci", nullptr, "NeMo AutoModel's tests.", Ignored{"it is read by NeMo AutoModel's own tests"}};
  Field<Value> benchmark{"benchmark", nullptr, "NeMo AutoModel's benchmark recipe.",
                         Ignored{"every run logs step time, tokens per second and MFU"}};
  Field<Value> compile{"compile", nullptr, "torch.compile.",
                       Ignored{"there is nothing to compile: the layers are compiled C++ already"}};
  Field<Value> autocast{"autocast", nullptr, "Autocast.",
                        Ignored{"NeMo AutoModel's language-model recipes do not read it; distributed.autocast_dtype "
                                "chooses the dtype"}};
  Field<bool> nvtx{"nvtx", false, "NVTX ranges.", Ignored{"no NVTX ranges are written"}};
  Field<Value> wandb{"wandb", nullptr, "Weights & Biases.",
                     Ignored{"logging.command: python3 recipes/watchers/wandb_watcher.py NAME sends the metrics"}};
  Field<Value> mlflow{"mlflow", nullptr, "MLflow.",
                      Ignored{"logging.command: python3 recipes/watchers/mlflow_watcher.py NAME sends the metrics"}};
  Field<Value> comet{"comet", nullptr, "Comet.",
                     Ignored{"metrics are written as JSON lines and TensorBoard events; nothing is uploaded"}};
  Field<Value> prewarm{"prewarm", nullptr, "Warm-up of kernels.", Ignored{"kernels need no warm-up"}};
  Field<Value> mfu{"mfu", nullptr, "MFU.",
                   Ignored{"MFU is logged where the peak is known: of a GPU in 16 bits, or by hardware.peak_tflops"}};
  Field<Value> skypilot{"skypilot", nullptr, "SkyPilot launcher.", Ignored{"jobs are started with mpirun or Slurm"}};
  Field<Value> nemo_run{"nemo_run", nullptr, "NeMo-Run launcher.", Ignored{"jobs are started with mpirun or Slurm"}};
  Field<Value> moe_metrics{"moe_metrics", nullptr, "Expert-load metrics.", Ignored{"expert load is not logged"}};
  Field<std::optional<Float8Config>> fp8{"fp8", std::nullopt, "Linear layers in float8 with dynamic scales."};
  Field<std::optional<QuantizationConfig>> quantization{
      "quantization", std::nullopt, "Frozen weights under adapters in 4 or 8 bits (QLoRA), in bitsandbytes' formats."};
  Field<Value> qat{"qat", nullptr, "Quantization-aware training.", Unsupported{"weights stay in floating point"}};
  Field<Value> tokenizer{"tokenizer", nullptr, "Tokenizer of all data sets.",
                         Ignored{"NeMo AutoModel does not read it: data sets use the model's tokenizer, or the one "
                                 "that dataset.tokenizer names"}};
  Field<Value> tool_call_eval{"tool_call_eval", nullptr, "Evaluation of tool calls.",
                              Ignored{"validation is the loss on validation_dataset"}};
  Field<Value> embedding_row_repair{"embedding_row_repair", nullptr, "Repair of embedding rows.",
                                    Ignored{"embeddings are used as they are stored"}};
  Field<Value> domain_mixture{"domain_mixture", nullptr, "Mixture of data sets.",
                              Unsupported{"dataset: {_target_: mixture} mixes data sets by sampling weight; objective "
                                          "weights are not supported"}};
  Field<Value> longalign{"longalign", nullptr, "Batches of rows of similar length.",
                         Unsupported{"batches are not composed by length"}};
  Field<Value> autopipeline{"autopipeline", nullptr, "Older section.",
                            Ignored{"NeMo AutoModel does not read it; distributed.pipeline does this"}};
  Field<Value> parallelizer{"parallelizer", nullptr, "Older section.",
                            Ignored{"NeMo AutoModel does not read it; distributed does this"}};
  Field<Value> distributed_config{"distributed_config", nullptr, "Older section.",
                                  Ignored{"NeMo AutoModel does not read it; distributed does this"}};
};

/// Calls `use(section, key)` for each data section: that of training, then those of validation.
template <class Use>
void for_each_set(const Recipe& recipe, const Use& use) {
  if (recipe.dataset()) use(*recipe.dataset(), std::string("dataset"));
  if (recipe.validation_dataset()) use(*recipe.validation_dataset(), std::string("validation_dataset"));
  for (const auto& [name, section] : recipe.validation_datasets()) use(section, "validation_dataset_" + name);
}

/// The seed of weights, data order and dropout.
int seed_of(const Recipe& recipe);

/// Whether only bitwise reproducible kernels may be used on a GPU.
bool deterministic(const Recipe& recipe);

/// The backend requested by dist_env, else by distributed; empty if neither names one (or both say auto).
std::optional<Backend> backend_of(const Recipe& recipe);

/// A loaded recipe with the origin of every value.
struct LoadedRecipe {
  Recipe recipe;
  std::string path;                 ///< as given
  std::string text;                 ///< of the file
  std::vector<Override> overrides;  ///< applied when it was read
  Origins origins;
  std::vector<IgnoredKey> ignored;
  std::vector<IgnoredKey> unsupported;  ///< keys that prevent training, though the recipe can be planned
  Diagnostics problems;                 ///< empty if the recipe is usable
  Diagnostics warnings;                 ///< suspicious but valid
  /// Relative paths are looked up here first.
  std::filesystem::path folder() const { return std::filesystem::path(path).parent_path(); }
  int seed() const { return seed_of(recipe); }
};

/// The recipe with overrides and defaults, as it is shown and stored: values that came from the environment are as the
/// recipe has them ("${NAME}"), which keeps secrets out.
Value shown_values(const LoadedRecipe& loaded);

/// Reads `text` as the content of recipe `path`. Never throws because of the content: see `problems`.
LoadedRecipe read_recipe(std::string text, const std::string& path, std::span<const Override> overrides,
                         const Environment& environment);
/// Reads the file; reports `missing-file` if that fails.
LoadedRecipe load_recipe(const std::string& path, std::span<const Override> overrides, const Environment& environment);
/// The same with overrides as command-line words; their problems are listed first.
LoadedRecipe load_recipe(const std::string& path, std::span<const std::string> words, const Environment& environment);
/// Rereads the recipe with `further` appended to its overrides.
LoadedRecipe read_again(const LoadedRecipe& recipe, std::span<const Override> further, const Environment& environment);

/// JSON Schema (draft 2020-12) of a recipe, as JSON text.
std::string recipe_schema();

}  // namespace automodel::config
