#include "checkpoint/memory_hosts.h"

#include <algorithm>
#include <map>

namespace automodel::checkpoint {

MemoryHosts::MemoryHosts(const std::vector<std::string>& places, int rank) : rank_(rank) {
  std::map<std::string, int> seen;
  for (int each = 0; each < static_cast<int>(places.size()); ++each) {
    const auto [host, added] = seen.try_emplace(places[static_cast<std::size_t>(each)], count());
    if (added) ranks_.emplace_back();
    of_.push_back(host->second);
    auto& ranks = ranks_[static_cast<std::size_t>(host->second)];
    if (each == rank) index_ = static_cast<int>(ranks.size());
    ranks.push_back(each);
  }
}

std::optional<int> MemoryHosts::keeper(int rank) const {
  if (count() == 1) return std::nullopt;
  const auto& mates = ranks(of(rank));
  const auto index = std::ranges::find(mates, rank) - mates.begin();
  return worker((of(rank) + 1) % count(), static_cast<int>(index));
}

std::vector<int> MemoryHosts::kept_by(int keeper_rank) const {
  std::vector<int> out;
  for (int rank = 0; rank < static_cast<int>(of_.size()); ++rank)
    if (keeper(rank) == keeper_rank) out.push_back(rank);
  return out;
}

std::vector<std::string> texts_of_all(comm::World& world, const std::string& mine) {
  constexpr char kEnd = '\x1e';  // record separator: occurs in no text
  std::string all;
  for (const auto& each : world.gather_text(mine)) all += each + kEnd;
  all = world.broadcast_text(all);
  std::vector<std::string> out;
  for (std::size_t begin = 0; begin < all.size();) {
    const auto end = all.find(kEnd, begin);
    out.push_back(all.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

}  // namespace automodel::checkpoint
