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

/// Writes one event file, events.out.tfevents.SECONDS.HOST.PID.N: TFRecords of Event messages (TensorFlow's event.proto
/// and summary.proto), encoded by hand.
class EventFile {
 public:
  /// Creates a new file in `folder` for a run whose first step is `first_step`. If that is not 0, the file begins with
  /// a restart marker, which makes TensorBoard drop everything that earlier files in the folder hold from that step on.
  /// Throws Error (environment) if the file cannot be created.
  EventFile(const std::filesystem::path& folder, std::int64_t first_step);

  /// Writes every scalar of the record as "PREFIX/KEY" (train/loss, validation/val_loss), in single precision.
  void append(const RecordView& record, std::string_view prefix);
  const std::filesystem::path& path() const { return file_->path(); }

 private:
  std::unique_ptr<AppendFile> file_;
};

}  // namespace automodel::metrics
