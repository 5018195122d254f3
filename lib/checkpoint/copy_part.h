// One rank's part of a checkpoint that is distributed over hosts: which byte ranges of which files, and their
// checksums. A host keeps the parts of some ranks; the files in its folder have their full length, with holes for the
// other parts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "checkpoint/piece_files.h"
#include "comm/communicator.h"

namespace automodel::checkpoint {

struct CopyPart {
  int rank = 0;                               ///< rank that wrote it
  std::vector<Extent> extents = {};           ///< sorted by file and offset
  std::vector<std::uint32_t> checksums = {};  ///< one per file: PiecewiseCrc32c::state() over its extents
  std::uint64_t bytes() const;
};

/// The tensor files in a manifest, sorted by name; and its other files.
std::vector<ManifestEntry> tensor_files(const Manifest& manifest);
std::vector<ManifestEntry> other_files(const Manifest& manifest);

/// Records in the folder that it holds this part. Call after the part's bytes are written.
void write_record(const std::filesystem::path& copy, const CopyPart& part);
/// The ranks whose parts the folder holds, according to its records.
std::vector<int> recorded_ranks(const std::filesystem::path& copy);
/// Reads what write_record() recorded. Throws Error (kCheckpoint: cannot-read, checkpoint-damaged, safetensors-...).
CopyPart read_record(const std::filesystem::path& copy, int rank, const std::vector<ManifestEntry>& files);
/// The same, after reading back all bytes of the part. Also throws if they differ from what was written.
CopyPart read_verified(const std::filesystem::path& copy, int rank, const std::vector<ManifestEntry>& files);

/// A part that this rank sends to another rank, which stores it in its own folder.
struct Outgoing {
  const CopyPart* part = nullptr;
  int to = 0;  ///< rank in the group
};
struct Incoming {
  int rank = 0;  ///< rank whose part it is
  int from = 0;  ///< rank in the group
};
/// Performs all exchanges concurrently. Two ranks that exchange several parts must list them in the same order. Returns
/// the received parts in the order of `incoming`, recorded in the folder. A rank that fails to read or write still
/// takes part to the end, so that the others do not hang, and then throws Error (kCheckpoint).
std::vector<CopyPart> exchange_parts(comm::Communicator& group, const std::filesystem::path& copy,
                                     const std::vector<ManifestEntry>& files, const std::vector<Outgoing>& outgoing,
                                     const std::vector<Incoming>& incoming);

}  // namespace automodel::checkpoint
