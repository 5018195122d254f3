// A run's progress in machine-readable form: `automodel train --json`.
#pragma once

#include <mutex>
#include <string_view>

#include "metrics/event_log.h"
#include "metrics/step_record.h"
#include "metrics/watcher.h"

namespace automodel::metrics {

/// JSON lines on a descriptor, each a single write(2) unless the descriptor is full: the events of events.jsonl,
/// interleaved with a "step" line per record of training.jsonl, a "ranks" line per record of ranks.jsonl and a
/// "validation" line per record of validation.jsonl. Thread-safe. The run continues if the reader goes away.
class EventStream {
 public:
  /// `file` remains owned by the caller; -1: nobody reads. `watcher`: gets the same lines; null if there is none.
  explicit EventStream(int file, Watcher* watcher = nullptr);
  EventStream(const EventStream&) = delete;
  EventStream& operator=(const EventStream&) = delete;

  /// Whether lines are printed, so that standard output is theirs.
  bool prints() const { return file_ >= 0; }
  /// Timestamps the event with the current time.
  void add(const Event& event);
  /// A warning of the log, for the log's listener: unlike the others this never logs what the watcher has to say,
  /// because the log is locked while its listener runs.
  void logged(std::string_view warning);
  void step(const StepRecord& record);
  void ranks(const RankTimes& times);
  /// `name`: the validation set's name, "default" for an unnamed one.
  void validation(const ValidationRecord& record, std::string_view name);

 private:
  void pass_on(std::string_view line);
  void write_line(std::string_view line);

  int file_;
  Watcher* watcher_;
  std::mutex mutex_ = {};
};

/// The final event of a run. `cause`: one line saying why it failed; empty if it did not.
Event end_event(int exit_code, std::string_view cause);

/// Returns a duplicate of standard output; from then on everything else that is printed there goes to standard error.
/// Throws Error (environment) if no descriptor is available.
int take_standard_output();

}  // namespace automodel::metrics
