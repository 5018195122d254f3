#include "metrics/event_stream.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "metrics/jsonl.h"
#include "metrics/write_all.h"

namespace automodel::metrics {
namespace {

/// `line` is a JSON object from json_line; `head` becomes its first member.
std::string named(std::string_view head, const std::string& line) {
  return fmt::format("{{{}, {}", head, line.substr(1));
}

}  // namespace

EventStream::EventStream(int file, Watcher* watcher) : file_(file), watcher_(watcher) {
  std::signal(SIGPIPE, SIG_IGN);
}

void EventStream::pass_on(std::string_view line) {
  if (file_ >= 0) {
    const std::lock_guard lock(mutex_);
    write_all(file_, std::string(line) + "\n");
  }
  if (watcher_ != nullptr) watcher_->offer(line);
}

void EventStream::write_line(std::string_view line) {
  pass_on(line);
  if (watcher_ == nullptr) return;
  for (const auto& note : watcher_->take_notes()) log::warning(note);  // which is an event again, through logged()
}

void EventStream::add(const Event& event) {
  write_line(json_line(event, now_seconds()));
}

void EventStream::logged(std::string_view warning) {
  pass_on(json_line({.event = "warning", .message = std::string(warning)}, now_seconds()));
}

void EventStream::step(const StepRecord& record) {
  write_line(named("\"event\": \"step\"", json_line(view_of(record))));
}

void EventStream::ranks(const RankTimes& times) {
  write_line(named("\"event\": \"ranks\"", json_line(view_of(times))));
}

void EventStream::validation(const ValidationRecord& record, std::string_view name) {
  write_line(
      named(fmt::format("\"event\": \"validation\", \"name\": {}", json_text(name)), json_line(view_of(record))));
}

Event end_event(int exit_code, std::string_view cause) {
  Event out{.event = "end", .fields = {{"exit_code", static_cast<std::int64_t>(exit_code)}}};
  if (exit_code == static_cast<int>(ExitCode::kOk))
    out.message = "all steps are done";
  else if (exit_code == static_cast<int>(ExitCode::kStopped))
    out.message = "stopped by a signal";
  else
    out.message = "failed";
  const bool failed = out.message == "failed";  // else the last line may be one of mpirun's
  if (failed && !cause.empty()) out.fields.emplace_back("cause", std::string(cause));
  return out;
}

int take_standard_output() {
  const int kept = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (kept < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
    throw Error(Diagnostic{"cannot-write"}
                    .says(std::string("standard output cannot be duplicated: ") + std::strerror(errno))
                    .hint("open it, and standard error (ulimit -n is the limit on open files)"));
  return kept;
}

}  // namespace automodel::metrics
