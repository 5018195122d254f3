#include "launch/restart_rule.h"

#include <vector>

#include <catch2/catch.hpp>

namespace automodel::launch {
namespace {

Attempt ended(int code, std::optional<std::int64_t> step, std::optional<std::int64_t> saved) {
  return {.code = code, .last_step = step, .saved_step = saved, .cause = "cause"};
}

TEST_CASE("only failures that may be temporary restart a run") {
  for (const int code : {0, 2, 3, 10, 11, 130}) CHECK_FALSE(may_pass(code));
  for (const int code : {1, 4, 12, 13, 70, 137, 139}) CHECK(may_pass(code));
  const std::vector<Attempt> refused = {ended(3, {}, {})};
  CHECK(decide(refused, 5).next == Next::kEnd);
  std::vector<Attempt> stopped = {ended(137, 7, 4)};
  CHECK(decide(stopped, 5).next == Next::kRestart);
  stopped[0].told_to_stop = true;
  CHECK(decide(stopped, 5).next == Next::kEnd);
}

TEST_CASE("a run gives up after the allowed number of restarts") {
  const std::vector<Attempt> attempts = {ended(137, 7, 4), ended(137, 12, 9), ended(12, 20, 19)};
  CHECK(decide(attempts, 3).next == Next::kRestart);
  const auto last = decide(attempts, 2);
  CHECK(last.next == Next::kGiveUp);
  CHECK(last.id == "restarts-used-up");
  CHECK(decide({attempts.data(), 1}, 0).next == Next::kEnd);
}

TEST_CASE("two attempts that end at the same step and checkpoint count as no progress") {
  std::vector<Attempt> attempts = {ended(137, 7, 4), ended(12, 7, 4)};
  CHECK(decide(attempts, 9).id == "no-progress");
  // A later step, or a newer checkpoint, is progress.
  attempts[1].last_step = 8;
  CHECK(decide(attempts, 9).next == Next::kRestart);
  attempts[1] = ended(12, 7, 6);
  CHECK(decide(attempts, 9).next == Next::kRestart);
  // An attempt that never reached a step says nothing about the step at which the one before it ended.
  attempts[1] = ended(4, {}, 4);
  CHECK(decide(attempts, 9).next == Next::kRestart);
  CHECK(decide(attempts, 9).pause.count() > 0);
  attempts.push_back(ended(4, {}, 4));
  CHECK(decide(attempts, 9).id == "no-progress");
  // With fewer ranks the outcome may differ.
  attempts.back().ranks = 2;
  CHECK(decide(attempts, 9).next == Next::kRestart);
}

}  // namespace
}  // namespace automodel::launch
