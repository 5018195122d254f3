#include "train/rank_meter.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include "base/bytes.h"
#include "base/json_writer.h"
#include "base/median.h"
#include "base/text_table.h"
#include "config/recipe.h"
#include "train/world_settings.h"

namespace automodel::train {
namespace {

constexpr int kMeasurements = 5;

/// Sizes of measurements, chosen to take some milliseconds.
struct Load {
  std::int64_t side = 0;   ///< side length of square matrices
  std::int64_t bytes = 0;  ///< size of copies
  at::ScalarType type = at::kFloat;
};
constexpr Load kOnHost = {512, std::int64_t{64} << 20, at::kFloat};
constexpr Load kOnGpu = {4096, std::int64_t{1} << 30, at::kBFloat16};
constexpr std::int64_t kMessage = 8 << 20;  // bytes

class RankMeter {
 public:
  explicit RankMeter(comm::World& world) : world_(world), load_(world.device().is_cpu() ? kOnHost : kOnGpu) {
    all_ = world.group(world.control().ranks(), "doctor");
    ring_ = world.group(ring_members(), "doctor links");
  }

  RankSample run() {
    RankSample out{.host = world_.host_name()};
    const auto options = at::TensorOptions().device(world_.device());
    const auto a = at::ones({load_.side, load_.side}, options.dtype(load_.type));
    const auto cubed =
        static_cast<double>(load_.side) * static_cast<double>(load_.side) * static_cast<double>(load_.side);
    out.flops = 2 * cubed / seconds([&] { finish(at::mm(a, a)); });
    const auto from = at::ones({load_.bytes}, options.dtype(at::kByte)), to = at::empty_like(from);
    out.memory = 2 * static_cast<double>(load_.bytes) / seconds([&] {
                   to.copy_(from);
                   finish(to);
                 });
    out.link = best_link();
    return out;
  }

 private:
  /// The ranks with this rank's local number on every host or, if there is one host, all ranks.
  std::vector<int> ring_members() {
    std::string text;
    for (const auto& each : world_.gather_text(fmt::format("{} {}", world_.host_name(), world_.local_rank())))
      text += each + "\n";
    std::istringstream lines(world_.broadcast_text(text));
    std::vector<int> all, mine;
    std::set<std::string> hosts;
    std::string host;
    for (int rank = 0, local = 0; lines >> host >> local; ++rank) {
      hosts.insert(host);
      all.push_back(rank);
      if (local == world_.local_rank()) mine.push_back(rank);
    }
    return hosts.size() > 1 ? mine : all;
  }

  /// Waits for the result, because GPU work is asynchronous.
  void finish(const at::Tensor& result) const {
    if (!result.is_cpu()) static_cast<void>(result.flatten()[0].item());
  }

