// One reader per trainer: from its file to Resolved. Facts about each trainer's keys and defaults:
// docs/other-trainers.md.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "foreign/keys.h"
#include "foreign/source_file.h"

namespace automodel::foreign {

/// What a reader may look at besides its file.
struct Surroundings {
  int world_size = 0;                      ///< 0: not given
  const SourceFile* accelerate = nullptr;  ///< that the run is launched with
  const SourceFile* deepspeed = nullptr;   ///< given on the command line
  std::function<std::optional<std::string>(const std::string&)> environment;
  /// Reads a file that `from` names: looked up in the working directory, beside `from`, then in the folders above it.
  std::function<std::optional<SourceFile>(const std::string& name, const SourceFile& from)> referenced;
  std::optional<std::int64_t> vocab_size = {};  ///< given with --vocab-size
  bool accept_adamw = false;                    ///< --accept-optimizer adamw
};

void read_axolotl(const SourceFile& file, const Surroundings& around, Resolved& out, Findings& findings);
void read_megatron(const SourceFile& file, const Surroundings& around, Resolved& out, Findings& findings);
void read_llamafactory(const SourceFile& file, const Surroundings& around, Resolved& out, Findings& findings);
void read_torchtitan(const SourceFile& file, const Surroundings& around, Resolved& out, Findings& findings);
void read_torchtune(const SourceFile& file, const Surroundings& around, Resolved& out, Findings& findings);
void read_trl(const SourceFile& file, const Surroundings& around, Resolved& out, Findings& findings);
void read_hf_trainer(const SourceFile& file, const Surroundings& around, Resolved& out, Findings& findings);
/// Alone: mesh, sharding and types.
void read_accelerate(const SourceFile& file, const Surroundings& around, Resolved& out, Findings& findings);
void read_deepspeed(const SourceFile& file, const Surroundings& around, Resolved& out, Findings& findings);

// Parts that several of them have.

/// DeepSpeed's JSON. Its "auto" values are those that `out` already has; a number that contradicts them is refused.
void apply_deepspeed(const config::Node& node, Resolved& out, Findings& findings);
/// Types and sharding of Megatron-LM's engine beneath another trainer, whose `out.dtype` is known; `sharded`: its
/// distributed optimizer. Sums are in float32 beside bfloat16, in float16 beside float16.
void apply_megatron_states(bool sharded, const std::string& key, Resolved& out);
/// accelerate's YAML, beside a Trainer's configuration. False: it says nothing about sharding.
void apply_accelerate(const SourceFile& file, const Surroundings& around, Resolved& out, Findings& findings);
/// The file that a key `deepspeed` names, or the mapping that it holds.
void apply_deepspeed_key(Keys& keys, const SourceFile& file, const Surroundings& around, Resolved& out,
                         Findings& findings);
/// FSDP's keys, with or without the prefix "fsdp_": strategy, resharding, offload, recomputation. `version` is the one
/// that holds where the keys name none.
/// Returns the version.
int apply_fsdp(Keys& config, const std::vector<std::string>& words, int version, Resolved& out);
/// accelerator_config.gradient_accumulation_kwargs.sync_each_batch: under FSDP, whole gradients are kept without it.
void apply_accelerator_config(Keys& keys, Resolved& out);
/// A name of torch.optim, bitsandbytes, Megatron or DeepSpeed.
void apply_optimizer(const Setting<std::string>& name, const Surroundings& around, Resolved& out, Findings& findings);
/// Transformers' names of learning-rate schedules.
void apply_scheduler(const Setting<std::string>& name, Resolved& out, Findings& findings);
/// A shard of the optimizer or of the parameters in host memory, which a recipe cannot say.
void say_partial_offload(const std::string& key, const std::string& what, Findings& findings);

}  // namespace automodel::foreign
