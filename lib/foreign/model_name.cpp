#include "foreign/model_name.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "arch/towers.h"
#include "base/file_text.h"
#include "base/hub.h"
#include "base/json_depth.h"
#include "plan/catalogue.h"

namespace automodel::foreign {
namespace {

/// First parts of paths that people keep models in; no organisation of the hub has such a name.
constexpr auto kFolders =
    std::to_array<std::string_view>({"models", "model", "checkpoints", "saves", "outputs", "output", "data", "ckpt"});

bool is_path(const std::string& name) {
  if (name.starts_with('/') || name.starts_with('~') || name.starts_with('.')) return true;
  if (std::ranges::count(name, '/') > 1) return true;
  return std::ranges::find(kFolders, name.substr(0, name.find('/'))) != kFolders.end();
}

std::string_view last_part(std::string_view name) {
  while (name.ends_with('/')) name.remove_suffix(1);
  return name.substr(name.rfind('/') + 1);
}

/// The config.json of a local folder, if it is here; of no folder, none.
std::string config_of(const std::filesystem::path& folder) {
  const auto file = folder / "config.json";
  std::error_code error;
  if (folder.empty() || !std::filesystem::is_regular_file(file, error)) return "";
  auto read = file_text(file, kMostDescription);
  return nesting_of(read.text) > kDeepestJson ? "" : std::move(read.text);
}

/// Qwen's projector, the merger, is a module of its tower.
void name_towers(const std::string& config, Resolved& out, Findings& findings) {
  const auto towers = arch::towers_of(config, 1);
  if (!towers.empty() && !towers.front().fqn.empty()) {
    out.vision_tower = towers.front().fqn;
    const bool apart = towers.size() > 1 && towers[1].projects();
    out.projector = apart ? towers[1].fqn : out.vision_tower + ".merger";
    return;
  }
  for (auto* each : {&out.freeze_vision_tower, &out.freeze_projector, &out.freeze_language_model}) {
    if (*each && each->key.starts_with("freeze_"))
      findings.ignore(each->key, "the model's configuration describes no vision tower that is known here");
    *each = {};
  }
}

}  // namespace

std::string with_last_part(std::string_view last) {
  for (const auto name : plan::catalogue_names())
    if (last_part(name) == last) return std::string(name);
  return {};
}

namespace {

/// Its config.json, as far as it is here. Names the original of a mirror; notes a length above the model's limit.
std::string find_config(Resolved& out, Findings& findings) {
  if (!out.model || out.sizes) return {};
  const auto& name = *out.model;
  std::error_code ignored;
  if (is_path(name)) {
    if (!std::filesystem::exists(std::filesystem::path(name) / "config.json", ignored))
      findings.ask(fmt::format("{}: {}", out.model.key, name), "model is a local folder: sizes unknown without it",
                   "--model NAME");
    return config_of(name);
  }
  auto known = plan::find_in_catalogue(name);
  if (!known) {
    auto last = last_part(name);
    constexpr std::string_view kUnpacked = "-dequantized";
    if (last.ends_with(kUnpacked)) last.remove_suffix(kUnpacked.size());
    const auto original = with_last_part(last);
    if (original.empty()) return config_of(find_snapshot(HubKind::kModel, name, std::nullopt));
    out.catalogue_name = original;
    known = plan::find_in_catalogue(original);
    findings.note(fmt::format("{}: {}", out.model.key, name), "planned as " + original + ", of which it is a copy");
  }
  const auto config = nlohmann::json::parse(*known, nullptr, false);
  const auto limit = config.is_object() ? config.value("max_position_embeddings", std::int64_t{0}) : 0;
  if (limit > 0 && out.seq_length && *out.seq_length > limit) {
    out.sizes_exceeded = true;
    findings.note(fmt::format("{}: {}", out.seq_length.key, *out.seq_length),
                  fmt::format("above the model's {} positions, which the recipe raises", limit));
  }
  return *known;
}

}  // namespace

void name_model(Resolved& out, Findings& findings) {
  name_towers(find_config(out, findings), out, findings);
}

}  // namespace automodel::foreign
