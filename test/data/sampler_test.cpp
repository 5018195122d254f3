#include "data/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include <catch2/catch.hpp>

#include "data/permutation.h"

namespace automodel::data {
namespace {

using Samples = std::vector<std::int64_t>;

SamplerOptions options(std::int64_t global, std::int64_t local, std::int64_t dp, bool shuffle = true) {
  SamplerOptions out;
  out.global_batch_size = global;
  out.local_batch_size = local;
  out.dp_size = dp;
  out.shuffle = shuffle;
  return out;
}

/// The samples of one global batch in the order of positions, empty rows included.
Samples global_batch(const Sampler& sampler, std::int64_t epoch, std::int64_t step) {
  Samples out;
  for (std::int64_t run = 0; run < sampler.runs_per_step(); ++run)
    for (std::int64_t rank = 0; rank < sampler.options().dp_size; ++rank)
      for (const std::int64_t sample : sampler.rows(epoch, step, run, rank)) out.push_back(sample);
  return out;
}

Samples whole_epoch(const Sampler& sampler, std::int64_t epoch) {
  Samples out;
  for (std::int64_t step = 0; step < sampler.steps_per_epoch(); ++step)
    for (const std::int64_t sample : global_batch(sampler, epoch, step)) out.push_back(sample);
  return out;
}

}  // namespace

TEST_CASE("a permutation visits every index exactly once, for every size", "[data]") {
  for (std::uint64_t n = 1; n <= 300; ++n) {
    for (const std::uint64_t key : {0U, 1U, 12345U}) {
      const Permutation permutation(n, key);
      std::vector<bool> seen(n, false);
      for (std::uint64_t i = 0; i < n; ++i) {
        const std::uint64_t at = permutation(i);
        REQUIRE(at < n);
        REQUIRE(!seen[at]);
        seen[at] = true;
      }
    }
  }
  const std::uint64_t large = 1'000'003;
  const Permutation permutation(large, 9);
  std::vector<bool> seen(large, false);
  for (std::uint64_t i = 0; i < large; ++i) seen[permutation(i)] = true;
  CHECK(std::all_of(seen.begin(), seen.end(), [](bool visited) { return visited; }));
}

TEST_CASE("all permutations of a few items occur about equally often", "[data]") {
  for (const std::uint64_t n : {2U, 3U, 4U, 5U}) {
    std::map<Samples, int> counts;
    const int draws = 24000;
    for (std::uint64_t key = 0; key < draws; ++key) {
      const Permutation permutation(n, key);
      Samples order;
      for (std::uint64_t i = 0; i < n; ++i) order.push_back(static_cast<std::int64_t>(permutation(i)));
      ++counts[order];
    }
    int all = 1;
    for (std::uint64_t i = 2; i <= n; ++i) all *= static_cast<int>(i);
    CHECK(counts.size() == static_cast<std::size_t>(all));
    const double expected = static_cast<double>(draws) / all;
    double chi = 0;
    for (const auto& [order, count] : counts) chi += (count - expected) * (count - expected) / expected;
    INFO("n " << n << " chi " << chi);
    CHECK(chi < (all - 1) + 6 * std::sqrt(2.0 * (all - 1)));
  }
}

TEST_CASE("a shuffled order is uncorrelated with the file's order", "[data]") {
  const std::uint64_t n = 50000;
  const Permutation permutation(n, 77);
  double distance = 0;
  int ascents = 0;
  std::array<int, 10> first_tenth{};  // where the first tenth of the indices goes
  for (std::uint64_t i = 0; i + 1 < n; ++i) {
    const auto a = static_cast<double>(permutation(i));
    const auto b = static_cast<double>(permutation(i + 1));
    distance += std::abs(a - b) / static_cast<double>(n);
    ascents += b > a ? 1 : 0;
    if (i < n / 10) ++first_tenth[static_cast<std::size_t>(a * 10 / static_cast<double>(n))];
  }
  CHECK(distance / static_cast<double>(n) == Approx(1.0 / 3).margin(0.01));
  CHECK(std::abs(ascents - 25000) < 600);
  for (const int count : first_tenth) CHECK(std::abs(count - 500) < 120);
}

TEST_CASE("every sample is in exactly one row of an epoch, for all batch and data-parallel sizes", "[data]") {
  for (const std::int64_t n : {1, 2, 5, 16, 17, 63, 64, 100, 257}) {
    for (const std::int64_t dp : {1, 2, 3, 4}) {
      for (const std::int64_t local : {1, 2, 5}) {
        for (const std::int64_t runs : {1, 2, 3}) {
          for (const bool shuffle : {true, false}) {
            const Sampler sampler(n, options(dp * local * runs, local, dp, shuffle));
            for (const std::int64_t epoch : {0, 1, 7}) {
              Samples samples = whole_epoch(sampler, epoch);
              REQUIRE(static_cast<std::int64_t>(samples.size()) == sampler.steps_per_epoch() * dp * local * runs);
              std::erase(samples, kNoSample);
              if (!shuffle) REQUIRE(std::is_sorted(samples.begin(), samples.end()));
              std::sort(samples.begin(), samples.end());
              Samples all(static_cast<std::size_t>(n));
              std::iota(all.begin(), all.end(), 0);
              REQUIRE(samples == all);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("global batches are the same for every data-parallel size and gradient accumulation", "[data]") {
  for (const std::int64_t n : {100, 96, 1000}) {
    const Sampler alone(n, options(24, 24, 1));
    for (const std::int64_t dp : {1, 2, 3, 4, 6, 12}) {
      for (const std::int64_t local : {1, 2, 4}) {
        if (24 % (dp * local) != 0) continue;
        const Sampler split(n, options(24, local, dp));
        REQUIRE(split.steps_per_epoch() == alone.steps_per_epoch());
        for (const std::int64_t epoch : {0, 3})
          for (std::int64_t step = 0; step < alone.steps_per_epoch(); ++step)
            REQUIRE(global_batch(split, epoch, step) == global_batch(alone, epoch, step));
      }
    }
  }
}

TEST_CASE("a rank's local batch has consecutive samples of the epoch", "[data]") {
  const Sampler sampler(1000, options(24, 4, 3));
  const Samples rows = sampler.rows(2, 5, 1, 2);
  for (std::int64_t i = 0; i < 4; ++i)
    CHECK(rows[static_cast<std::size_t>(i)] == sampler.sample(2, 5 * 24 + (1 * 3 + 2) * 4 + i));
}

TEST_CASE("each epoch and each seed has its own order of samples", "[data]") {
  const Sampler a(200, options(10, 10, 1));
  auto other = options(10, 10, 1);
  other.seed = 43;
  const Sampler b(200, other);
  CHECK(whole_epoch(a, 0) != whole_epoch(a, 1));
  CHECK(whole_epoch(a, 0) != whole_epoch(b, 0));
  CHECK(whole_epoch(a, 0) == whole_epoch(Sampler(200, options(10, 10, 1)), 0));
}

TEST_CASE("an incomplete last step is filled with empty rows or dropped", "[data]") {
  auto o = options(8, 2, 2);
  const Sampler filled(21, o);
  CHECK(filled.steps_per_epoch() == 3);
  CHECK(filled.runs_per_epoch() == 6);  // 5 samples in the last step: two accumulation steps of 4 rows
  CHECK(filled.runs_of(2) == 2);
  CHECK(filled.runs_of(0) == 2);
  const Samples last = global_batch(filled, 0, 2);
  CHECK(std::count(last.begin(), last.end(), kNoSample) == 3);
  CHECK(filled.rows(0, 2, 1, 1) == Samples{kNoSample, kNoSample});

  const Sampler short_tail(19, o);
  CHECK(short_tail.runs_per_epoch() == 5);
  CHECK(short_tail.runs_of(2) == 1);

  o.drop_last = true;
  const Sampler dropped(21, o);
  CHECK(dropped.steps_per_epoch() == 2);
  CHECK(dropped.runs_per_epoch() == 4);
  Samples used = whole_epoch(dropped, 0);
  CHECK(std::count(used.begin(), used.end(), kNoSample) == 0);
  CHECK(std::set(used.begin(), used.end()).size() == 16);
  CHECK(std::set(used.begin(), used.end()) != [&] {
    const Samples next = whole_epoch(dropped, 1);
    return std::set(next.begin(), next.end());
  }());
}

TEST_CASE("rows of similar length are grouped, and each is still used once", "[data]") {
  const std::int64_t n = 1030;
  const auto length = [](std::int64_t sample) { return (sample * 7919) % 500; };
  auto o = options(8, 2, 2);
  const auto spread = [&](const Sampler& sampler) {
    std::int64_t total = 0;
    for (std::int64_t step = 0; step + 1 < sampler.steps_per_epoch(); ++step) {
      Samples lengths = global_batch(sampler, 1, step);
      for (auto& sample : lengths) sample = length(sample);
      total += *std::max_element(lengths.begin(), lengths.end()) - *std::min_element(lengths.begin(), lengths.end());
    }
    return total;
  };
  const Sampler plain(n, o);
  o.length = length;
  const Sampler grouped(n, o);
  CHECK(spread(grouped) * 20 < spread(plain));
  Samples samples = whole_epoch(grouped, 1);
  std::erase(samples, kNoSample);
  std::sort(samples.begin(), samples.end());
  CHECK(std::adjacent_find(samples.begin(), samples.end()) == samples.end());
  CHECK(static_cast<std::int64_t>(samples.size()) == n);
  // Also independent of the mesh, and not sorted by length over the epoch.
  auto other = o;
  other.local_batch_size = 8;
  other.dp_size = 1;
  CHECK(whole_epoch(Sampler(n, other), 1) == whole_epoch(grouped, 1));
  int longer = 0;
  for (std::int64_t step = 0; step + 2 < grouped.steps_per_epoch(); ++step)
    longer += length(grouped.sample(1, 8 * step)) < length(grouped.sample(1, 8 * (step + 1))) ? 1 : 0;
  CHECK(longer > 40);
}

}  // namespace automodel::data
