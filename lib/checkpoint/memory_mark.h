// What creating and finding copies in memory share.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/copy_part.h"

namespace automodel::checkpoint {

inline constexpr const char* kOwnerName = ".copies";  ///< in the run's folder: identifies the run
inline constexpr const char* kMarkName = "copy";      ///< in a copy: the run it belongs to, and its number of ranks
std::string owner_text(const std::string& owner, int ranks);

/// Removes all copies on this host except `but`.
void remove_copies(const std::filesystem::path& root, const std::string& but);

/// exchange_parts, except that if it throws on one rank it throws on all of them.
std::vector<CopyPart> exchange_together(comm::Communicator& group, const std::filesystem::path& copy,
                                        const std::vector<ManifestEntry>& files, const std::vector<Outgoing>& outgoing,
                                        const std::vector<Incoming>& incoming);

}  // namespace automodel::checkpoint
