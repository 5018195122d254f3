// What copies in memory share between making and finding them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/copy_part.h"

namespace automodel::checkpoint {

inline constexpr const char* kOwnerName = ".copies";  ///< in the run's folder: which run this is
inline constexpr const char* kMarkName = "copy";      ///< in a copy: the run, and how many ranks made it
std::string owner_text(const std::string& owner, int ranks);

/// Removes every copy of a host but one.
void remove_copies(const std::filesystem::path& root, const std::string& but);

/// As exchange_parts; throws on all ranks what one throws.
std::vector<CopyPart> exchange_together(comm::Communicator& group, const std::filesystem::path& copy,
                                        const std::vector<ManifestEntry>& files, const std::vector<Outgoing>& outgoing,
                                        const std::vector<Incoming>& incoming);

}  // namespace automodel::checkpoint
