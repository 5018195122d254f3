// Which ranks share a host's memory, and which rank keeps whose copy.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/world.h"

namespace automodel::checkpoint {

class MemoryHosts {
 public:
  /// `places`: for each rank, a string that identifies the memory it sees.
  MemoryHosts(const std::vector<std::string>& places, int rank);

  int count() const { return static_cast<int>(ranks_.size()); }
  /// The host of a rank.
  int of(int rank) const { return of_[static_cast<std::size_t>(rank)]; }
  int mine() const { return of(rank_); }
  /// Ranks of a host, in world order.
  const std::vector<int>& ranks(int host) const { return ranks_[static_cast<std::size_t>(host)]; }
  /// This rank's index among the ranks of its host; the first does the work that is done once per host.
  int index() const { return index_; }
  bool first() const { return index_ == 0; }
  /// The rank on `host` responsible for work item `which` (round-robin).
  int worker(int host, int which) const {
    const auto& all = ranks(host);
    return all[static_cast<std::size_t>(which) % all.size()];
  }

  /// The rank on the next host that also keeps `rank`'s copy; empty if there is only one host.
  std::optional<int> keeper(int rank) const;
  /// The ranks whose copies `keeper` receives.
  std::vector<int> kept_by(int keeper) const;

 private:
  int rank_, index_ = 0;
  std::vector<int> of_ = {};
  std::vector<std::vector<int>> ranks_ = {};
};

/// The text of every rank, on every rank. Call on the main thread.
std::vector<std::string> texts_of_all(comm::World& world, const std::string& mine);

}  // namespace automodel::checkpoint
