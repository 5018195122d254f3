// Checkpoints in host memory: each rank's part is on its own host and, if there are several hosts, on one other host. A
// copy has the same files as any checkpoint, with holes for the parts that the host does not keep.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/background.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/memory_hosts.h"
#include "checkpoint/piece_files.h"
#include "comm/world.h"

namespace automodel::checkpoint {

struct CopyRequest {
  std::string name = {};  ///< "epoch_0_step_99"
  std::vector<TensorPart> parts = {};
  std::vector<std::pair<std::string, std::string>> texts = {};  ///< additional files; the same on all ranks
  RunIdentity run = {};
};

struct CopyReport {
  std::string name = {};
  std::uint64_t bytes = 0;  ///< written by this rank, for itself and for others
  double seconds = 0;
};

/// At most one copy is in progress. The previous copy is removed once every host has all of its parts of the new one.
class MemoryCopies {
 public:
  using Say = std::function<void(const std::string&)>;

  /// Collective. `run_folder` is the run's folder, which the copies belong to: copies of a folder that was since
  /// removed are ignored. Throws Error (kCheckpoint, no-memory-folder).
  MemoryCopies(comm::World& world, const std::filesystem::path& run_folder);

  const std::filesystem::path& root() const { return root_; }
  const MemoryHosts& hosts() const { return hosts_; }

  /// `mine`: bytes of this rank's part. Throws Error (kCheckpoint, memory-copies-too-large) on all ranks if any host
  /// lacks room for two copies of everything it keeps.
  void check_room(std::uint64_t mine);
  /// `live`: the pieces change with the next step, so they are written before this returns; everything else is done in
  /// the background. Waits for the previous copy. Throws Error (kCheckpoint) on all ranks.
  void save(CopyRequest request, bool live);
  std::optional<CopyReport> finish() { return work_.take(); }
  std::optional<CopyReport> poll() { return work_.poll(); }

  /// The newest copy of a step after `newer_than` whose parts are all on some host: verified, and completed on every
  /// host with parts that others keep. `say` is told why a newer one cannot be used. Collective.
  std::optional<std::filesystem::path> find(const RunIdentity& run, std::int64_t newer_than, const Say& say);
  /// Removes all copies but this one; "": all.
  void keep_only(const std::string& name) const;
  /// Removes everything; call after a successful run.
  void remove() const;

 private:
  /// The parts of a copy that a host has.
  struct Holding {
    int host = 0;
    std::vector<int> parts = {};
  };
  /// A copy of which some hosts have parts.
  struct Candidate {
    std::string name = {};
    std::string digest = {};  ///< of its manifest: copies with the same name may stem from different attempts
    int ranks = 0;
    std::vector<Holding> holdings = {};
    Holding* on(int host);
    /// A rank whose part no host has; empty if the copy is complete.
    std::optional<int> missing() const;
    /// The nearest host with the part, searching backwards from the one before `host`.
    int source(int part, int host, int hosts) const;
  };
  std::vector<Candidate> candidates(std::int64_t newer_than);
  /// Makes the copy whole on every host; returns the reason if that is not possible, else "".
  std::string complete(Candidate& candidate, const RunIdentity& run);
  std::string verify(Candidate& candidate, const std::vector<ManifestEntry>& files);
  void bring_together(const Candidate& candidate, const std::vector<ManifestEntry>& files, const std::string& texts);

  comm::World& world_;
  std::filesystem::path run_folder_, root_;
  std::string owner_;
  MemoryHosts hosts_;
  std::shared_ptr<comm::Communicator> group_;
  Background<CopyReport> work_;  // last: its destructor waits for the task, which uses the other members
};

}  // namespace automodel::checkpoint
