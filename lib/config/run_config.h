// Sections around training: checkpoint, logging, dist_env, hardware.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/backend.h"
#include "config/types.h"

namespace automodel::config {

enum class ConsolidatedMode { kFalse, kFinal, kEvery };
template <>
struct EnumNames<ConsolidatedMode> {
  using E = ConsolidatedMode;
  static constexpr std::array names = {EnumName<E>{"false", E::kFalse}, EnumName<E>{"final", E::kFinal},
                                       EnumName<E>{"every", E::kEvery}, EnumName<E>{"true", E::kEvery},
                                       EnumName<E>{"no", E::kFalse},    EnumName<E>{"off", E::kFalse}};
};

enum class ResumeMode { kAuto, kNever };
template <>
struct EnumNames<ResumeMode> {
  using E = ResumeMode;
  static constexpr std::array names = {EnumName<E>{"auto", E::kAuto}, EnumName<E>{"never", E::kNever}};
};

struct CheckpointConfig {
  using IsSection = void;
  Field<bool> enabled{"enabled", true, "Write checkpoints."};
  Field<std::string> checkpoint_dir{"checkpoint_dir", "checkpoints/", "Folder for the run's checkpoints and metrics."};
  Field<std::string> model_save_format{"model_save_format", "safetensors",
                                       "Format of the weights; safetensors is the only one."};
  Field<ConsolidatedMode> save_consolidated{
      "save_consolidated", ConsolidatedMode::kFinal,
      "Write the weights as a few large files: at the end (final), with every checkpoint (every) or never (false)."};
  Field<bool> is_async{"is_async", false, "Write checkpoints in the background."};
  Field<std::optional<std::string>> restore_from{"restore_from", std::nullopt,
                                                 "Checkpoint to resume from: a folder, or LATEST; null: LATEST in "
                                                 "checkpoint_dir, or the newest complete one if there is no LATEST."};
  Field<ResumeMode> resume{
      "resume", ResumeMode::kAuto,
      "auto: resume from the checkpoint of this run in checkpoint_dir, if there is one; never: start a new run."};
  Field<std::optional<int>> max_recent_checkpoints{"max_recent_checkpoints", std::nullopt,
                                                   "Number of recent checkpoints to keep; null: all.", at_least<1>};
  Field<std::optional<int>> memory_every_steps{
      "memory_every_steps", std::nullopt,
      "Steps between copies of every rank's state to the memory of its own host and another one, so that a run can "
      "continue after losing a rank or host; null: none.",
      at_least<1>};
  Field<std::string> best_metric_key{"best_metric_key", "default", "Validation set whose loss determines LOWEST_VAL."};
  Field<std::optional<std::string>> staging_dir{
      "staging_dir", std::nullopt, "Scratch folder.",
      Ignored{"a checkpoint is written next to its final path and then renamed"}};
  Field<bool> wait_for_staging{"wait_for_staging", false, "Wait for the copy to host memory.",
                               Ignored{"a step always waits for that copy, and for nothing else"}};
  Field<bool> cpu_offload{"cpu_offload", false, "Copy to host memory before writing.",
                          Ignored{"weights are always written from host memory"}};
  Field<bool> single_rank_consolidation{"single_rank_consolidation", false, "One rank writes.",
                                        Ignored{"every rank writes its own bytes of the same files"}};
  Field<int> consolidation_timeout_minutes{"consolidation_timeout_minutes", 30, "Time limit of consolidation.",
                                           Ignored{"files are consolidated as they are written"}};
  Field<bool> is_peft{"is_peft", false, "Only adapters are saved.", Ignored{"the peft section decides this"}};
  Field<Value> model_cache_dir{"model_cache_dir", nullptr, "Cache.", Ignored{"the base model is only read"}};
  Field<Value> model_repo_id{"model_repo_id", nullptr, "Name on a hub.", Ignored{"nothing is uploaded"}};
  Field<Value> model_state_dict_keys{"model_state_dict_keys", nullptr, "Names.", Ignored{"all parameters are saved"}};
  Field<Value> original_model_root_dir{"original_model_root_dir", nullptr, "Folder of the base model.",
                                       Ignored{"model.pretrained_model_name_or_path names it"}};
  Field<Value> skip_task_head_prefixes_for_base_model{"skip_task_head_prefixes_for_base_model", nullptr,
                                                      "Heads left out.",
                                                      Ignored{"the models are causal language models"}};
  Field<bool> allow_legacy_pickle_restore{"allow_legacy_pickle_restore", false, "Read Python pickles.",
                                          Ignored{"no Python objects are ever read"}};
  Field<std::optional<bool>> dequantize_base_checkpoint{"dequantize_base_checkpoint", std::nullopt, "Dequantize.",
                                                        Ignored{"quantized weights are refused"}};
  Field<bool> v4_compatible{"v4_compatible", false, "Names of transformers 4.",
                            Ignored{"both major versions can read what is written"}};
  Field<bool> legacy_paramwrapper_layout{"legacy_paramwrapper_layout", false, "Older adapter layout.",
                                         Ignored{"adapters are written as the PEFT library writes them today"}};
  Field<bool> diffusers_compatible{"diffusers_compatible", false, "Layout of diffusers.",
                                   Ignored{"the models are causal language models"}};
};

/// logging.trace: a file name, which traces the second step, or a list of steps.
struct TraceChoice {
  std::optional<std::string> file = {};
  std::vector<std::int64_t> steps = {};
  bool operator==(const TraceChoice&) const = default;
  static TypeInfo config_type();
};

struct LoggingConfig {
  using IsSection = void;
  Field<bool> jsonl{"jsonl", true, "Write training.jsonl and validation.jsonl."};
  Field<bool> tensorboard{"tensorboard", true, "Write TensorBoard event files."};
  Field<TraceChoice> trace{"trace",
                           {},
                           "Write planned and executed timelines to checkpoint_dir as Chrome trace events: a file name "
                           "(for the second step), or a list of steps (each to trace_STEP.json)."};
  Field<std::optional<bool>> progress{"progress", std::nullopt, "Progress bar; null: on a terminal."};
  Field<std::optional<std::string>> command{
      "command", std::nullopt,
      "A program and its arguments, which gets the run's events on standard input (docs/events.md)."};
};

/// Prompts that the trained model continues as samples. Not in NeMo AutoModel.
struct GenerationConfig {
  using IsSection = void;
  Field<std::vector<std::string>> prompts{"prompts", {"The "}, "Texts that the model continues after training."};
  Field<int> max_new_tokens{"max_new_tokens", 100, "Maximum number of new tokens per prompt.", at_least<1>};
  Field<double> temperature{"temperature", 0.8, "Sampling temperature; 0: always the most likely token.", at_least<0>};
};

struct DistEnvConfig {
  using IsSection = void;
  Field<std::optional<Backend>> backend{"backend", std::nullopt,
                                        "Communication backend: nccl, mpi, or gloo, which means the CPU backend (MPI); "
                                        "null or auto: NCCL if each rank of a host has its own GPU, else MPI."};
  Field<std::optional<double>> timeout_minutes{"timeout_minutes", std::nullopt,
                                               "Minutes after which a wait counts as a hang; null: 10.", positive};
  Field<std::optional<std::string>> master_addr{"master_addr", std::nullopt, "Rendezvous.",
                                                Ignored{"MPI starts the ranks"}};
  Field<std::optional<int>> master_port{"master_port", std::nullopt, "Rendezvous.", Ignored{"MPI starts the ranks"}};
};

/// The software stack whose kernels and communication the GPU estimates assume.
enum class Stack { kOwn, kPytorch, kTransformerEngine };
template <>
struct EnumNames<Stack> {
  static constexpr std::array names = {EnumName<Stack>{"own", Stack::kOwn}, EnumName<Stack>{"pytorch", Stack::kPytorch},
                                       EnumName<Stack>{"transformer_engine", Stack::kTransformerEngine}};
};
/// How tokens are dispatched to experts on other ranks.
enum class Dispatcher { kNccl, kDeduplicated };
template <>
struct EnumNames<Dispatcher> {
  static constexpr std::array names = {EnumName<Dispatcher>{"nccl", Dispatcher::kNccl},
                                       EnumName<Dispatcher>{"deduplicated", Dispatcher::kDeduplicated}};
};

/// How often parts fail, and what follows, for `plan --failures`. Rates per part and year as Llama 3 405B's training
/// counted them in 54 days on 16,384 H100 in 2,048 hosts (arXiv 2407.21783, table 5).
struct FailureConfig {
  using IsSection = void;
  Field<double> gpu{"gpu", 0.111, "Failures of a GPU per year; its host is out until it is repaired.", at_least<0>};
  Field<double> host{"host", 0.175, "Failures of a host per year, without its GPUs; it is out until it is repaired.",
                     at_least<0>};
  Field<double> network{
      "network", 0.139,
      "Failures of the network per host and year; ranks notice after dist_env.timeout_minutes, and no host is lost.",
      at_least<0>};
  Field<double> software{"software", 0.185, "Failures of software per host and year; no host is lost.", at_least<0>};
  Field<double> restart_minutes{
      "restart_minutes", 10.0,
      "Minutes from the moment at which ranks notice a failure until they begin to read the checkpoint.", at_least<0>};
  Field<double> repair_hours{"repair_hours", 24.0, "Hours until a lost host, or another in its place, is back.",
                             positive};
  Field<int> spare_hosts{"spare_hosts", 0, "Hosts that stand by and replace lost ones at once.", at_least<0>};
};

struct HardwareConfig {
  using IsSection = void;
  Field<std::optional<std::string>> profile{
      "profile", std::nullopt,
      "Device that estimates assume: h100, h200, gh200, a100-80, b200, gb200, mi300x, l40s, cpu and others "
      "(docs/estimates.md); null: this machine's GPU, if its driver names one of these."};
  Field<std::optional<std::string>> memory{"memory", std::nullopt, "Device memory per rank, for example 80GiB."};
  Field<std::optional<double>> peak_tflops{"peak_tflops", std::nullopt,
                                           "Peak rate of a device in TFLOP/s, for MFU and estimates.", positive};
  Field<std::optional<double>> node_bandwidth{
      "node_bandwidth", std::nullopt, "GB/s from a device to another one in the same machine; null: from the profile.",
      positive};
  Field<std::optional<double>> network_bandwidth{
      "network_bandwidth", std::nullopt,
      "GB/s from a device to another machine; null: from the profile, with one network adapter per device.", positive};
  Field<Stack> stack{
      "stack", Stack::kOwn,
      "Software stack that GPU estimates assume: own (this program), pytorch (FSDP2) or transformer_engine (Megatron "
      "Core, NeMo); with another one than own the plan says what that stack would need, not what train does."};
  Field<std::optional<Dispatcher>> dispatcher{
      "dispatcher", std::nullopt,
      "Expert dispatch that GPU estimates assume: nccl (all-to-all with one row per chosen expert) or deduplicated "
      "(DeepEP, HybridEP: one row per machine); null: nccl for stack own, deduplicated for strategy fsdp2 and if "
      "experts are on several machines."};
  Field<double> storage_bandwidth{"storage_bandwidth", 1.0,
                                  "GB/s at which a host writes and reads checkpoints, for plan --failures.", positive};
  Field<FailureConfig> failures{"failures", {}, "How often parts fail, for plan --failures."};
};

}  // namespace automodel::config
