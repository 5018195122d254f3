// Names on the Hugging Face hub, and where its tools cache downloads.
#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace automodel {

enum class HubKind { kModel, kDataset };

/// Whether `text` is a valid repository name: "squad", "rajpurkar/squad".
bool is_repository_name(std::string_view text);

/// ": 'hf download Qwen/Qwen3-0.6B' does that", what brings a repository into the local cache, for a name of the form
/// OWNER/NAME; "" for any other.
std::string download_advice(std::string_view name, const std::optional<std::string>& revision,
                            HubKind kind = HubKind::kModel);

/// The variables that say where the caches are, beside XDG_CACHE_HOME and HOME, which are about more than these.
inline constexpr std::array kHubVariables = {"HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_DATASETS_CACHE"};

/// HF_HUB_CACHE (or HUGGINGFACE_HUB_CACHE), else hub under HF_HOME, else huggingface/hub in XDG_CACHE_HOME, else in
/// ~/.cache.
std::filesystem::path hub_cache();
/// HF_DATASETS_CACHE, else datasets under HF_HOME: the data sets that `load_dataset` has prepared.
std::filesystem::path prepared_cache();

/// The snapshot folder of a repository at a revision (a branch, ref or commit; default main) in a cache, or empty.
/// Names are case-insensitive, as on the hub.
std::filesystem::path find_snapshot(HubKind kind, const std::string& name, const std::optional<std::string>& revision,
                                    const std::filesystem::path& cache = hub_cache());

/// What `load_dataset` has prepared of a data set, newest first: folders that contain dataset_info.json.
std::vector<std::filesystem::path> find_prepared(const std::string& name);

}  // namespace automodel
