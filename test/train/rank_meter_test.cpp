#include "train/rank_meter.h"

#include <vector>

#include <nlohmann/json.hpp>

#include "comm/loopback/loopback.h"
#include "torch_catch.h"

namespace automodel::train {
namespace {

using nlohmann::json;
using Outliers = std::vector<std::vector<std::string>>;

TEST_CASE("a rank that is slower than the others is an outlier") {
  const RankSample usual{"a", 1e12, 1e11, 1e10};
  std::vector<RankSample> samples(4, usual);
  CHECK(outliers(samples) == Outliers(4));
  samples[2].flops = 0.6e12;
  samples[3] = {"b", 0.9e12, 1e11, 0.5e10};
  CHECK(outliers(samples) == Outliers{{}, {}, {"compute"}, {"links"}});
  const auto text = to_text(samples);
  CHECK(text.find("problem  rank 2 (host a) is behind the others in compute\n") != std::string::npos);
  CHECK(text.find("problem  rank 3 (host b) is behind the others in links\n") != std::string::npos);
  CHECK(json::parse(to_json(samples)).at("ranks").at(3).at("odd") == json{"links"});
  // One of two ranks.
  CHECK(outliers({usual, {"a", 1e12, 0.5e11, 1e10}}) == Outliers{{}, {"memory"}});
  // A single rank cannot be compared with others.
  CHECK(to_text({{"a", 1e12, 1e11, 0}}).find("ok ") != std::string::npos);
}

TEST_CASE("every rank is measured, for any number of ranks") {
  for (const int ranks : {1, 2, 3, 4}) {
    std::vector<RankSample> samples;
    const auto outcome = comm::run_ranks(ranks, [&](comm::World& world) {
      auto mine = measure_ranks(world);
      if (world.rank() == 0) samples = std::move(mine);
    });
    INFO(outcome.text);
    REQUIRE(outcome.ok());
    REQUIRE(samples.size() == static_cast<std::size_t>(ranks));
    for (const auto& sample : samples) {
      CHECK_FALSE(sample.host.empty());
      CHECK(sample.flops > 0);
      CHECK(sample.memory > 0);
      CHECK((sample.link > 0) == (ranks > 1));
    }
  }
}

}  // namespace
}  // namespace automodel::train
