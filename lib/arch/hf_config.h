// Parses Hugging Face's config.json into a ModelSpec.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "arch/model_spec.h"
#include "arch/towers.h"
#include "base/diagnostic.h"

namespace automodel::arch {

struct HfConfigOptions {
  /// Whether an unknown model_type is planned using its sizes, with a warning; otherwise it is an error.
  bool allow_unknown_family = true;
  /// Report unknown keys as errors. Meant for hand-written configs: those on the Hugging Face Hub contain many extra
  /// keys.
  bool strict_keys = false;
};

struct HfConfig {
  std::optional<ModelSpec> spec = {};  ///< empty if there are errors
  std::vector<Tower> towers = {};      ///< of a multimodal model
  Diagnostics errors = {};
  Diagnostics warnings = {};
};

/// Whether the keys of the decoder are in the `text_config` of this config.json, not at its top level.
bool nests_text(std::string_view text);

/// Parses a config.json with the keys of transformers 4 or 5. For a multimodal config, the decoder (in `text_config`,
/// or at the top level next to `vision_config`) is read as the model, and its spec is plan_only. `file` names the text
/// in diagnostics. Errors: bad-json, missing-key, bad-type, bad-value, indivisible, unknown-model-type,
/// unsupported-model, unknown-key. Warnings: unknown-model-type, multimodal, quantized.
HfConfig parse_hf_config(std::string_view text, std::string_view file, const HfConfigOptions& options = {});

}  // namespace automodel::arch
