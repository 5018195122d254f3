// `freeze_config:` modules whose parameters are frozen, with the fields of NeMo AutoModel's FreezeConfig.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "config/types.h"

namespace automodel::config {

/// Selects modules including all their submodules. Exactly one of the two keys must be given.
struct ModuleSelector {
  using IsSection = void;
  Field<std::optional<std::string>> path{"path", std::nullopt, "Full name of a module."};
  Field<std::optional<std::string>> glob{"glob", std::nullopt, "Pattern for full names; * and ? also match dots."};
};

struct FreezeConfig {
  using IsSection = void;
  Field<std::vector<ModuleSelector>> freeze_modules{
      "freeze_modules", {}, "Modules to freeze, including their submodules: entries {path: ...} or {glob: ...}."};
  Field<std::vector<ModuleSelector>> unfreeze_modules{
      "unfreeze_modules", {}, "Exceptions: modules within these that are trained."};
  Field<std::optional<bool>> freeze_vision_tower{
      "freeze_vision_tower", std::nullopt,
      "Freeze the vision tower, but not the projector; null: true if nothing is named in freeze_modules and "
      "unfreeze_modules. With peft, what is frozen so has no adapters."};
  Field<std::optional<bool>> freeze_audio_tower{"freeze_audio_tower", std::nullopt, "Freeze the audio tower.",
                                                Ignored{"audio towers are not trained"}};
  Field<std::optional<bool>> freeze_video_embedder{"freeze_video_embedder", std::nullopt, "Freeze the video embedder.",
                                                   Ignored{"models with a video embedder are not trained"}};
  Field<std::optional<bool>> freeze_language_model{
      "freeze_language_model", std::nullopt,
      "Freeze the decoder of a model with a vision tower, but not its head; no effect on other models. With "
      "peft, what is frozen so has no adapters."};
  Field<std::optional<bool>> freeze_embeddings{
      "freeze_embeddings", std::nullopt, "Token embeddings.",
      Ignored{"NeMo AutoModel does not read it; freeze_modules: [{glob: '*embed_tokens'}] does it"}};
};

/// Checks rules across keys of this section; reported keys are relative to it.
Diagnostics check(const FreezeConfig& config);

}  // namespace automodel::config
