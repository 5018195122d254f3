#include "plan/saved_config.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "config/node.h"
#include "config/value.h"

namespace automodel::plan {

std::string saved_config(const ModelChoice& model, DType stored, const TextEnds& ends) {
  Diagnostics problems;
  auto value = config::to_value(config::parse_yaml(model.config_text, "config.json", problems));  // JSON is YAML
  AUTOMODEL_CHECK(problems.empty() && value.map() != nullptr, "a configuration that was read before");
  if (value.find("architectures") == nullptr)
    value.set("architectures", config::Value::List{config::Value(model.spec.architecture)});
  const std::string name(automodel::name_of(stored));
  value.set("dtype", name);
  value.set("torch_dtype", name);
  value.set("tie_word_embeddings", model.spec.tied_embeddings);
  for (const auto& [key, id] : {std::pair("bos_token_id", ends.bos), std::pair("eos_token_id", ends.eos)})
    if (id && value.find(key) == nullptr) value.set(key, std::int64_t{*id});
  // The audio tower is neither read nor trained, so its weights are not saved either.
  if (model.spec.vision && value.find("audio_config") != nullptr) value.set("audio_config", config::Value());
  // transformers' classifiers find the last token of a padded row by it.
  if (model.spec.classes > 0 && !model.spec.pad_token && ends.pad) value.set("pad_token_id", std::int64_t{*ends.pad});
  return config::to_json(value, 2) + "\n";
}

std::string saved_generation_config(const ModelChoice& model, const std::string& config_text) {
  std::error_code error;
  if (!model.folder.empty() && std::filesystem::exists(model.folder / "generation_config.json", error)) return "";
  Diagnostics problems;
  const auto config = config::to_value(config::parse_yaml(config_text, "config.json", problems));
  config::Value out = config::Value::Map{};
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (const auto* id = config.find(key); id != nullptr && !id->is_null()) out.set(key, *id);
  return out.map()->empty() ? "" : config::to_json(out, 2) + "\n";
}

}  // namespace automodel::plan
