// Where Hugging Face's tools cache downloads.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace automodel::rows {

/// HF_HUB_CACHE (or HUGGINGFACE_HUB_CACHE), else hub under HF_HOME, else huggingface/hub in the user's cache folder.
std::filesystem::path hub_cache();
/// HF_DATASETS_CACHE, else datasets under HF_HOME: the data sets that `load_dataset` has prepared.
std::filesystem::path prepared_cache();

/// The snapshot folder of a repository at a revision (a branch, ref or commit; default main), or empty. `kind` is
/// "datasets" or "models". Names are case-insensitive, as on the hub.
std::filesystem::path find_snapshot(const std::string& kind, const std::string& name,
                                    const std::optional<std::string>& revision);

/// What `load_dataset` has prepared of a data set, newest first: folders that contain dataset_info.json.
std::vector<std::filesystem::path> find_prepared(const std::string& name);

/// Whether `text` is a valid repository name: "squad", "rajpurkar/squad".
bool is_repository_name(const std::string& text);

}  // namespace automodel::rows
