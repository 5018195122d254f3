#include "launch/supervisor.h"

#include <cstdio>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/diagnostic.h"
#include "base/error.h"

namespace automodel::launch {
namespace {

void say(const std::string& text) {
  std::fputs((text + "\n").c_str(), stderr);
}

/// Why there is no further attempt; the cause of the last one stays the last line.
void say_end(const Decision& decision, const Attempt& last) {
  const bool stuck = decision.id == "no-progress";
  say(to_text(Diagnostic{decision.id,
                         decision.message,
                         stuck ? "the cause below is in the run itself: more restarts would end as these did"
                               : "give it more with --max-restarts, or mend the cause below; the same command goes on "
                                 "from the newest checkpoint",
                         {},
                         ""}));
  if (!last.cause.empty()) say(last.cause);
}

}  // namespace

Attempt supervise(const Supervision& supervision) {
  std::vector<Attempt> attempts;
  while (true) {
    const auto run = watch_ranks(supervision.job);
    auto& attempt =
        attempts.emplace_back(Attempt{.code = run.code, .told_to_stop = run.told_to_stop, .cause = run.cause});
    supervision.look(attempt);
    auto decision = decide(attempts, supervision.max_restarts);
    if (decision.next == Next::kEnd) return attempt;
    if (decision.next == Next::kRestart)
      if (const auto what = supervision.changed(); !what.empty())
        decision = {.next = Next::kGiveUp,
                    .id = "changed-while-running",
                    .message = what + " has changed since the run began, so it is not restarted"};
    supervision.note(attempt, decision);
    if (decision.next == Next::kGiveUp) {
      say_end(decision, attempt);
      return attempt;
    }
    say(decision.message + (attempt.cause.empty() ? "" : ": " + attempt.cause));
    std::this_thread::sleep_for(decision.pause);  // SIGTERM and Ctrl-C end this process here: no rank runs
  }
}

}  // namespace automodel::launch
