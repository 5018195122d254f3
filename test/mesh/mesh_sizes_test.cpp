#include "mesh/mesh_sizes.h"

#include <map>
#include <random>

#include <catch2/catch.hpp>

#include "advice.h"
#include "base/diagnostic.h"

namespace automodel::mesh {
namespace {

const std::map<std::string, std::optional<std::int64_t> MeshRequest::*> kFields = {
    {"dp_size", &MeshRequest::dp_size}, {"dp_replicate_size", &MeshRequest::dp_replicate_size},
    {"tp_size", &MeshRequest::tp_size}, {"pp_size", &MeshRequest::pp_size},
    {"cp_size", &MeshRequest::cp_size}, {"ep_size", &MeshRequest::ep_size}};

struct Change {
  MeshRequest request;
  std::int64_t world;
  std::string key;
};

/// Every "key: value" and "N ranks" of a help text, each applied on its own.
std::vector<Change> changes(const MeshRequest& request, std::int64_t world, const std::string& help) {
  std::vector<Change> out;
  for (const auto& advised : advised_values(help)) {
    out.push_back({request, world, advised.key});
    if (advised.key == "ranks")
      out.back().world = advised.number();
    else
      out.back().request.*kFields.at(advised.key) = advised.number();
  }
  return out;
}

std::size_t count(const Diagnostics& problems, const std::string& id) {
  std::size_t out = 0;
  for (const auto& problem : problems) out += problem.id == id ? 1U : 0U;
  return out;
}

}  // namespace

TEST_CASE("absent, zero and negative mesh sizes are inferred or default to 1", "[mesh]") {
  Diagnostics problems;
  MeshRequest request;
  request.dp_replicate_size = -1;
  request.tp_size = 0;
  request.pp_size = 2;
  CHECK(resolve_sizes(request, 8, problems) == MeshSizes{2, 1, 4, 1, 1, 1});
  CHECK(problems.empty());
}

TEST_CASE("sizes whose product is not the number of ranks are refused with the nearest values", "[mesh]") {
  Diagnostics problems;
  CHECK_FALSE(resolve_sizes({Strategy::kFsdp2, 3, {}, 2, {}, {}, {}}, 8, problems));
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].id == "world-size-mismatch");
  CHECK(problems[0].key == "distributed.dp_size");
  CHECK(problems[0].message == "pp_size 1 x dp_size 3 x cp_size 1 x tp_size 2 = 6, but there are 8 ranks");
  CHECK(problems[0].help ==
        "the sizes must multiply to the number of ranks (without dp_size it is inferred); use dp_size: 4 or 6 ranks");
}

TEST_CASE("sizes that do not divide the number of ranks are refused with the nearest values", "[mesh]") {
  Diagnostics problems;
  CHECK_FALSE(resolve_sizes({Strategy::kFsdp2, {}, {}, 3, 2, {}, {}}, 8, problems));
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].id == "indivisible");
  CHECK(problems[0].key == "distributed.tp_size");
  CHECK(problems[0].message == "8 ranks cannot be divided by pp_size 2 x cp_size 1 x tp_size 3 = 6");
  CHECK(problems[0].help ==
        "pp_size x cp_size x tp_size must divide the number of ranks; use tp_size: 2, tp_size: 4, 6 ranks or 12 ranks");

  problems.clear();
  CHECK_FALSE(resolve_sizes({Strategy::kFsdp2, {}, 3, {}, {}, {}, 5}, 8, problems));
  REQUIRE(problems.size() == 2);  // both at once
  CHECK(problems[0].key == "distributed.dp_replicate_size");
  CHECK(problems[1].key == "distributed.ep_size");
  CHECK(problems[1].help == "ep_size must divide the number of ranks of a stage; use ep_size: 4 or ep_size: 8");

  problems.clear();
  CHECK_FALSE(resolve_sizes({Strategy::kDdp, {}, 2, {}, {}, {}, {}}, 8, problems));
  CHECK(problems[0].id == "bad-value");
  problems.clear();
  CHECK_FALSE(resolve_sizes({}, 0, problems));
  CHECK(problems[0].id == "bad-value");
}

