#include "launch/supervisor.h"

#include <cstdio>
#include <string_view>
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

std::string_view help_for(ProblemId id) {
  if (id == "no-progress") return "the cause below is in the run itself: more restarts would fail as these did";
  if (id == "changed-while-running")
    return "start it by hand, if the change is meant: the same command goes on from the newest checkpoint";
  if (id == "checkpoints-gone")
    return "bring it back (a disk of a lost host?), and the same command goes on; a restart would begin at step 0. "
           "checkpoint.checkpoint_dir belongs on a file system that every host sees";
  if (id == "too-few-ranks")
    return "bring hosts back, or lower --min-ranks; the same command goes on from the newest checkpoint";
  return "give it more with --max-restarts, or fix the cause below; the same command goes on from the newest "
         "checkpoint";
}

/// Prints why there is no further attempt; the last attempt's cause remains the last line.
void say_end(const Decision& decision, const Attempt& last) {
  say(to_text(Diagnostic{*decision.id, decision.message, std::string(help_for(*decision.id))}));
  if (!last.cause.empty()) say(last.cause);
}

}  // namespace

Attempt supervise(const Supervision& supervision) {
  std::vector<Attempt> attempts;
  auto job = supervision.job;
  while (true) {
    const auto run = watch_ranks(job);
    auto& attempt = attempts.emplace_back(
        Attempt{.code = run.code, .told_to_stop = run.told_to_stop, .ranks = job.ranks, .cause = run.cause});
    supervision.look(attempt);
    auto decision = decide(attempts, supervision.max_restarts);
    if (decision.next == Next::kEnd) {
      if (!run.cause_last && attempt.code != static_cast<int>(ExitCode::kOk) &&
          attempt.code != static_cast<int>(ExitCode::kStopped))
        say(attempt.cause);
      return attempt;
    }
    if (decision.next == Next::kRestart)
      if (const auto what = supervision.changed(); !what.empty())
        decision = {.next = Next::kGiveUp,
                    .id = ProblemId("changed-while-running"),
                    .message = what + " has changed since the run began, so it is not restarted"};
    if (const auto folder = decision.next == Next::kEnd ? "" : supervision.folder_lost(); !folder.empty())
      decision = {.next = Next::kGiveUp,
                  .id = ProblemId("checkpoints-gone"),
                  .message = fmt::format("the checkpoint folder '{}' no longer exists", folder)};
    if (decision.next == Next::kRestart && supervision.next_job) {
      std::string why;
      if (auto next = supervision.next_job(why))
        job = std::move(*next);
      else
        decision = {.next = Next::kGiveUp, .id = ProblemId("too-few-ranks"), .message = why};
    }
    supervision.note(attempt, decision, job);
    if (decision.next == Next::kGiveUp) {
      say_end(decision, attempt);
      return attempt;
    }
    say(decision.message + (attempt.cause.empty() ? "" : ": " + attempt.cause));
    std::this_thread::sleep_for(decision.pause);  // no rank runs now, so SIGTERM and Ctrl-C simply end this process
  }
}

}  // namespace automodel::launch
