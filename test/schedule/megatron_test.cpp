#include "schedule/megatron.h"

#include <catch2/catch.hpp>

#include "golden.h"

namespace automodel::schedule {
namespace {

megatron::Run run_of(const nlohmann::json& record) {
  megatron::Run run;
  run.ranks = record["pp"];
  run.interleaved = !record["vp"].is_null();
  run.chunks = run.interleaved ? record["vp"].get<int>() : 1;
  run.microbatches = record["mb"];
  run.group_size = record["group"].is_null() ? run.ranks : record["group"].get<int>();
  run.forward_only = record["forward_only"];
  run.overlap_moe_expert_parallel_comm = record.value("moe", false);
  return run;
}

template <class Items, class Text>
std::string joined(const Items& items, Text&& text) {
  std::string out;
  for (const auto& item : items) out += (out.empty() ? "" : " ") + text(item);
  return out;
}

std::string step_text(const megatron::Step& step) {
  return std::to_string(step.microbatch) + ":" + std::to_string(step.chunk);
}

/// "F<chunk>.<microbatch>" for each action of a row, as the recorded traces have it.
std::string trace_of(const Row& row, int ranks) {
  return joined(row, [&](const Slot& slot) {
    const Action& action = slot.actions()[0];
    return std::string(traits(action.op()).spelling) + std::to_string(action.stage().value / ranks) + "." +
           std::to_string(action.microbatch().value);
  });
}

}  // namespace

TEST_CASE("schedule tables, warm-up counts and orders match Megatron Core", "[schedule][golden]") {
  int tables = 0;
  int orders = 0;
  int warmups = 0;
  for (const auto& record : golden("megatron_tables.json")) {
    const megatron::Run run = run_of(record);
    INFO(record.dump().substr(0, 120));
    for (int rank = 0; rank < run.ranks; ++rank) {
      const auto index = static_cast<std::size_t>(rank);
      const auto warmup = megatron::warmup(run, rank);
      CHECK(std::vector<int>{warmup.total, warmup.warmup, warmup.remaining, warmup.all_in_warmup ? 1 : 0} ==
            record["warmup"][index].get<std::vector<int>>());
      ++warmups;
      if (!record.contains("order")) continue;
      CHECK(joined(megatron::order(run, rank), [](int code) { return std::to_string(code); }) ==
            record["order"][index].get<std::string>());
      ++orders;
    }
    if (record.contains("table")) {
      CHECK(joined(megatron::schedule_table(run.microbatches, run.chunks, run.group_size), step_text) ==
            record["table"].get<std::string>());
      ++tables;
    }
  }
  CHECK(tables == 123);
  CHECK(orders == 1120);
  CHECK(warmups == 1783);
}

TEST_CASE("MegatronInterleaved matches recorded traces of Megatron Core", "[schedule][golden]") {
  int same = 0;
  int refused = 0;
  const Generator& generator = generator_named("MegatronInterleaved");
  for (const auto& record : golden("megatron_traces.json")) {
    const megatron::Run run = run_of(record);
    if (!run.interleaved) continue;
    const Request request{run.ranks, run.chunks, run.microbatches, run.group_size};
    INFO(record.dump().substr(0, 120));
    if (record.contains("error")) {
      const std::string message = record["error"];
      // The third kind of error is about communication options.
      if (!message.starts_with("The number of") && !message.starts_with("The remainder")) continue;
      CHECK_FALSE(check_request(generator, request).empty());
      ++refused;
      continue;
    }
    REQUIRE(check_request(generator, request).empty());
    Schedule schedule = generate(generator, request);
    if (run.forward_only) schedule = forward_only(schedule);
    for (int rank = 0; rank < run.ranks; ++rank)
      CHECK(trace_of(schedule[static_cast<std::size_t>(rank)], run.ranks) ==
            record["order"][static_cast<std::size_t>(rank)].get<std::string>());
    ++same;
  }
  CHECK(same == 26);
  CHECK(refused == 16);
}

TEST_CASE("1F1B matches Megatron Core's order without virtual stages", "[schedule][golden]") {
  int same = 0;
  for (const auto& record : golden("megatron_traces.json")) {
    if (!record["vp"].is_null() || record.contains("error") || record["forward_only"]) continue;
    const Request request{record["pp"], 1, record["mb"]};
    INFO(record.dump().substr(0, 120));
    const Schedule schedule = generate(generator_named("1F1B"), request);
    for (std::size_t rank = 0; rank < schedule.size(); ++rank) {
      std::string ours = trace_of(schedule[rank], request.stages() + 1);  // one chunk: every stage is chunk 0
      CHECK(ours == record["order"][rank].get<std::string>());
    }
    ++same;
  }
  CHECK(same == 9);
}

}  // namespace automodel::schedule
