// Runs ranks in sweeps: in each sweep, every rank that can proceed takes one turn, in ascending order. A waiting rank
// costs nothing until it is woken, so the total cost is linear in the number of turns.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace automodel::schedule {

class Sweep {
 public:
  explicit Sweep(std::size_t ranks) : now_((ranks + 63) / 64, 0), next_(now_), waiting_(now_) {
    for (std::size_t rank = 0; rank < ranks; ++rank) set(next_, rank);
  }

  /// Calls `turn(rank)` until no rank can proceed. `turn` returns false if the rank has to wait for wake().
  template <class Turn>
  void run(Turn&& turn) {
    bool any = true;
    while (any) {
      now_.swap(next_);
      any = false;
      for (std::size_t word = 0; word < now_.size(); ++word)
        while (now_[word] != 0) {  // reread each time: a turn may wake a later rank of this sweep
          current_ = word * 64 + static_cast<std::size_t>(std::countr_zero(now_[word]));
          now_[word] &= now_[word] - 1;
          if (turn(current_)) {
            set(next_, current_);
            any = true;
          } else {
            set(waiting_, current_);
          }
        }
    }
  }

  /// Called from within a turn when something that `rank` may be waiting for has happened. If waiting, it gets a turn
  /// in this sweep unless the sweep has already passed it, otherwise in the next.
  void wake(std::size_t rank) {
    const std::uint64_t bit = std::uint64_t{1} << (rank % 64);
    if ((waiting_[rank / 64] & bit) == 0) return;
    waiting_[rank / 64] &= ~bit;
    set(rank > current_ ? now_ : next_, rank);
  }

 private:
  static void set(std::vector<std::uint64_t>& set, std::size_t rank) {
    set[rank / 64] |= std::uint64_t{1} << (rank % 64);
  }

  std::vector<std::uint64_t> now_;
  std::vector<std::uint64_t> next_;
  std::vector<std::uint64_t> waiting_;
  std::size_t current_ = 0;
};

}  // namespace automodel::schedule
