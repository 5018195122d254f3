// The configuration files of a saved model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/dtype.h"
#include "plan/model_choice.h"

namespace automodel::plan {

/// The ids with which texts begin and end, and that rows are padded with.
struct TextEnds {
  std::optional<std::int32_t> bos = {}, eos = {};
  std::optional<std::int32_t> pad = {};  ///< taken by a classifier's configuration only
};

/// config.json for a saved folder: the model's own, completed with what transformers needs to open it. `ends` are taken
/// where the configuration has none.
std::string saved_config(const ModelChoice& model, DType stored, const TextEnds& ends);

/// generation_config.json for a model whose folder has none: the ids with which `config_text`, a config.json, says that
/// texts begin and end, as transformers would derive them. Empty if there are none.
std::string saved_generation_config(const ModelChoice& model, const std::string& config_text);

}  // namespace automodel::plan
