#include "train/link_meter.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>

#include "base/median.h"

namespace automodel::train {
namespace {

constexpr int kRounds = 5;

class LinkMeter {
 public:
  explicit LinkMeter(comm::World& world) { all_ = world.group(world.control().ranks(), "calibration"); }

  estimate::LinkSample run() {
    estimate::LinkSample out;
    const std::int64_t small = 64, large = 4 << 20, gradients = 16 << 20;
    out.latency = one_way(small, 200);
    // A typical size of a microbatch's hidden states.
    out.bandwidth = static_cast<double>(large) / std::max(1e-9, one_way(large, 10) - out.latency);
    const int n = all_->size();
    const auto count = gradients / 4 / n * n;
    const auto whole = at::ones({count}, at::kFloat), part = at::ones({count / n}, at::kFloat);
    const double moved = static_cast<double>(count) * 4 * (n - 1) / n;
    const auto rate = [&](double times, const std::function<void()>& work) {
      return times * moved / std::max(1e-9, seconds(4, work) - times * (n - 1) * out.latency);
    };
    out.gather = rate(1, [&] { all_->all_gather(whole, part)->wait(); });
    out.scatter = rate(1, [&] { all_->reduce_scatter(part, whole, comm::ReduceOp::kSum)->wait(); });
    out.sum = rate(2, [&] { all_->all_reduce(whole, comm::ReduceOp::kSum)->wait(); });
    return out;
  }

 private:
  /// Seconds per call on the slowest rank; median of several rounds.
  double seconds(int repeat, const std::function<void()>& work) {
    std::vector<double> rounds;
    work();
    for (int round = 0; round < kRounds; ++round) {
      all_->barrier()->wait();
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < repeat; ++i) work();
      rounds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / repeat);
    }
    const auto slowest = at::tensor({median(std::move(rounds))}, at::TensorOptions().dtype(at::kDouble));
    all_->all_reduce(slowest, comm::ReduceOp::kMax)->wait();
    return slowest.item<double>();
  }

  /// Half the round-trip time between the first two ranks; the others are idle.
  double one_way(std::int64_t bytes, int repeat) {
    const auto tensor = at::ones({bytes}, at::kByte);
    const int me = all_->rank();
    return seconds(repeat,
                   [&] {
                     if (me > 1) return;
                     const bool sends_first = me == 0;
                     for (const bool sends : {sends_first, !sends_first}) {
                       std::vector<comm::Transfer> message = {{tensor, 1 - me, 0}};
                       if (sends)
                         all_->exchange(std::move(message), {})->wait();
                       else
                         all_->exchange({}, std::move(message))->wait();
                     }
                   }) /
           2;
  }

  std::shared_ptr<comm::Communicator> all_;
};

}  // namespace

std::optional<estimate::LinkSample> measure_link(comm::World& world) {
  if (world.size() < 2) return std::nullopt;
  return LinkMeter(world).run();
}

}  // namespace automodel::train