TEST_CASE("sizes far beyond any machine are refused without overflow", "[mesh]") {
  Diagnostics problems;
  const std::int64_t huge = std::int64_t{1} << 40;
  CHECK_FALSE(resolve_sizes({Strategy::kFsdp2, huge, huge, huge, huge, huge, huge}, 8, problems));
  CHECK(count(problems, "world-size-mismatch") == 1);
  problems.clear();
  CHECK_FALSE(resolve_sizes({Strategy::kFsdp2, {}, {}, huge, huge, huge, {}}, 8, problems));
  CHECK(count(problems, "indivisible") == 1);
}

TEST_CASE("every mesh size and number of ranks that an error suggests is valid", "[mesh][property]") {
  std::mt19937 random(7);
  const auto pick = [&](int most) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(most)) + 1; };
  std::size_t advised = 0;
  for (int repeat = 0; repeat < 4000; ++repeat) {
    MeshRequest request;
    request.strategy = static_cast<Strategy>(random() % 3);
    const std::int64_t world = pick(64);
    if (random() % 2 == 0) request.dp_size = pick(16);
    if (random() % 2 == 0) request.dp_replicate_size = pick(8);
    if (random() % 2 == 0) request.tp_size = pick(12);
    if (random() % 2 == 0) request.pp_size = pick(12);
    if (random() % 3 == 0) request.cp_size = pick(5);
    if (random() % 3 == 0) request.ep_size = pick(12);
    Diagnostics problems;
    if (resolve_sizes(request, world, problems)) continue;
    for (const auto& problem : problems) {
      for (const auto& change : changes(request, world, problem.help)) {
        ++advised;
        Diagnostics left;
        const bool passes = resolve_sizes(change.request, change.world, left).has_value();
        INFO(to_text(problem) << "\napplied: " << change.key << " leaves\n" << to_text(left));
        for (const auto& other : left) CHECK((other.id != problem.id || other.key != problem.key));
        // If this is the only problem, the advice must solve it, unless no value of that key can.
        if (problems.size() == 1 && !passes) {
          if (change.key == "ranks") {
            for (std::int64_t ranks = 1; ranks <= 5000; ++ranks) {
              Diagnostics none;
              CHECK_FALSE(resolve_sizes(request, ranks, none));
            }
            continue;
          }
          MeshRequest other = request;
          for (std::int64_t value = 1; value <= world; ++value) {
            other.*kFields.at(change.key) = value;
            Diagnostics none;
            CHECK_FALSE(resolve_sizes(other, world, none));
          }
        }
      }
    }
  }
  CHECK(advised > 3000);
}

TEST_CASE("advice on mesh sizes is limited to what the caller accepts too, if there is any", "[mesh]") {
  const MeshRequest request{Strategy::kFsdp2, {}, {}, 8, 4, {}, {}};
  const auto help = [&](const Suits& suits) {
    Diagnostics problems;
    CHECK_FALSE(resolve_sizes(request, 60, problems, suits));
    REQUIRE(problems.size() == 1);
    return problems[0].help.substr(problems[0].help.find("; use "));
  };
  CHECK(help({}) == "; use tp_size: 5, tp_size: 15, 32 ranks or 64 ranks");
  CHECK(help([](const MeshSizes& sizes) { return 8 % sizes.tp == 0; }) == "; use tp_size: 1, 32 ranks or 64 ranks");
  CHECK(help([](const MeshSizes& sizes) { return sizes.tp == 15; }) == "; use tp_size: 15");
  CHECK(help([](const MeshSizes&) { return false; }) == help({}));
}

TEST_CASE("strategies are parsed from NeMo AutoModel's names", "[mesh]") {
  CHECK(parse_strategy("FSDP2") == Strategy::kFsdp2);
  CHECK(parse_strategy("mfsdp") == Strategy::kMegatronFsdp);
  CHECK_FALSE(parse_strategy("fsdp"));
  CHECK(name_of(Strategy::kMegatronFsdp) == "megatron_fsdp");
}

}  // namespace automodel::mesh
