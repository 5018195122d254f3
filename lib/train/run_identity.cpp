#include "train/run_identity.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>

#include <fmt/format.h>

#include "arch/counts.h"
#include "base/bytes.h"
#include "data/content_hash.h"
#include "data/open_dataset.h"

namespace automodel::train {
namespace {

namespace fs = std::filesystem;
using config::Value;

constexpr std::int64_t kSampledRows = 16;
constexpr std::size_t kNamedFiles = 3;
constexpr std::size_t kLongestValue = 60;

/// Keys of a config.json that change neither shapes nor values.
constexpr std::array kNotTheModel = {"torch_dtype",   "dtype",     "transformers_version",
                                     "_name_or_path", "use_cache", "architectures"};

/// The last component of a path, or of a name in the Hugging Face cache: folders may be moved.
std::string last_part(const std::string& path) {
  const auto end = path.find_last_not_of('/');
  return end == std::string::npos ? path : fs::path(path.substr(0, end + 1)).filename().string();
}

checkpoint::IdentityPart model_of(const plan::ModelChoice& model) {
  data::ContentHash hash;
  Diagnostics ignored;
  const auto config = config::to_value(config::parse_yaml(model.config_text, "config.json", ignored));
  std::map<std::string, std::string> keys;
  if (const auto* map = config.map())
    for (const auto& [key, value] : *map)
      if (std::ranges::find(kNotTheModel, key) == kNotTheModel.end()) keys[key] = config::to_json(value);
  for (const auto& [key, value] : keys) {
    hash.add(key);
    hash.add(value);
  }
  // Different weights are assumed to come from folders with different names.
  const auto name = last_part(model.name);
  if (model.load_weights) hash.add(name);
  return {fmt::format("{} ({}, {} parameters)", name, model.spec.model_type,
                      format_count(static_cast<double>(arch::count_parameters(model.spec).total()))),
          hash.hex()};
}

std::string files_of(const std::vector<std::string>& paths) {
  std::string out;
  for (std::size_t i = 0; i < std::min(paths.size(), kNamedFiles); ++i) out += " " + last_part(paths[i]);
  return paths.size() > kNamedFiles ? out + fmt::format(" and {} more", paths.size() - kNamedFiles) : out;
}

/// Identifies data by its rows, regardless of the files, tokenizer and template that produced them; random rows follow
/// from the seed.
checkpoint::IdentityPart data_of(const Setup& setup) {
  const auto& rows = setup.loader->dataset();
  const auto& section = *setup.recipe().dataset();
  const auto name =
      std::visit([](const auto& config) { return std::string(std::decay_t<decltype(config)>::targets[0]); }, section);
  data::ContentHash hash;
  hash.add(name);
  hash.add(std::to_string(rows.size()));
  const auto parts = rows.parts();
  std::vector<bool> random;
  config::each_part(section, [&](const auto& config) {
    random.push_back(std::is_same_v<decltype(config), const config::MockDatasetConfig&>);
  });
  for (std::size_t part = 0; part < parts.size(); ++part) {
    const auto& own = *parts[part].rows;
    if (parts.size() > 1) hash.add(fmt::format("{} of {}", parts[part].share, own.size()));
    data::Sample sample;
    const auto count = parts.size() == random.size() && random[part] ? 0 : std::min(own.size(), kSampledRows);
    for (std::int64_t i = 0; i < count; ++i) {
      own.read(count > 1 ? i * (own.size() - 1) / (count - 1) : 0, sample);
      const auto add = [&](const std::vector<std::int32_t>& ids) {
        hash.add({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(std::int32_t)});
      };
      add(sample.input_ids);
      add(sample.labels);
    }
  }
  return {fmt::format("{}{} ({} rows)", name, files_of(data::source_names(section)), rows.size()), hash.hex()};
}

checkpoint::IdentityPart method_of(const Setup& setup) {
  std::string name = "training of all parameters";
  if (const auto& frozen = setup.plan.frozen) name = fmt::format("training of all but {} parameters", frozen->elements);
  if (const auto& adapters = setup.plan.adapters) name = fmt::format("adapters of rank {}", adapters->spec.rank);
  if (!setup.plan.teacher) return {name, name};
  const auto& teacher = *setup.plan.teacher->model;
  name += ", distilled from " + last_part(teacher.name);
  return {name, name + " " + model_of(teacher).digest};
}

/// Sections that do not affect what is trained.
constexpr std::array<std::string_view, 7> kAside = {"checkpoint", "logging", "generation", "hardware",
                                                    "dist_env",   "device",  "recipe"};

std::string shortened(const Value& value) {
  const auto text = config::to_json(value);
  return text.size() <= kLongestValue ? text : text.substr(0, kLongestValue) + "...";
}

void compare(const Value& now, const Value& before, const std::string& path, std::vector<std::string>& out) {
  if (now == before) return;
  if (now.map() == nullptr || before.map() == nullptr) {
    if (config::to_json(now) != config::to_json(before))
      out.push_back(fmt::format("{} {} (was {})", path, shortened(now), shortened(before)));
    return;
  }
  for (const auto& [key, value] : *now.map()) {
    if (path.empty() && std::ranges::find(kAside, key) != kAside.end()) continue;
    if (const auto* old = before.find(key)) compare(value, *old, config::join_path(path, key), out);
  }
}

Value parsed(const std::string& json) {
  Diagnostics ignored;
  return config::to_value(config::parse_yaml(json, "", ignored));  // JSON is YAML
}

}  // namespace

checkpoint::RunIdentity identity_of(const Setup& setup) {
  return {model_of(*setup.plan.model), data_of(setup), method_of(setup)};
}

std::string recorded_recipe(const config::LoadedRecipe& loaded) {
  return config::to_json(config::shown_values(loaded));
}

std::vector<std::string> changed_keys(const std::string& now, const std::string& before) {
  std::vector<std::string> out;
  compare(parsed(now), parsed(before), "", out);
  return out;
}

}  // namespace automodel::train
