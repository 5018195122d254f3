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
      "Linear modules that get an adapter: fully qualified names, their last components (q_proj), or patterns with the "
      "wildcard *. A layer's experts are one module (*mlp.experts). Default if none of the three keys is given: "
      "*_proj."};
  Field<ModulePatterns> exclude_modules{
      "exclude_modules", {}, "Names and patterns of the same form; all other linear modules get an adapter."};
  Field<bool> match_all_linear{"match_all_linear", false, "Every linear module gets an adapter, including the head."};
  Field<int> dim{"dim", 8, "Rank r of the adapters.", at_least<1>};
  Field<int> alpha{"alpha", 32, "Adapters are scaled by alpha / dim.", at_least<1>};
  Field<bool> use_dora{"use_dora", false, "DoRA: also train the norm of each row of W + alpha / dim * B A."};
  Field<double> dropout{"dropout", 0.0, "Dropout rate in training.", fraction};
  Field<DropoutPosition> dropout_position{
      "dropout_position", DropoutPosition::kPost,
      "Where dropout is applied: to an adapter's input (pre) or its output (post)."};
  Field<AdapterInit> lora_A_init{"lora_A_init", AdapterInit::kXavier,
                                 "Initial values of A: xavier (normal, variance 2 / (in + dim)) or kaiming (uniform, "
                                 "at most 1 / sqrt(in)), which uniform names too; B is initialised to zero."};
  Field<std::optional<DType>> lora_dtype{
      "lora_dtype", std::nullopt,
      "Dtype of the adapters in checkpoints; null: that of the model's weights. They are computed in the model's "
      "dtype; the strategy decides about their master weights."};
  Field<bool> use_memory_efficient_lora{"use_memory_efficient_lora", true,
                                        "Recompute A's outputs instead of keeping them.",
                                        Ignored{"A's outputs are always recomputed in the backward pass"}};
  Field<bool> use_triton{"use_triton", false, "Triton kernels, for CUDA.",
                         Ignored{"there are no Triton kernels: A and B are ordinary matmuls on every device"}};
  Field<bool> moe_rank_scaling{"moe_rank_scaling", false,
                               "Adapters of experts have rank dim / (experts per token), at least 1."};
  Field<std::string> expert_weight_format{"expert_weight_format", "unquantized", "Format of frozen experts.",
                                          Ignored{"experts are not quantized"}};
};

/// Checks rules across keys of this section; reported keys are relative to it.
Diagnostics check(const PeftConfig& config);

}  // namespace automodel::config
