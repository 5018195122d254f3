#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "schedule/lower.h"

namespace automodel::schedule {
namespace {

/// Up to four stages, packed into 64 bits so that the many lists of a row are cheap to copy.
class StageList {
 public:
  static constexpr std::size_t kCapacity = 4;

  std::size_t size() const { return size_; }
  Stage operator[](std::size_t i) const { return {static_cast<std::int32_t>(bits_ >> (kBits * i) & kMask)}; }
  /// Index of `stage`; size() if it is not in the list.
  std::size_t find(Stage stage) const {
    std::size_t i = 0;
    while (i < size_ && (*this)[i] != stage) ++i;
    return i;
  }
  bool contains(Stage stage) const { return find(stage) != size_; }
  /// Compares as sets.
  bool same_stages(const StageList& other) const {
    if (size_ != other.size_) return false;
    for (std::size_t i = 0; i < size_; ++i)
      if (!other.contains((*this)[i])) return false;
    return true;
  }
  void shorten(std::size_t size) { size_ = std::min(size_, size); }
  /// Inserts `stage` at the front: the elements before index `at` shift back by one, overwriting the one at `at`.
  void put_first(Stage stage, std::size_t at) {
    const std::uint64_t before = (std::uint64_t{1} << (kBits * at)) - 1;
    const std::uint64_t after = at + 1 < kCapacity ? ~std::uint64_t{0} << (kBits * (at + 1)) : 0;
    bits_ = (bits_ & after) | (bits_ & before) << kBits | static_cast<std::uint64_t>(stage.value);
    size_ = std::max(size_, at + 1);
  }

 private:
  static constexpr std::size_t kBits = 16;
  static constexpr std::uint64_t kMask = 0xFFFF;
  static_assert(kMaxStages - 1 <= kMask && kCapacity * kBits == 64);

  std::uint64_t bits_ = 0;
  std::size_t size_ = 0;
};

/// The distinct stages that a row uses next, in order of next use. Built from the end of the row by moving the stages
/// of each slot to the front. Stages beyond the capacity can only move further back, so they are dropped.
class NextStages {
 public:
  void move_to_front(const Slot& slot, std::size_t step) {
    const auto actions = slot.actions();
    for (std::size_t i = actions.size(); i-- > 0;) move_to_front(actions[i].stage(), step);
  }
  /// All stages of the upcoming slots up to the one in which the kWanted-th distinct stage appears. If that slot is an
  /// overlapped pair, this can be one stage more than kWanted.
  StageList wanted() const {
    StageList out = kept_;
    if (out.size() > kWanted && used_at_[kWanted - 1] != used_at_[kWanted]) out.shorten(kWanted);
    return out;
  }

 private:
  static constexpr std::size_t kWanted = 3;

  void move_to_front(Stage stage, std::size_t step) {
    const std::size_t at = std::min(kept_.find(stage), StageList::kCapacity - 1);
    kept_.put_first(stage, at);
    for (std::size_t i = at; i > 0; --i) used_at_[i] = used_at_[i - 1];
    used_at_[0] = step;
  }

  StageList kept_;
  std::array<std::size_t, StageList::kCapacity> used_at_ = {};
};

/// From `step` on, these stages are kept gathered; listed in the order in which they are gathered.
struct Change {
  std::size_t step = 0;
  StageList wanted = {};
};

/// The last change first.
std::vector<Change> changes_of(const Row& row) {
  std::vector<Change> changes;
  NextStages next;
  for (std::size_t step = row.size(); step-- > 0;) {
    if (row[step].is_bubble()) continue;
    next.move_to_front(row[step], step);
    const StageList wanted = next.wanted();
    if (changes.empty() || !wanted.same_stages(changes.back().wanted)) changes.emplace_back();
    changes.back().step = step;
    changes.back().wanted = wanted;
  }
  return changes;
}

}  // namespace

Row add_unshard_reshard(const Row& row) {
  std::vector<Change> changes = changes_of(row);
  Row out;
  out.reserve(row.size() + 2 * StageList::kCapacity * (changes.size() + 1));
  StageList gathered;
  const auto change_to = [&](const StageList& wanted) {
    std::vector<Stage> freed;
    for (std::size_t i = 0; i < gathered.size(); ++i)
      if (!wanted.contains(gathered[i])) freed.push_back(gathered[i]);
    std::sort(freed.begin(), freed.end());
    for (const Stage stage : freed) out.emplace_back(make_action(Op::kReshard, stage));
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (!gathered.contains(wanted[i])) out.emplace_back(make_action(Op::kUnshard, wanted[i]));
    gathered = wanted;
  };
  for (std::size_t step = 0; step < row.size(); ++step) {
    if (row[step].is_bubble()) continue;
    if (!changes.empty() && changes.back().step == step) {
      change_to(changes.back().wanted);
      changes.pop_back();
    }
    out.push_back(row[step]);
  }
  change_to({});
  return out;
}

}  // namespace automodel::schedule