  /// Median of several runs; all ranks start together.
  double seconds(const std::function<void()>& work) {
    std::vector<double> all;
    work();
    for (int i = 0; i < kMeasurements; ++i) {
      all_->barrier()->wait();
      const auto begin = std::chrono::steady_clock::now();
      work();
      all.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    return std::max(1e-9, median(std::move(all)));
  }

  /// Measures every rank with its neighbours in the ring, in rounds in which no rank has two partners.
  double best_link() {
    const int n = ring_->size(), me = ring_->rank();
    double best = 0;
    const auto partner_in = [&](int round) {
      for (const auto& [first, second] : {std::pair(me, (me + 1) % n), std::pair((me + n - 1) % n, me)}) {
        const bool closes = second == 0;
        const int own_round = closes && n % 2 == 1 ? 2 : first % 2;
        if (n > 1 && own_round == round && !(n == 2 && closes)) return first == me ? second : first;
      }
      return -1;
    };
    for (int round = 0; round < 3; ++round) {
      const int partner = partner_in(round);
      const auto out = at::ones({kMessage}, at::kByte), in = at::empty({kMessage}, at::kByte);
      const double time = seconds([&] {
        if (partner >= 0) ring_->exchange({{out, partner, 0}}, {{in, partner, 0}})->wait();
      });
      if (partner >= 0) best = std::max(best, 2 * static_cast<double>(kMessage) / time);
    }
    return best;
  }

  comm::World& world_;
  Load load_;
  std::shared_ptr<comm::Communicator> all_, ring_;
};

struct Measure {
  const char* name;
  double RankSample::*value;
};
constexpr std::array kMeasures = {Measure{"compute", &RankSample::flops}, Measure{"memory", &RankSample::memory},
                                  Measure{"links", &RankSample::link}};

}  // namespace

std::vector<RankSample> measure_ranks(comm::World& world) {
  const auto mine = RankMeter(world).run();
  std::vector<RankSample> out;
  for (const auto& text :
       world.gather_text(fmt::format("{} {} {} {}", mine.host, mine.flops, mine.memory, mine.link))) {
    auto& sample = out.emplace_back();
    std::istringstream(text) >> sample.host >> sample.flops >> sample.memory >> sample.link;
  }
  return out;
}

std::vector<std::vector<std::string>> outliers(const std::vector<RankSample>& samples) {
  std::vector<std::vector<std::string>> out(samples.size());
  for (const auto& [name, value] : kMeasures) {
    std::vector<double> all;
    for (const auto& sample : samples) all.push_back(sample.*value);
    if (all.empty()) continue;
    // Upper median, so that one of two ranks can be an outlier.
    const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
    std::nth_element(all.begin(), middle, all.end());
    for (std::size_t rank = 0; rank < samples.size(); ++rank)
      if (samples[rank].*value * kOutlierFactor < *middle) out[rank].emplace_back(name);
  }
  return out;
}

std::string to_text(const std::vector<RankSample>& samples) {
  const auto behind = outliers(samples);
  TextTable table({"rank", "host", "compute", "memory", "links", ""});
  std::string found;
  for (std::size_t rank = 0; rank < samples.size(); ++rank) {
    const auto& sample = samples[rank];
    const auto what = fmt::format("{}", fmt::join(behind[rank], ", "));
    table.add({std::to_string(rank), sample.host, fmt::format("{:.3g} GFLOP/s", sample.flops / 1e9),
               fmt::format("{:.3g} GB/s", sample.memory / 1e9),
               sample.link > 0 ? fmt::format("{:.3g} GB/s", sample.link / 1e9) : "",
               what.empty() ? "" : "odd: " + what});
    if (!what.empty())
      found += fmt::format("problem  rank {} (host {}) is behind the others in {}\n", rank, sample.host, what);
  }
  if (found.empty()) return table.text() + "ok       no rank is behind the others by a factor of 1.5\n";
  return table.text() + found +
         "         help: leave the host out, or look there for other processes, heat, a slower link, a container's "
         "limits\n";
}

std::string to_json(const std::vector<RankSample>& samples) {
  const auto behind = outliers(samples);
  JsonWriter json;
  json.begin_object();
  json.key("ranks");
  json.begin_array();
  for (std::size_t rank = 0; rank < samples.size(); ++rank) {
    json.begin_object();
    json.member("rank", rank);
    json.member("host", samples[rank].host);
    json.member("flops", samples[rank].flops);
    json.member("memory_bytes_per_second", samples[rank].memory);
    json.member("link_bytes_per_second", samples[rank].link);
    json.key("odd");
    json.begin_array();
    for (const auto& each : behind[rank]) json.value(each);
    json.end_array();
    json.end_object();
  }
  json.end_array();
  json.end_object();
  return json.take() + "\n";
}

ExitCode run_rank_meter(comm::World& world, bool json) {
  use_settings(world, config::Recipe());
  use_threads(world);
  const auto samples = measure_ranks(world);
  const auto text = json ? to_json(samples) : to_text(samples);
  if (world.rank() == 0) std::fwrite(text.data(), 1, text.size(), stdout);
  const auto behind = outliers(samples);
  const bool any = std::any_of(behind.begin(), behind.end(), [](const auto& each) { return !each.empty(); });
  return any ? ExitCode::kEnvironment : ExitCode::kOk;
}

}  // namespace automodel::train
