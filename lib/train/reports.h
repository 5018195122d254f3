// The outputs of a run's records and events.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "config/recipe.h"
#include "metrics/console.h"
#include "metrics/event_log.h"
#include "metrics/event_stream.h"
#include "metrics/jsonl.h"
#include "metrics/step_record.h"
#include "metrics/tensorboard.h"

namespace automodel::train {

/// The console, the files in checkpoint_dir, and a stream for other programs, if there is one: output for people then
/// goes to standard error.
class Reports {
 public:
  /// `active`: false on every rank but the first, which makes this object ignore everything. Throws Error
  /// (kEnvironment) if the folder or a file cannot be created.
  Reports(const config::Recipe& recipe, bool active, bool cuda, std::int64_t first_step, std::int64_t end_step,
          metrics::EventStream* stream);
  ~Reports();
  Reports(const Reports&) = delete;
  Reports& operator=(const Reports&) = delete;

  void line(const std::string& text);
  /// On a terminal, in place of the bar until the next line.
  void status(const std::string& text);
  void step(const metrics::StepRecord& record);
  /// `name`: name of the validation set; "default" for one without a name.
  void validation(const metrics::ValidationRecord& record, const std::string& name);
  void ranks(const metrics::RankTimes& times);
  void event(const metrics::Event& event);
  /// Records the run's last event. The stream gets it from the process that knows the exit code of all ranks instead.
  void end(ExitCode code);
  const std::filesystem::path& folder() const { return folder_; }

 private:
  const config::Recipe& recipe_;
  metrics::EventStream* stream_ = nullptr;
  std::filesystem::path folder_;
  std::int64_t first_step_ = 0;
  std::optional<metrics::JsonLines> training_, ranks_;
  std::optional<metrics::EventLog> history_;
  std::map<std::string, std::unique_ptr<metrics::JsonLines>> validation_;
  std::optional<metrics::EventFile> events_;
  std::unique_ptr<metrics::Console> console_;
};

}  // namespace automodel::train
