// Where Hugging Face's programs keep what they have downloaded.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace automodel::rows {

/// HF_HUB_CACHE (or HUGGINGFACE_HUB_CACHE), else hub in HF_HOME, else huggingface/hub in the user's cache folder.
std::filesystem::path hub_cache();
/// HF_DATASETS_CACHE, else datasets in HF_HOME: what `load_dataset` has prepared.
std::filesystem::path prepared_cache();

/// A repository's snapshot of a revision (a branch, a ref or a commit; default main): the folder, or empty. `kind` is
/// "datasets" or "models". Letter case of the name does not matter, as it does not on the hub.
std::filesystem::path find_snapshot(const std::string& kind, const std::string& name,
                                    const std::optional<std::string>& revision);

/// What `load_dataset` has prepared of a data set, the newest first: folders with dataset_info.json.
std::vector<std::filesystem::path> find_prepared(const std::string& name);

/// Whether `text` can be the name of a repository: "squad", "rajpurkar/squad".
bool is_repository_name(const std::string& text);

}  // namespace automodel::rows
