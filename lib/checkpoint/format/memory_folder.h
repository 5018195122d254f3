// Where the copies in a host's memory lie that outlive the processes of a run: a folder of a file system in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace automodel::checkpoint {

/// $AUTOMODEL_MEMORY_DIR, else /dev/shm.
std::filesystem::path memory_root();
/// "automodel-USER-HASH" in it, by the absolute path of the run's folder.
std::filesystem::path memory_folder(const std::filesystem::path& run_folder);
/// Bytes that `folder` may hold: what is free and what it holds already. Empty where it can be no folder of this user.
std::optional<std::uint64_t> memory_room(const std::filesystem::path& folder);

}  // namespace automodel::checkpoint
