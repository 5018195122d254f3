#include <catch2/catch.hpp>

#include "golden.h"
#include "golden_folder.h"
#include "schedule/generators.h"

namespace automodel::schedule {

TEST_CASE("torch's schedule names find the same schedules", "[schedule][golden]") {
  // Refused by torch, accepted here: they can only mean one thing.
  const std::vector<std::pair<std::string, std::string>> accepted_here = {
      {"ZBV", "ZBVZeroBubble"}, {"ScheduleGPipe", "GPipe"}, {"Schedule1F1B", "1F1B"}};
  const auto words = golden("torch_words.json");
  for (const auto& [name, torch_class] : words["get_schedule_class"].items()) {
    INFO(name);
    const Generator* row = find_generator(name);
    std::string expected = torch_class.is_null() ? "" : torch_class.get<std::string>();
    if (expected.starts_with("Schedule")) expected = expected.substr(8);
    for (const auto& [alias, canonical] : accepted_here)
      if (alias == name) expected = canonical;
    CHECK((row == nullptr ? "" : std::string(row->name)) == expected);
  }
}

TEST_CASE("schedule names from NeMo AutoModel's code and documentation are accepted", "[schedule][golden]") {
  // Named in NeMo AutoModel's documentation but refused by its code; the alias says what each means.
  const std::vector<std::pair<std::string, std::string>> documented = {{"interleaved_1f1b", "Interleaved1F1B"},
                                                                       {"looped_bfs", "LoopedBFS"},
                                                                       {"dfs", "Interleaved1F1B"},
                                                                       {"v_schedule", "ZBVZeroBubble"},
                                                                       {"zero_bubble", "InterleavedZeroBubble"}};
  int found = 0;
  for (const auto& record : golden("nemo_names.json")) {
    const std::string name = record["name"];
    INFO(name);
    const Generator* row = find_generator(name);
    if (record.contains("error")) {
      std::string expected;
      for (const auto& [alias, canonical] : documented)
        if (alias == name) expected = canonical;
      CHECK((row == nullptr ? "" : std::string(row->name)) == expected);
      continue;
    }
    REQUIRE(row != nullptr);
    ++found;
    CHECK(row->single_stage == record["single"].get<bool>());
    // NeMo AutoModel places DualPipeV as a loop, and the run then fails; it is a V.
    if (row->name != "DualPipeV") CHECK(name_of(row->placement) == record["style"].get<std::string>());
  }
  CHECK(found == 16);
}

TEST_CASE("an unknown schedule name is refused with the nearest name and the full list", "[schedule]") {
  const Diagnostic near = unknown_schedule("interleavd1f1b");
  CHECK(near.id == "schedule-unknown");
  CHECK(near.message == "unknown schedule 'interleavd1f1b'");
  CHECK(near.help ==
        "did you mean 'Interleaved1F1B'? known: GPipe, 1F1B, Interleaved1F1B, LoopedBFS, InterleavedZeroBubble, "
        "ZBVZeroBubble, DualPipeV, MegatronInterleaved, ZB-H1, ZB-H2, V-Half, V-Min, searched, "
        "PipelineScheduleSingle, PipelineScheduleMulti");
  CHECK_THAT(unknown_schedule("qqqqqqqqqqq").help, Catch::StartsWith("known: GPipe"));
}

TEST_CASE("schedule names and aliases are unique and documented", "[schedule]") {
  for (const auto& row : generators()) {
    CHECK(find_generator(row.name) == &row);
    CHECK_FALSE(row.doc.empty());
    for (const auto& alias : row.aliases) {
      CHECK(find_generator(alias.name) == &row);
      CHECK_FALSE(alias.doc.empty());
    }
  }
}

TEST_CASE("every order in orders.h has a row in the table and a line in the documentation", "[schedule]") {
  const std::string root = automodel::golden_folder() + "/../../";
  const std::string declared = read_file(root + "lib/schedule/orders.h");
  const std::string rows = read_file(root + "lib/schedule/generators.cpp");
  const std::string page = read_file(root + "docs/adding-a-schedule.md");
  const std::string prefix = "\nSchedule ";
  int orders = 0;
  for (std::size_t at = declared.find(prefix); at != std::string::npos; at = declared.find(prefix, at + 1)) {
    const std::size_t begin = at + prefix.size();
    const std::string name = declared.substr(begin, declared.find('(', begin) - begin);
    INFO(name);
    CHECK_THAT(rows, Catch::Contains("orders::" + name));
    ++orders;
  }
  int generated = 0;
  for (const auto& row : generators()) {
    INFO(row.name);
    CHECK_THAT(page, Catch::Contains("`" + std::string(row.name) + "`"));
    for (const auto& alias : row.aliases) CHECK_THAT(page, Catch::Contains("`" + std::string(alias.name) + "`"));
    generated += row.generate != nullptr ? 1 : 0;
  }
  CHECK(generated == orders);
}

TEST_CASE("an invalid schedule request is refused with the nearest valid value", "[schedule]") {
  struct Refusal {
    std::string name;
    Request request;
    std::string id;
    std::string help;
  };
  const std::vector<Refusal> refusals = {
      {"Interleaved1F1B", {2, 2, 5}, "schedule-microbatches", "4 or 6 work on 2 ranks"},
      {"InterleavedZeroBubble", {4, 2, 13}, "schedule-microbatches", "12 or 15 work on 4 ranks"},
      {"ZBVZeroBubble", {2, 3, 4}, "schedule-stages-per-rank", "exactly 2 stages per rank: 4 on 2 ranks"},
      {"DualPipeV", {2, 2, 3}, "schedule-microbatches", "at least as many microbatches as stages: 4"},
      {"1F1B", {4, 2, 8}, "schedule-stages-per-rank", "exactly 1 stage per rank: 4 on 4 ranks"},
      {"GPipe", {0, 1, 1}, "schedule-ranks", "1 to 1024"},
      {"LoopedBFS", {2, 0, 1}, "schedule-stages-per-rank", "1 to 4096"},
      {"GPipe", {2, 1, -1}, "schedule-microbatches", "1 to 65536"},
      {"LoopedBFS", {1024, 8, 1}, "schedule-too-large", "at most 4096 stages"},
      {"GPipe", {1024, 1, 65536}, "schedule-too-large", "1048576 stages times microbatches"},
      {"MegatronInterleaved", {4, 2, 3}, "schedule-microbatches", "at least as many microbatches as ranks: 4"},
      {"MegatronInterleaved", {4, 2, 8, 3}, "schedule-group-size", "4 to 8, nearest 4"},
      {"MegatronInterleaved", {4, 2, 8, 9}, "schedule-group-size", "4 to 8, nearest 8"},
      {"MegatronInterleaved",
       {2, 2, 5},
       "schedule-microbatches",
       "use 4 or 6 microbatches, or a microbatch_group_size_per_vp_stage of 3"},
      {"PipelineScheduleMulti", {2, 2, 4}, "schedule-needs-csv", "pp_schedule_csv"},
  };
  for (const auto& refusal : refusals) {
    INFO(refusal.name << " " << refusal.request.ranks << " " << refusal.request.stages_per_rank << " "
                      << refusal.request.microbatches);
    const auto problems = check_request(generator_named(refusal.name), refusal.request);
    REQUIRE(problems.size() == 1);
    CHECK(problems[0].id == refusal.id);
    CHECK_THAT(problems[0].help, Catch::Contains(refusal.help));
  }
}

}  // namespace automodel::schedule
