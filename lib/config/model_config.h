// `model:` which model to train, its dtype, and its initial weights.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "config/types.h"

namespace automodel::config {

/// A dtype, or `auto`: the one in the model's config.json.
struct AutoDType {
  std::optional<DType> dtype = std::nullopt;
  bool operator==(const AutoDType&) const = default;
  static TypeInfo config_type();
};

/// `config:` a path to a folder or config.json, inline Hugging Face keys, or {_target_: AutoConfig.from_pretrained,
/// ...}.
struct ModelSource {
  std::optional<std::string> path = std::nullopt;  ///< a path or a model name
  std::optional<Value> inline_config = std::nullopt;
  Value overrides = {};  ///< keys given next to pretrained_model_name_or_path, which replace the file's
  bool operator==(const ModelSource&) const = default;
  static TypeInfo config_type();
};

enum class ModelTarget {
  kAuto,
  kFromPretrained,
  kFromConfig,
  kGpt2,
  kSeq2Seq,
  kClassifierFromPretrained,
  kClassifierFromConfig,
  kPicturesFromPretrained,
  kPicturesFromConfig
};
template <>
struct EnumNames<ModelTarget> {
  using E = ModelTarget;
  static constexpr std::array names = {
      EnumName<E>{"auto", E::kAuto},
      EnumName<E>{"from_pretrained", E::kFromPretrained},
      EnumName<E>{"from_config", E::kFromConfig},
      EnumName<E>{"nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained", E::kFromPretrained},
      EnumName<E>{"nemo_automodel.NeMoAutoModelForCausalLM.from_config", E::kFromConfig},
      EnumName<E>{"nemo_automodel._transformers.NeMoAutoModelForCausalLM.from_pretrained", E::kFromPretrained},
      EnumName<E>{"nemo_automodel._transformers.NeMoAutoModelForCausalLM.from_config", E::kFromConfig},
      EnumName<E>{"transformers.AutoModelForCausalLM.from_pretrained", E::kFromPretrained},
      EnumName<E>{"transformers.AutoModelForCausalLM.from_config", E::kFromConfig},
      EnumName<E>{"nemo_automodel.NeMoAutoModelForImageTextToText.from_pretrained", E::kPicturesFromPretrained},
      EnumName<E>{"nemo_automodel.NeMoAutoModelForImageTextToText.from_config", E::kPicturesFromConfig},
      EnumName<E>{"nemo_automodel._transformers.NeMoAutoModelForImageTextToText.from_pretrained",
                  E::kPicturesFromPretrained},
      EnumName<E>{"nemo_automodel._transformers.NeMoAutoModelForImageTextToText.from_config", E::kPicturesFromConfig},
      EnumName<E>{"nemo_automodel.NeMoAutoModelForMultimodalLM.from_pretrained", E::kPicturesFromPretrained},
      EnumName<E>{"nemo_automodel.NeMoAutoModelForMultimodalLM.from_config", E::kPicturesFromConfig},
      EnumName<E>{"transformers.AutoModelForImageTextToText.from_pretrained", E::kPicturesFromPretrained},
      EnumName<E>{"transformers.AutoModelForImageTextToText.from_config", E::kPicturesFromConfig},
      EnumName<E>{"nemo_automodel.components.models.gpt2.build_gpt2_model", E::kGpt2},
      EnumName<E>{"nemo_automodel.NeMoAutoModelForSeq2SeqLM.from_pretrained", E::kSeq2Seq},
      EnumName<E>{"nemo_automodel.NeMoAutoModelForSeq2SeqLM.from_config", E::kSeq2Seq},
      EnumName<E>{"nemo_automodel.NeMoAutoModelForSequenceClassification.from_pretrained",
                  E::kClassifierFromPretrained},
      EnumName<E>{"nemo_automodel.NeMoAutoModelForSequenceClassification.from_config", E::kClassifierFromConfig},
      EnumName<E>{"nemo_automodel._transformers.NeMoAutoModelForSequenceClassification.from_pretrained",
                  E::kClassifierFromPretrained},
      EnumName<E>{"nemo_automodel._transformers.NeMoAutoModelForSequenceClassification.from_config",
                  E::kClassifierFromConfig},
      EnumName<E>{"nemo_automodel._transformers.auto_model.NeMoAutoModelForSequenceClassification.from_pretrained",
                  E::kClassifierFromPretrained},
      EnumName<E>{"nemo_automodel._transformers.auto_model.NeMoAutoModelForSequenceClassification.from_config",
                  E::kClassifierFromConfig},
      EnumName<E>{"transformers.AutoModelForSequenceClassification.from_pretrained", E::kClassifierFromPretrained},
      EnumName<E>{"transformers.AutoModelForSequenceClassification.from_config", E::kClassifierFromConfig},
  };
};

constexpr bool is_classifier(ModelTarget target) {
  return target == ModelTarget::kClassifierFromPretrained || target == ModelTarget::kClassifierFromConfig;
}
constexpr bool takes_pictures(ModelTarget target) {
  return target == ModelTarget::kPicturesFromPretrained || target == ModelTarget::kPicturesFromConfig;
}
/// Whether the class reads weights, or leaves them at their initial values; kAuto does neither by itself.
constexpr bool reads_weights(ModelTarget target) {
  return target == ModelTarget::kFromPretrained || target == ModelTarget::kClassifierFromPretrained ||
         target == ModelTarget::kPicturesFromPretrained;
}
constexpr bool leaves_weights(ModelTarget target) {
  return target == ModelTarget::kFromConfig || target == ModelTarget::kClassifierFromConfig ||
         target == ModelTarget::kPicturesFromConfig;
}

/// Settings of NeMo AutoModel's expert layers that its model classes accept in addition to the configuration.
struct MoeOverridesConfig {
  using IsSection = void;
  Field<std::optional<double>> gate_bias_update_factor{
      "gate_bias_update_factor", std::nullopt,
      "Step size of the router correction biases after every optimizer step: up for experts with fewer tokens of the "
      "global batch than the layer's mean, down for those with more; null or 0 disables the update.",
      at_least<0>};
};

inline constexpr std::string_view kNoMtp = "multi-token-prediction layers are not trained";
inline constexpr std::string_view kOwnKernels = "kernels are chosen for the device";
inline constexpr std::string_view kOnlyLogits = "training needs only the logits";
inline constexpr std::string_view kOwnCache = "training keeps no keys and values, generation keeps them where it can";

/// The Hugging Face configuration keys that a recipe may set directly in this section.
std::span<const std::string_view> hf_config_keys();

/// `text_config:` keys of the decoder of a model with pictures. As in transformers, each replaces that of the file's
/// text_config, and the others stay.
struct TextConfig {
  using IsSection = void;
  Field<bool> use_cache{"use_cache", true, "Keep keys and values.", Ignored{kOwnCache}};
  Field<bool> output_hidden_states{"output_hidden_states", false, "Return hidden states.", Ignored{kOnlyLogits}};
  Field<Value> mtp_expert_hf_layout{"mtp_expert_hf_layout", nullptr,
                                    "How experts of multi-token prediction are stored.", Ignored{kNoMtp}};
  Field<Value> cp_full_attn_backend{"cp_full_attn_backend", nullptr, "Kernel of full attention.", Ignored{kOwnKernels}};
  Field<Value> overrides{
      Rest{hf_config_keys()}, {}, "Hugging Face configuration keys that replace those of config.json's text_config."};
};

struct ModelConfig {
  using IsSection = void;
  Field<ModelTarget> target{"_target_", ModelTarget::kAuto,
                            "Read weights from a folder (from_pretrained) or initialise them from the seed "
                            "(from_config); auto: from_pretrained if pretrained_model_name_or_path is given."};
  Field<std::optional<std::string>> pretrained_model_name_or_path{
      "pretrained_model_name_or_path", std::nullopt,
      "Folder with config.json and safetensors, or a model's name in the local Hugging Face cache (for `plan` also in "
      "the catalogue)."};
  Field<std::optional<ModelSource>> config{"config", std::nullopt,
                                           "Hugging Face configuration: inline keys, a folder, a config.json, or "
                                           "AutoConfig.from_pretrained; weights are initialised from the seed."};
  Field<AutoDType> torch_dtype{
      "torch_dtype|dtype",
      {},
      "Dtype of the weights; auto: that of config.json, else bfloat16 on CUDA and float32 on CPU."};
  Field<std::optional<int>> num_labels{
      "num_labels", std::nullopt,
      "Classes of a sequence classifier: rows have labels 0 to num_labels - 1. Required for one, refused for others.",
      at_least<2>};
  Field<std::optional<std::string>> attn_implementation{
      "attn_implementation", std::nullopt, "Attention kernel.",
      Ignored{"the fastest kernel for the device and mask is chosen"}};
  Field<bool> use_liger_kernel{"use_liger_kernel", true, "Liger kernels.",
                               Ignored{"norm, RoPE, SwiGLU and cross-entropy are fused already"}};
  Field<bool> use_sdpa_patching{"use_sdpa_patching", true, "Patch attention.",
                                Ignored{"the fastest kernel for the device and mask is chosen"}};
  Field<Value> sdpa_method{"sdpa_method", nullptr, "Attention kernels to choose from.",
                           Ignored{"the fastest kernel for the device and mask is chosen"}};
  Field<bool> force_hf{"force_hf", false, "Use transformers' class.",
                       Ignored{"there is one implementation of each family"}};
  Field<bool> trust_remote_code{"trust_remote_code", false, "Run code from the model folder.",
                                Ignored{"code from a model folder is never run"}};
  Field<bool> output_hidden_states{"output_hidden_states", false, "Return hidden states.", Ignored{kOnlyLogits}};
  Field<bool> use_cache{"use_cache", true, "Keep keys and values.", Ignored{kOwnCache}};
  Field<bool> load_base_model{"load_base_model", true, "Read the weights; false leaves them at their initial values."};
  Field<std::optional<std::string>> cache_dir{"cache_dir", std::nullopt, "Hugging Face cache to look in."};
  Field<std::optional<std::string>> revision{"revision", std::nullopt, "Revision in the cache."};
  Field<Value> backend{"backend", nullptr, "Kernels of NeMo AutoModel's own model classes.", Ignored{kOwnKernels}};
  Field<std::optional<MoeOverridesConfig>> moe_overrides{"moe_overrides", std::nullopt,
                                                         "Settings of mixture-of-experts layers."};
  Field<Value> quantization_config{"quantization_config", nullptr, "Quantized weights.",
                                   Ignored{"weights are not quantized"}};
  Field<Value> mtp_loss_scaling_factor{"mtp_loss_scaling_factor", nullptr, "Weight of multi-token prediction.",
                                       Ignored{kNoMtp}};
  Field<Value> mtp_use_repeated_layer{"mtp_use_repeated_layer", nullptr, "One layer for all predictions.",
                                      Ignored{kNoMtp}};
  Field<Value> kda_mode{"kda_mode", nullptr, "Kernel of linear attention.", Ignored{kOwnKernels}};
  Field<std::optional<TextConfig>> text_config{"text_config", std::nullopt,
                                               "Keys of the decoder, for models whose config.json has a text_config."};
  Field<Value> overrides{
      Rest{hf_config_keys()}, {}, "Hugging Face configuration keys that replace those of the model's config.json."};
};

}  // namespace automodel::config
