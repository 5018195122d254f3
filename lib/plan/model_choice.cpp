#include "plan/model_choice.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "arch/families.h"
#include "arch/hf_config.h"
#include "base/file_text.h"
#include "base/find_file.h"
#include "base/hub.h"
#include "base/spelling.h"
#include "config/objective.h"
#include "plan/catalogue.h"

namespace automodel::plan {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

/// Names of the folders in `folder` that hold a model.
std::vector<std::string> folders_beside(const fs::path& folder) {
  std::vector<std::string> out;
  std::error_code error;
  for (fs::directory_iterator it(folder.empty() ? "." : folder, error), end; !error && it != end; it.increment(error))
    if (fs::is_regular_file(it->path() / "config.json", error)) out.push_back(it->path().filename().native());
  return out;
}

/// A model's snapshot in the Hugging Face cache, or an empty path.
fs::path in_cache(const std::string& name, const config::ModelConfig& model) {
  const auto& own = model.cache_dir();
  const auto snapshot =
      find_snapshot(HubKind::kModel, name, model.revision(), own && !own->empty() ? fs::path(*own) : hub_cache());
  return is_there(snapshot / "config.json") ? snapshot : fs::path();
}

/// A key of the decoder that NeMo AutoModel's classes of models with pictures take as an argument, beside text_config.
constexpr std::string_view kExtraLayers = "num_nextn_predict_layers";

/// `text` with the top-level keys of `overrides` and those of its text_config applied; text that is not a JSON object
/// is returned unchanged. Like transformers, text_config sets keys of the decoder where they are.
std::string with_overrides(const std::string& text, const config::Value& overrides) {
  if (overrides.map() == nullptr || overrides.map()->empty()) return text;
  Diagnostics ignored;
  auto value = config::to_value(config::parse_yaml(text, "config.json", ignored));  // JSON is YAML
  if (!ignored.empty() || value.map() == nullptr) return text;
  for (const auto& [key, item] : *overrides.map()) {
    if (key == kExtraLayers && arch::nests_text(text)) {
      auto decoder = *value.find("text_config");
      decoder.set(key, item);
      value.set("text_config", decoder);
      continue;
    }
    const auto* part = value.find(key);
    if (key != "text_config" || item.map() == nullptr) {
      value.set(key, item);
      continue;
    }
    if (part != nullptr && part->map() != nullptr) {
      auto decoder = *part;
      for (const auto& [inner, each] : *item.map()) decoder.set(inner, each);
      value.set(key, decoder);
    }
    if (!arch::nests_text(text))
      for (const auto& [inner, each] : *item.map()) value.set(inner, each);
  }
  return config::to_json(value, 2);
}

/// Refuses keys for RoPE that would change nothing, or more than they say: `file` is where they are applied.
void check_rope(const config::Value& file, const config::Value& overrides, const std::string& section,
                Located& report) {
  constexpr std::array<std::string_view, 2> kMaps = {"rope_scaling", "rope_parameters"};
  const auto rope = std::ranges::find_if(kMaps, [&](auto key) {
    const auto* found = file.find(key);
    return found != nullptr && found->map() != nullptr;
  });
  if (overrides.map() == nullptr || rope == kMaps.end()) return;
  const auto& stored = *file.find(*rope);
  for (const auto key : kMaps) {
    const auto* given = overrides.find(key);
    if (given == nullptr) continue;
    const bool beside = overrides.find("rope_theta") != nullptr || file.find("rope_theta") != nullptr;
    const bool typed = given->map() == nullptr || given->find("rope_type") != nullptr || given->find("type") != nullptr;
    for (const auto& [lost, kept] : {std::pair("rope_theta", beside), std::pair("rope_type", typed)})
      if (stored.find(lost) != nullptr && !kept && given->find(lost) == nullptr)
        report.refuse("missing-key", section + "." + std::string(key))
            .says("{} replaces the model's {}, and its {} with it", key, *rope, lost)
            .hint("write '{}: {}' in {}, too", lost, config::to_json(*stored.find(lost)), key);
    return;
  }
  if (overrides.find("rope_theta") != nullptr && stored.find("rope_theta") != nullptr)
    report.refuse("unknown-key", section + ".rope_theta")
        .says("the model's rope_theta is in its {}", *rope)
        .hint("write {}.{} with all of its keys: {}", section, *rope, config::to_json(stored));
}

/// Refuses keys that the configuration `text` of the model has elsewhere: those of a decoder outside of text_config, or
/// a text_config where there is none.
void check_places(const std::string& text, const config::Value& overrides, const std::string& section,
                  const std::string& name, Located& report) {
  if (overrides.map() == nullptr) return;
  constexpr std::array<std::string_view, 6> kOfWhole = {"architectures", "model_type", "tie_word_embeddings",
                                                        "torch_dtype",   "dtype",      kExtraLayers};
  const bool nested = arch::nests_text(text);
  Diagnostics ignored;
  const auto file = config::to_value(config::parse_yaml(text, "", ignored));
  const bool flat = !nested && file.find("vision_config") == nullptr;
  const auto* decoder = file.find("text_config");
  const auto keys = config::hf_config_keys();
  check_rope(file, overrides, section, report);
  if (decoder != nullptr && overrides.find("text_config") != nullptr)
    check_rope(*decoder, *overrides.find("text_config"), section + ".text_config", report);
  for (const auto& [key, item] : *overrides.map()) {
    const auto path = section + "." + key;
    if (key == "text_config" && flat && item.map() != nullptr)
      report.refuse("unknown-key", path)
          .says("'{}' has no text_config: it is a language model", name)
          .hint("write its keys under {}", section);
    const bool of_decoder = nested && (std::ranges::find(keys, key) != keys.end() || decoder->find(key) != nullptr);
    if (of_decoder && std::ranges::find(kOfWhole, key) == kOfWhole.end())
      report.refuse("unknown-key", path)
          .says("the decoder of '{}' is described by its text_config", name)
          .hint("write {}.text_config.{}", section, key);
  }
}

/// Turns the problems' keys into recipe keys if the configuration is part of the recipe (`prefix` not empty).
Diagnostics rekeyed(Diagnostics problems, const std::string& prefix) {
  for (auto& problem : problems) {
    if (prefix.empty()) continue;
    problem.where = {};
    problem.key = problem.key.empty() ? prefix : prefix + "." + problem.key;
  }
  return problems;
}

/// Warns of keys that only matter for a model that is looked up in a Hugging Face cache.
void warn_of_cache_keys(const config::ModelConfig& model, Located& report) {
  const auto warn = [&](const std::string& key) {
    report.warn("no-effect", "model." + key)
        .says("the model is not looked up in a Hugging Face cache")
        .hint("remove it");
  };
  if (model.revision()) warn("revision");
  if (model.cache_dir()) warn("cache_dir");
}

/// The model's config.json `text` with the keys that the recipe sets in it.
std::string with_sections(std::string text, const config::ModelConfig& model, const std::string& name,
                          Located& report) {
  const auto apply = [&](const config::Value& overrides, const std::string& section) {
    check_places(text, overrides, section, name, report);
    text = with_overrides(text, overrides);
  };
  if (model.config()) apply(model.config()->overrides, "model.config");
  apply(model.overrides(), "model");
  if (model.text_config() && !model.text_config()->overrides->is_null())
    apply(config::Value::Map{{"text_config", model.text_config()->overrides()}}, "model");
  return text;
}

/// config.json of a classifier: its class, and a name for each of its classes unless there are as many.
std::string with_classes(const std::string& text, const arch::ModelSpec& spec) {
  Diagnostics ignored;
  const auto config = config::to_value(config::parse_yaml(text, "config.json", ignored));
  config::Value out = config::Value::Map{}, names = config::Value::Map{}, ids = config::Value::Map{};
  out.set("architectures", config::Value::List{config::Value(spec.architecture)});
  const auto* known = config.find("id2label");
  if (known == nullptr || known->map() == nullptr || known->map()->size() != static_cast<std::size_t>(spec.classes)) {
    for (int id = 0; id < spec.classes; ++id) {
      names.set(std::to_string(id), fmt::format("LABEL_{}", id));
      ids.set(fmt::format("LABEL_{}", id), id);
    }
    out.set("id2label", names);
    out.set("label2id", ids);
  }
  return with_overrides(text, out);
}

/// `choice` completed from the config.json `text`; `classes`: of a classifier, else 0.
std::optional<ModelChoice> choice_of(ModelChoice choice, std::string text, const std::string& file,
                                     const std::string& prefix, int classes, Located& report) {
  // Inline keys are checked strictly only for known families, whose keys are all known.
  Diagnostics ignored;
  const auto value = config::to_value(config::parse_yaml(prefix.empty() ? "" : text, file, ignored));
  const auto* type = value.find("model_type");
  const bool strict = type != nullptr && type->string() != nullptr && arch::find_family(*type->string()) != nullptr;
  auto parsed = arch::parse_hf_config(text, file, {.allow_unknown_family = true, .strict_keys = strict});
  report.refuse_all(rekeyed(std::move(parsed.errors), prefix));
  report.warn_all(rekeyed(std::move(parsed.warnings), prefix));
  if (!parsed.spec) return std::nullopt;
  choice.spec = std::move(*parsed.spec);
  if (classes > 0) {
    arch::make_classifier(choice.spec, classes);
    text = with_classes(text, choice.spec);
  }
  choice.layout = arch::layout_of(choice.spec);
  choice.config_text = std::move(text);
  return choice;
}

}  // namespace

