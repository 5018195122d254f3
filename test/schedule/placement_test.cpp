#include "schedule/placement.h"

#include <catch2/catch.hpp>

#include "golden.h"

namespace automodel::schedule {
namespace {

std::optional<PlacementStyle> style_named(const std::string& name) {
  for (const auto style : {PlacementStyle::kLoop, PlacementStyle::kV})
    if (name_of(style) == name) return style;
  return std::nullopt;
}

}  // namespace

TEST_CASE("stages are placed on ranks as in torch", "[schedule][golden]") {
  int same = 0;
  int refused = 0;
  const auto words = golden("torch_words.json");
  for (const auto& [key, map] : words["stage_to_rank"].items()) {
    INFO(key);
    const auto first = key.find(':');
    const auto second = key.find(':', first + 1);
    const auto style = style_named(key.substr(0, first));
    const int ranks = std::stoi(key.substr(first + 1));
    const int stages = std::stoi(key.substr(second + 1));
    if (!style || !check_placement(*style, ranks, stages).empty()) {
      CHECK(map.is_null());
      ++refused;
      continue;
    }
    CHECK(make_placement(*style, ranks, stages).rank_of_stage() == map.get<std::vector<int>>());
    ++same;
  }
  CHECK(same == 44);
  CHECK(refused == 5);
}

TEST_CASE("an uneven V placement is refused with the nearest valid numbers of stages", "[schedule]") {
  const auto problems = check_placement(PlacementStyle::kV, 2, 5);
  REQUIRE(ids(problems) == std::vector<std::string>{"schedule-stages"});
  CHECK_THAT(problems[0].help, Catch::Contains("4 or 6 stages"));
  CHECK(ids(check_placement(PlacementStyle::kLoop, 0, 0)) ==
        std::vector<std::string>{"schedule-ranks", "schedule-stages"});
}

TEST_CASE("a placement gives the stages of a rank and their local indices", "[schedule]") {
  const Placement v = make_placement(PlacementStyle::kV, 2, 6);
  CHECK(v.stages_of(0) == std::vector<Stage>{{0}, {3}, {4}});
  CHECK(v.local_index(Stage{4}) == 2);
  CHECK(style_of(v) == "v");
  CHECK(style_of(make_placement(PlacementStyle::kV, 4, 4)) == "loop");
  CHECK(style_of(Placement(2, {1, 0})) == "custom");
}

TEST_CASE("the placement is inferred from a consistent table", "[schedule]") {
  CHECK(infer_placement(table({"0F0,3F0", "1F0,2F0"}), 4) == make_placement(PlacementStyle::kV, 2, 4));
  CHECK_FALSE(infer_placement(table({"0F0,1F0", "1F0"}), 2).has_value());
  CHECK_FALSE(infer_placement(table({"0F0", "2F0"}), 3).has_value());
  CHECK_FALSE(infer_placement(table({"0F0", "9F0"}), 2).has_value());
}

}  // namespace automodel::schedule
