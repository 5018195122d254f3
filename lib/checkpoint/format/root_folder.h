// A run's checkpoint folder: which checkpoints are complete, how a new one is committed, which are deleted.
//
// A checkpoint is written as ".NAME.partial" in the same folder, its manifest last, and then renamed to NAME. A folder
// with a checkpoint's name is therefore complete; one without a manifest is not ours and is skipped. Before deletion a
// folder is renamed to ".NAME.deleted", so that a half-deleted one cannot be chosen either.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"

namespace automodel::checkpoint {

/// The two numbers in "epoch_0_step_99".
struct CheckpointName {
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  bool operator==(const CheckpointName&) const = default;
};
std::string to_text(const CheckpointName& name);
std::optional<CheckpointName> parse_checkpoint_name(std::string_view text);

struct ListedCheckpoint {
  CheckpointName name = {};
  std::filesystem::path path = {};
  bool complete = false;  ///< has a manifest
};

inline constexpr const char* kLatest = "LATEST";
inline constexpr const char* kLowestLoss = "LOWEST_VAL";

/// All checkpoints in the folder, sorted by step, then epoch. None if the folder does not exist. Throws Error
/// (cannot-read) if it cannot be read: a run that saw none would begin anew.
std::vector<ListedCheckpoint> list_checkpoints(const std::filesystem::path& root);
/// The same, but none if the folder cannot be read: for what may be left undone, such as deleting old ones.
std::vector<ListedCheckpoint> seen_checkpoints(const std::filesystem::path& root);
/// The target of LATEST if it is complete, else the complete checkpoint with the highest step, or an empty path.
std::filesystem::path newest_checkpoint(const std::filesystem::path& root);
/// The same of those that seen_checkpoints() returns.
std::filesystem::path newest_seen(const std::filesystem::path& root);

/// Where a checkpoint of this name is written until it is complete.
std::filesystem::path partial_path(const std::filesystem::path& root, const std::string& name);
/// Removes half-written and half-deleted folders of earlier runs. Never throws; what cannot be removed remains.
void remove_leftovers(const std::filesystem::path& root);
/// Atomically gives a written and verified checkpoint its name; an existing one with that name is replaced atomically
/// too if the file system can exchange names. Throws Error (kCheckpoint, cannot-write).
void commit(const std::filesystem::path& root, const std::string& name);
/// Atomically points `link` at the checkpoint `name`. Throws Error (kCheckpoint, cannot-write).
void set_link(const std::filesystem::path& root, const char* link, const std::string& name);
/// The target of a link, or "".
std::string link_target(const std::filesystem::path& root, const char* link);
/// Deletes the oldest complete checkpoints until `keep` are left, not counting the one with the lowest loss. That one
/// and the target of LATEST are always kept. Returns the names of the deleted ones; failure to delete one is not an
/// error.
std::vector<std::string> retain(const std::filesystem::path& root, int keep);

}  // namespace automodel::checkpoint
