// manifest.json: every file of a checkpoint with its size and checksum, and which run the checkpoint belongs to.
// Written last: without it, a checkpoint is incomplete.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"

namespace automodel::checkpoint {

struct ManifestEntry {
  std::string file = {};  ///< path relative to the checkpoint
  std::uint64_t size = 0;
  std::uint32_t checksum = 0;  ///< CRC-32C of the whole file
  bool operator==(const ManifestEntry&) const = default;
};

/// One component of a run's identity: a human-readable name and a digest of its content.
struct IdentityPart {
  std::string name = {};
  std::string digest = {};
  bool operator==(const IdentityPart&) const = default;
};

/// The run that a checkpoint belongs to. A run with a different identity does not resume from it unless asked to.
struct RunIdentity {
  IdentityPart model = {};
  IdentityPart data = {};
  IdentityPart method = {};  ///< what is trained: all parameters, or adapters of some rank
  bool operator==(const RunIdentity&) const = default;
};

/// "the model is A, the checkpoint's is B" for each component that differs; empty if it is the same run.
std::vector<std::string> differences(const RunIdentity& here, const RunIdentity& there);

struct Manifest {
  std::vector<ManifestEntry> files = {};
  std::optional<RunIdentity> run = {};  ///< absent in checkpoints of version 0.1.0
  std::uint64_t bytes() const;
  bool operator==(const Manifest&) const = default;
};

inline constexpr const char* kManifestName = "manifest.json";

std::string to_json(const Manifest& manifest);
/// Problems (reported for `file`): manifest-syntax, also for a path that leaves the checkpoint.
std::optional<Manifest> parse_manifest(std::string_view text, std::string_view file, Diagnostics& problems);
/// Reads a checkpoint's manifest. Problems: cannot-read (also if missing: the checkpoint is incomplete),
/// manifest-syntax.
std::optional<Manifest> read_manifest(const std::filesystem::path& checkpoint, Diagnostics& problems);

/// Checks only names and sizes, without reading content. Problems: checkpoint-damaged.
void check_sizes(const std::filesystem::path& checkpoint, const Manifest& manifest, Diagnostics& problems);
/// Reads a file and verifies its checksum. Problems: checkpoint-damaged, cannot-read.
void check_content(const std::filesystem::path& checkpoint, const ManifestEntry& entry, Diagnostics& problems);
/// CRC-32C of a file. Problems: cannot-read.
std::optional<std::uint32_t> checksum_of(const std::filesystem::path& path, Diagnostics& problems);

}  // namespace automodel::checkpoint
