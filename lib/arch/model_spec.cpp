#include "arch/model_spec.h"

namespace automodel::arch {

void make_classifier(ModelSpec& spec, int classes) {
  spec.classes = classes;
  spec.tied_embeddings = spec.head_bias = spec.head_rows_normed = false;
  spec.logit_scale = 1;
  spec.logit_softcap = 0;
  if (spec.moe) spec.moe->output_router_logits = false;
  for (const std::string_view end : {"ForCausalLM", "LMHeadModel", "ForConditionalGeneration"})
    if (spec.architecture.ends_with(end)) {
      spec.architecture.resize(spec.architecture.size() - end.size());
      spec.architecture += "ForSequenceClassification";
    }
}

std::string_view name_of(LayerAttention attention) {
  return attention == LayerAttention::kFull ? "full_attention" : "sliding_attention";
}

std::string_view name_of(RopeKind kind) {
  switch (kind) {
    case RopeKind::kNone: return "none";
    case RopeKind::kDefault: return "default";
    case RopeKind::kLinear: return "linear";
    case RopeKind::kDynamic: return "dynamic";
    case RopeKind::kLlama3: return "llama3";
    case RopeKind::kYarn: return "yarn";
    case RopeKind::kProportional: return "proportional";
    case RopeKind::kLongRope: break;
  }
  return "longrope";
}

std::string_view name_of(Mixer mixer) {
  constexpr std::array<std::string_view, kMixerCount> kNames = {
      "attention",           "gated delta rule",  "gated delta rule by channel", "Mamba-2", "Mamba-2 beside attention",
      "lightning attention", "short convolution", "feed-forward alone"};
  return kNames[static_cast<std::size_t>(mixer)];
}

}  // namespace automodel::arch
