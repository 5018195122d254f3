// The axes of the rank grid, and sets of axes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace automodel::mesh {

/// One axis of a rank grid. kDpReplicate and kDpShard together are data parallelism. kEpShard and kEp are a second
/// factorisation of the ranks of one pipeline stage, used for experts. kWeightRemat is Megatron's "gtp_remat".
enum class Axis : std::uint8_t { kPp, kDpReplicate, kDpShard, kCp, kTp, kEpShard, kEp, kWeightRemat };
inline constexpr std::size_t kAxisCount = 8;

constexpr std::size_t index_of(Axis axis) {
  return static_cast<std::size_t>(axis);
}

/// A set of axes. A set with several axes acts as one flattened axis whose ranks are numbered in grid order.
class AxisSet {
 public:
  constexpr AxisSet() = default;
  // Implicit, so that call sites can pass a single axis.
  constexpr AxisSet(Axis axis) : bits_(bit(axis)) {}  // NOLINT(google-explicit-constructor)
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (const Axis axis : axes) bits_ = static_cast<std::uint8_t>(bits_ | bit(axis));
  }
  constexpr bool contains(Axis axis) const { return (bits_ & bit(axis)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr AxisSet operator|(AxisSet other) const { return of(bits_ | other.bits_); }
  constexpr AxisSet operator-(AxisSet other) const { return of(bits_ & ~other.bits_); }
  constexpr bool operator==(const AxisSet&) const = default;

 private:
  static constexpr std::uint8_t bit(Axis axis) { return static_cast<std::uint8_t>(1U << index_of(axis)); }
  static constexpr AxisSet of(int bits) {
    AxisSet out;
    out.bits_ = static_cast<std::uint8_t>(bits);
    return out;
  }
  std::uint8_t bits_ = 0;
};

inline constexpr AxisSet kDp = {Axis::kDpReplicate, Axis::kDpShard};
inline constexpr AxisSet kDpShardCp = {Axis::kDpShard, Axis::kCp};
inline constexpr AxisSet kDpCp = {Axis::kDpReplicate, Axis::kDpShard, Axis::kCp};
/// Every rank of one pipeline stage.
inline constexpr AxisSet kStageRanks = {Axis::kDpReplicate, Axis::kDpShard, Axis::kCp, Axis::kTp};
/// Every rank.
inline constexpr AxisSet kAllRanks = kStageRanks | Axis::kPp;

/// "pp", "dp_replicate", "dp_shard", "cp", "tp", "ep_shard", "ep", "gtp_remat".
std::string_view name_of(Axis axis);
/// The name of an axis or of a known flattened axis ("dp", "dp_shard_cp", "dp_cp"); for any other set the axis names
/// joined by '+', slowest axis first.
std::string name_of(AxisSet axes);

}  // namespace automodel::mesh
