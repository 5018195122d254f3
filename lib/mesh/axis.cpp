#include "mesh/axis.h"

#include <utility>

namespace automodel::mesh {
namespace {

constexpr std::array<std::string_view, kAxisCount> kNames = {"pp", "dp_replicate", "dp_shard", "cp",
                                                             "tp", "ep_shard",     "ep",       "gtp_remat"};
constexpr std::array<std::pair<std::string_view, AxisSet>, 3> kFlattened = {
    {{"dp", kDp}, {"dp_shard_cp", kDpShardCp}, {"dp_cp", kDpCp}}};

std::optional<AxisSet> parse_one(std::string_view text) {
  for (std::size_t i = 0; i < kAxisCount; ++i)
    if (kNames[i] == text) return AxisSet(static_cast<Axis>(i));
  for (const auto& [name, axes] : kFlattened)
    if (name == text) return axes;
  return std::nullopt;
}

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

std::optional<AxisSet> parse_axes(std::string_view text) {
  AxisSet out;
  while (true) {
    const auto plus = text.find('+');
    const auto one = parse_one(text.substr(0, plus));
    if (!one) return std::nullopt;
    out = out | *one;
    if (plus == std::string_view::npos) return out;
    text.remove_prefix(plus + 1);
  }
}

}  // namespace automodel::mesh
