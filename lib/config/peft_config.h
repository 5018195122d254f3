// `peft:` low-rank adapters (LoRA) on top of frozen weights, with the fields of NeMo AutoModel's PeftConfig.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "base/dtype.h"
#include "config/types.h"

namespace automodel::config {

/// Module name patterns with wildcards. A single pattern may be written without brackets.
struct ModulePatterns {
  std::vector<std::string> patterns = {};
  bool operator==(const ModulePatterns&) const = default;
  static TypeInfo config_type();
};

enum class PeftTarget { kLora };
template <>
struct EnumNames<PeftTarget> {
  static constexpr std::array names = {
      EnumName<PeftTarget>{"lora", PeftTarget::kLora},
      EnumName<PeftTarget>{"nemo_automodel.components._peft.lora.PeftConfig", PeftTarget::kLora}};
};

enum class DropoutPosition { kPre, kPost };
template <>
struct EnumNames<DropoutPosition> {
  static constexpr std::array names = {EnumName<DropoutPosition>{"pre", DropoutPosition::kPre},
                                       EnumName<DropoutPosition>{"post", DropoutPosition::kPost}};
};

enum class AdapterInit { kXavier, kKaiming };
template <>
struct EnumNames<AdapterInit> {
  static constexpr std::array names = {EnumName<AdapterInit>{"xavier", AdapterInit::kXavier},
                                       EnumName<AdapterInit>{"kaiming", AdapterInit::kKaiming},
                                       EnumName<AdapterInit>{"uniform", AdapterInit::kKaiming}};
};

struct PeftConfig {
  using IsSection = void;
  Field<PeftTarget> target{"_target_", PeftTarget::kLora, "Kind of adapters."};
  Field<ModulePatterns> target_modules{
      "target_modules",
      {},
      "Linear modules that get an adapter: fully qualified names, their last parts (q_proj), or patterns in which * "
      "stands for anything. The experts of a layer are one module (*mlp.experts). Without any of the three keys: "
      "*_proj."};
  Field<ModulePatterns> exclude_modules{
      "exclude_modules", {}, "The same names and patterns; all other linear modules get an adapter."};
  Field<bool> match_all_linear{"match_all_linear", false, "Every linear module gets an adapter, the head too."};
  Field<int> dim{"dim", 8, "Rank r of the adapters.", at_least<1>};
  Field<int> alpha{"alpha", 32, "Adapters are scaled by alpha / dim.", at_least<1>};
  Field<bool> use_dora{"use_dora", false,
                       "DoRA: the length of every row of W + alpha / dim * B A is trained beside A and B."};
  Field<double> dropout{"dropout", 0.0, "Share of elements that dropout leaves out in training.", fraction};
  Field<DropoutPosition> dropout_position{"dropout_position", DropoutPosition::kPost,
                                          "What dropout acts on: an adapter's input (pre) or its result (post)."};
  Field<AdapterInit> lora_A_init{"lora_A_init", AdapterInit::kXavier,
                                 "Initial values of A: xavier (normal, variance 2 / (in + dim)) or kaiming (uniform, "
                                 "at most 1 / sqrt(in)); B begins as zero."};
  Field<std::optional<DType>> lora_dtype{
      "lora_dtype", std::nullopt,
      "Type of the adapters in checkpoints; null: that of the model's weights. They compute in the model's type, with "
      "masters as the strategy has them."};
  Field<bool> use_memory_efficient_lora{"use_memory_efficient_lora", true,
                                        "Recompute the results of A instead of keeping them.",
                                        Ignored{"results of A are always computed again in the backward pass"}};
  Field<bool> use_triton{"use_triton", false, "Triton kernels, for CUDA.",
                         Ignored{"there are no Triton kernels: A and B are matrix products on every device"}};
  Field<bool> moe_rank_scaling{"moe_rank_scaling", false,
                               "Adapters of experts have rank dim / experts of a token, at least 1."};
  Field<std::string> expert_weight_format{"expert_weight_format", "unquantized", "Type of frozen experts.",
                                          Ignored{"experts are not quantized"}};
};

/// Checks rules across keys of this section; reported keys are relative to it.
Diagnostics check(const PeftConfig& config);

}  // namespace automodel::config
