// Scalars as TensorBoard event files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "metrics/append_file.h"
#include "metrics/step_record.h"

namespace automodel::metrics {

/// Writes one event file, events.out.tfevents.SECONDS.HOST.PID.0: TFRecords of Event messages (tensorflow's
/// event.proto and summary.proto) encoded by hand.
class EventFile {
 public:
  /// Makes a new file in `folder` for a run whose first step is `first_step`. Where that is not 0 the file begins with
  /// the mark of a restart, at which TensorBoard forgets what earlier files of the folder hold from that step on.
  /// Throws Error (environment) where it cannot be made.
  EventFile(const std::filesystem::path& folder, std::int64_t first_step);

  /// Every number of the record as "PREFIX/KEY" (train/loss, validation/val_loss), in single precision.
  void append(const RecordView& record, std::string_view prefix);
  const std::filesystem::path& path() const { return file_->path(); }

 private:
  std::unique_ptr<AppendFile> file_;
};

}  // namespace automodel::metrics
