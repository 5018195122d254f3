#include "plan/balanced_split.h"

#include <algorithm>
#include <limits>

namespace automodel::plan {
namespace {

constexpr double kEqual = 1e-12;  // sums taken in a different order round differently
constexpr double kNever = std::numeric_limits<double>::infinity();

/// Dynamic programming over tables [stages so far][layers so far], row-major.
class Balance {
 public:
  Balance(int stages, const SplitCost& cost, const std::vector<int>& most)
      : stages_(stages), layers_(static_cast<int>(cost.layers.size())), cost_(cost), most_(most), sums_(1, 0.0) {
    for (const double each : cost.layers) sums_.push_back(sums_.back() + each);
  }

  std::vector<LayerRange> run() {
    if (stages_ < 1 || layers_ < stages_) return {};
    // First the smallest possible maximum over stages, then the most even split that attains it.
    const double largest = fill([](double so_far, double stage) { return std::max(so_far, stage); }, kNever);
    if (largest == kNever) return {};
    fill([](double so_far, double stage) { return so_far + stage * stage; }, largest * (1 + 1e-9));
    std::vector<LayerRange> out(static_cast<std::size_t>(stages_));
    int end = layers_;
    for (int s = stages_; s > 0; --s) {
      const int begin = from_[at(s, end)];
      out[static_cast<std::size_t>(s - 1)] = {begin, end};
      end = begin;
    }
    return out;
  }

 private:
  std::size_t at(int stages, int layers) const {
    return static_cast<std::size_t>(stages) * static_cast<std::size_t>(layers_ + 1) + static_cast<std::size_t>(layers);
  }
  double stage_cost(int stage, int begin, int end) const {
    return sums_[static_cast<std::size_t>(end)] - sums_[static_cast<std::size_t>(begin)] +
           (stage == 0 ? cost_.first : 0) + (stage + 1 == stages_ ? cost_.last : 0);
  }

  /// Minimises `join` over all splits in which no stage costs more than `limit`; records where the stages begin.
  template <class Join>
  double fill(const Join& join, double limit) {
    best_.assign(at(stages_, layers_) + 1, kNever);
    from_.assign(best_.size(), -1);
    best_[0] = 0;
    for (int s = 1; s <= stages_; ++s) {
      const int most = most_.empty() ? layers_ : most_[static_cast<std::size_t>(s - 1)];
      for (int end = s; end <= layers_ - (stages_ - s); ++end)
        for (int begin = end - 1; begin >= std::max(s - 1, end - most); --begin) {
          const double stage = stage_cost(s - 1, begin, end);
          // The stage only gets more expensive from here on.
          if (stage > limit || join(0, stage) > best_[at(s, end)] * (1 + kEqual)) break;
          const double before = best_[at(s - 1, begin)];
          // Among equals the last one found wins, which has the fewest layers before this stage.
          const double all = join(before, stage);
          if (before == kNever || all > best_[at(s, end)] * (1 + kEqual)) continue;
          best_[at(s, end)] = std::min(all, best_[at(s, end)]);
          from_[at(s, end)] = begin;
        }
    }
    return best_[at(stages_, layers_)];
  }

  int stages_, layers_;
  const SplitCost& cost_;
  const std::vector<int>& most_;
  std::vector<double> sums_;
  std::vector<double> best_ = {};
  std::vector<int> from_ = {};
};

}  // namespace

std::vector<LayerRange> balanced_layers(int stages, const SplitCost& cost, const std::vector<int>& most) {
  return Balance(stages, cost, most).run();
}

}  // namespace automodel::plan
