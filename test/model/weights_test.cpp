// Which parameters are gathered together, and which part of a tensor a rank holds.
#include "model/weights.h"

#include <set>

#include "arch/adapters.h"
#include "base/error.h"
#include "model/small_model.h"
#include "torch_catch.h"

namespace automodel::model {
namespace {

using test::SmallModel;

Placement whole(const arch::Parameter&) {
  return {};
}

std::vector<std::string> names_of(const Weights& weights) {
  std::vector<std::string> out;
  for (const auto& unit : weights.units()) out.push_back(unit.name);
  return out;
}

bool same(const std::vector<Run>& got, const std::vector<Run>& wanted) {
  return std::equal(got.begin(), got.end(), wanted.begin(), wanted.end(), [](const Run& a, const Run& b) {
    return a.local == b.local && a.full == b.full && a.length == b.length;
  });
}

}  // namespace

TEST_CASE("a unit is a layer, the embedding, or norm and head, and frozen weights have units of their own") {
  const SmallModel model;
  auto list = arch::parameters(model.layout);
  using Names = std::vector<std::string>;
  CHECK(names_of(Weights(list, whole)) == Names{"embedding", "layer 0", "layer 1", "layer 2", "head"});
  CHECK(names_of(Weights(list, whole, true)) == Names{"embedding", "layers", "head"});
  for (auto& each : list) each.frozen = each.layer == 1 && each.part == arch::Part::kQuery;
  const Weights some(list, whole);
  CHECK(names_of(some) == Names{"embedding", "layer 0", "layer 1", "layer 1, frozen", "layer 2", "head"});
  for (const auto& unit : some.units()) CHECK(unit.trained() == (unit.name != "layer 1, frozen"));
}

TEST_CASE("a weight carries its name, role and part, and matrices come before vectors") {
  const SmallModel model;
  const Weights weights(arch::parameters(model.layout), whole);
  const auto* query = weights.find("model.layers.1.self_attn.q_proj.weight");
  REQUIRE(query != nullptr);
  CHECK(query->parameter.part == arch::Part::kQuery);
  CHECK(query->parameter.role == arch::Role::kAttention);
  CHECK(weights.find("model.layers.9.self_attn.q_proj.weight") == nullptr);
  for (const auto& unit : weights.units()) {
    bool vectors = false;
    for (const auto* weight : unit.weights) {
      CHECK_FALSE((vectors && weight->full.size() > 1));
      vectors = vectors || weight->full.size() == 1;
    }
  }
}

TEST_CASE("weights of other ranks are left out, and experts are units apart") {
  const SmallModel model(R"(, "num_local_experts": 4, "num_experts_per_tok": 2)", "mixtral");
  const auto place = [](const arch::Parameter& parameter) { return Placement{.present = parameter.expert < 2}; };
  const Weights weights(arch::parameters(model.layout), place);
  std::set<int> experts;
  for (const auto& weight : weights.all()) {
    if (weight->info.expert >= 0) experts.insert(weight->info.expert);
    CHECK(weights.units()[static_cast<std::size_t>(weight->unit)].expert == weight->expert);
    CHECK(weight->expert == (weight->info.expert >= 0));
  }
  CHECK(experts == std::set<int>{0, 1});
}

TEST_CASE("a slice of rows is one run, a slice of columns one run per row") {
  const auto rows = even_slice(0, 6, 3, 1);
  CHECK(rows.shape({6, 4}) == std::vector<std::int64_t>{2, 4});
  CHECK(same(runs(rows, {6, 4}, 0, 8), {{0, 8, 8}}));
  CHECK(same(runs(rows, {6, 4}, 3, 2), {{3, 11, 2}}));
  const auto columns = even_slice(1, 4, 2, 1);
  CHECK(columns.shape({3, 4}) == std::vector<std::int64_t>{3, 2});
  CHECK(same(runs(columns, {3, 4}, 0, 6), {{0, 2, 2}, {2, 6, 2}, {4, 10, 2}}));
  CHECK(same(runs(columns, {3, 4}, 1, 3), {{1, 3, 1}, {2, 6, 2}}));
  CHECK(same(runs({}, {3, 4}, 5, 4), {{5, 5, 4}}));
}

TEST_CASE("each section of a fused projection is divided, and an odd vocabulary is filled up") {
  const auto fused = even_slice(0, 8, 2, 1, {4, 2, 2});
  CHECK(fused.ranges == std::vector<std::pair<std::int64_t, std::int64_t>>{{2, 4}, {5, 6}, {7, 8}});
  CHECK(same(runs(fused, {8, 3}, 0, 12), {{0, 6, 6}, {6, 15, 3}, {9, 21, 3}}));
  CHECK_THROWS_AS(even_slice(0, 7, 2, 0), InternalError);
  CHECK_THROWS_AS(even_slice(0, 8, 2, 0, {4, 2}), InternalError);
  const auto last = filled_slice(7, 3, 2);
  CHECK(last.filling == 2);
  CHECK(last.shape({7, 2}) == std::vector<std::int64_t>{3, 2});
  CHECK(same(runs(last, {7, 2}, 0, 6), {{0, 12, 2}}));
}

}  // namespace automodel::model
