#include "mesh/axis.h"

#include <utility>

namespace automodel::mesh {
namespace {

constexpr std::array<std::string_view, kAxisCount> kNames = {"pp", "dp_replicate", "dp_shard", "cp",
                                                             "tp", "ep_shard",     "ep",       "gtp_remat"};
constexpr std::array<std::pair<std::string_view, AxisSet>, 3> kFlattened = {
    {{"dp", kDp}, {"dp_shard_cp", kDpShardCp}, {"dp_cp", kDpCp}}};

}  // namespace

std::string_view name_of(Axis axis) {
  return kNames[index_of(axis)];
}

std::string name_of(AxisSet axes) {
  for (const auto& [name, flattened] : kFlattened)
    if (flattened == axes) return std::string(name);
  std::string out;
  for (std::size_t i = 0; i < kAxisCount; ++i) {
    if (!axes.contains(static_cast<Axis>(i))) continue;
    if (!out.empty()) out += '+';
    out += kNames[i];
  }
  return out;
}

}  // namespace automodel::mesh