std::optional<ModelChoice> choose_model(const config::LoadedRecipe& recipe, Located& report, bool training) {
  if (!recipe.recipe.model()) return std::nullopt;
  const auto& model = *recipe.recipe.model();
  const int classes = config::classes_of(recipe.recipe);
  ModelChoice choice;
  std::string text, file, prefix;
  const bool pretrained = model.pretrained_model_name_or_path().has_value();
  const auto& source = model.config();
  if (model.target() == config::ModelTarget::kSeq2Seq) {
    report.refuse("unsupported-model", "model._target_")
        .says("NeMoAutoModelForSeq2SeqLM: encoder-decoder models (T5) are not supported")
        .hint("a decoder-only language model is needed");
    return std::nullopt;
  }
  if (model.target() == config::ModelTarget::kGpt2) {
    choice.name = "gpt2";
    prefix = "model";
    text = "{\"model_type\": \"gpt2\", \"vocab_size\": 50257}";
    file = recipe.path;
    warn_of_cache_keys(model, report);
  } else if (!pretrained && source && source->inline_config) {
    choice.name = "inline";
    prefix = "model.config";
    text = config::to_json(*source->inline_config, 2);
    // A configuration class without sizes, or of a family that is only planned by them: the catalogue has its defaults.
    const auto& given = *source->inline_config;
    const auto* type = given.find("model_type");
    const bool sizes = given.find("hidden_size") != nullptr || given.find("n_embd") != nullptr;
    if (type != nullptr && type->string() != nullptr && (!sizes || arch::find_family(*type->string()) == nullptr))
      if (const auto defaults = find_in_catalogue(*type->string()))
        text = with_overrides(*defaults, *source->inline_config);
    file = recipe.path;
    warn_of_cache_keys(model, report);
  } else {
    const std::string key = pretrained ? "model.pretrained_model_name_or_path" : "model.config";
    choice.name = pretrained ? *model.pretrained_model_name_or_path() : source->path.value_or("");
    auto path = find_beside(choice.name, recipe.folder()).value_or(fs::path());
    if (!path.empty()) warn_of_cache_keys(model, report);
    if (path.empty()) path = in_cache(choice.name, model);
    if (auto known = path.empty() && !training ? find_in_catalogue(choice.name) : std::nullopt) {
      text = *std::move(known);
      file = "catalogue";
      text = with_sections(text, model, choice.name, report);
      return choice_of(std::move(choice), std::move(text), file, "", classes, report);
    }
    // A path that does not exist is an error, but a name may refer to a model on another machine.
    if (path.empty() && !training && !choice.name.starts_with('.') && !choice.name.starts_with('/')) {
      auto names = catalogue_names();
      const auto folders = folders_beside(recipe.folder());
      names.insert(names.end(), folders.begin(), folders.end());
      const auto near = nearest(choice.name, names);
      const auto download = download_advice(choice.name, model.revision());
      report.warn("model-unknown", key)
          .says(
              "the sizes of '{}' are unknown: mesh and schedule are planned, stages, "
              "memory and time are not",
              choice.name)
          .hint("{}give its configuration: '--model.config PATH' (a config.json or the folder with it){}",
                near.empty() ? "" : fmt::format("did you mean '{}'? otherwise ", near),
                download.empty() ? "" : "; nothing is downloaded" + download);
      return std::nullopt;
    }
    if (path.empty()) {
      report.refuse("model-not-found", key)
          .says("there is no model '{}' on this machine", choice.name)
          .hint(
              "a folder with config.json, a config.json, or a name in the local Hugging Face cache (HF_HOME, "
              "HF_HUB_CACHE); nothing is downloaded{}",
              download_advice(choice.name, model.revision()));
      return std::nullopt;
    }
    std::error_code error;
    const bool folder = fs::is_directory(path, error);
    choice.folder = folder ? path : path.parent_path();
    const auto config_file = folder ? path / "config.json" : path;
    if (!is_there(config_file)) {
      const bool adapters = is_there(path / "adapter_config.json");
      report.refuse("missing-file", key)
          .says("'{}' has no config.json{}", choice.name, adapters ? ": it holds adapters, not a model" : "")
          .hint("{}", adapters
                          ? "make a model of them and their base: 'automodel checkpoint export DIR NEW_FOLDER --merge'"
                          : "a model folder holds config.json and safetensors");
      return std::nullopt;
    }
    auto read = file_text(config_file, kMostDescription);
    if (!read.problem.empty()) {
      report.refuse("bad-json", key)
          .says("'{}' cannot be read: {}", config_file.native(), read.problem)
          .hint("a model's config.json has some kilobytes");
      return std::nullopt;
    }
    text = std::move(read.text);
    file = config_file.string();
  }
  choice.load_weights = pretrained && !config::leaves_weights(model.target()) && model.load_base_model();
  text = with_sections(text, model, choice.name, report);
  return choice_of(std::move(choice), std::move(text), file, prefix, classes, report);
}

}  // namespace automodel::plan
