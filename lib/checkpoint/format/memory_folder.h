// The folder for checkpoint copies in a host's memory. They outlive a run's processes since it is on an in-memory file
// system.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace automodel::checkpoint {

/// $AUTOMODEL_MEMORY_DIR, else /dev/shm.
std::filesystem::path memory_root();
/// "automodel-USER-HASH" below memory_root(); HASH depends on the absolute path of the run's folder.
std::filesystem::path memory_folder(const std::filesystem::path& run_folder);
/// Creates it, accessible only to this user, if it does not exist. Throws Error (kCheckpoint).
void make_memory_folder(const std::filesystem::path& folder);
/// Bytes that `folder` can hold: free space plus what it already holds. Empty if this user cannot use it as a folder.
std::optional<std::uint64_t> memory_room(const std::filesystem::path& folder);

}  // namespace automodel::checkpoint
