#include "launch/restart_rule.h"

#include <algorithm>
#include <array>
#include <csignal>

#include <fmt/format.h>

#include "base/error.h"

namespace automodel::launch {
namespace {

constexpr int kKilled = 128;
/// For a run that did not complete a step: a host or a file system may need time to recover.
constexpr std::chrono::seconds kStartupPause{5};

constexpr std::array kFinal = {static_cast<int>(ExitCode::kOk),        static_cast<int>(ExitCode::kBadInput),
                               static_cast<int>(ExitCode::kRefused),   static_cast<int>(ExitCode::kStopped),
                               static_cast<int>(ExitCode::kNonFinite), kKilled + SIGINT};

std::string where(const Attempt& attempt) {
  return attempt.last_step ? fmt::format("after step {}", *attempt.last_step) : "before the first step";
}

}  // namespace

bool may_pass(int code) {
  return std::find(kFinal.begin(), kFinal.end(), code) == kFinal.end();
}

Decision decide(std::span<const Attempt> attempts, int max_restarts) {
  AUTOMODEL_CHECK(!attempts.empty(), "a decision needs an attempt");
  const auto& last = attempts.back();
  if (max_restarts == 0 || last.told_to_stop || !may_pass(last.code)) return {};
  const auto restarts = static_cast<int>(attempts.size()) - 1;
  if (restarts > 0) {
    const auto& before = attempts[attempts.size() - 2];
    if (before.ranks == last.ranks && before.last_step == last.last_step && before.saved_step == last.saved_step)
      return {.next = Next::kGiveUp,
              .id = ProblemId("no-progress"),
              .message = fmt::format("two consecutive attempts ended {} (exit codes {} and {})", where(last),
                                     before.code, last.code)};
  }
  if (restarts >= max_restarts)
    return {.next = Next::kGiveUp,
            .id = ProblemId("restarts-used-up"),
            .message = fmt::format("the run ended {} (exit code {}) and was restarted {} time{} already", where(last),
                                   last.code, restarts, restarts == 1 ? "" : "s")};
  return {
      .next = Next::kRestart,
      .pause = last.last_step ? std::chrono::seconds(0) : kStartupPause,
      .message = fmt::format("restart {} of {}: exit code {} {}", restarts + 1, max_restarts, last.code, where(last))};
}

}  // namespace automodel::launch
