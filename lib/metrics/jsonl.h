// Records as JSON lines: training.jsonl, validation.jsonl.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "metrics/append_file.h"
#include "metrics/step_record.h"

namespace automodel::metrics {

/// One line without its line break: {"step": 0, "epoch": 0, "timestamp": "2026-11-21T12:00:00.000Z", "loss": 2.5, ...}.
/// The timestamp is ISO 8601 in UTC with milliseconds, as in NeMo AutoModel. Numbers are the shortest text that reads
/// back as the same double, always with a point or an exponent, so that a column keeps its type. Non-finite values,
/// which JSON cannot represent as numbers, are written as the strings "NaN", "Infinity" and "-Infinity", which any JSON
/// parser accepts and float("Infinity") converts back in most languages. Unknown values are null.
std::string json_line(const RecordView& record);

/// A number, a time and a string as such a line has them; invalid UTF-8 is replaced.
std::string number_text(double value);
std::string time_text(double timestamp);
std::string json_text(std::string_view text);
/// Seconds since 1970-01-01 UTC.
double now_seconds();

/// Appends one line per record.
class JsonLines {
 public:
  /// Opens or creates the file for a run whose first step is `first_step`. Lines of an earlier run at or after that
  /// step are removed, and so is anything that is not a record (a line torn by a crash), so that each step appears
  /// once. Throws Error (environment) if the file cannot be opened or rewritten.
  JsonLines(const std::filesystem::path& path, std::int64_t first_step);

  void append(const RecordView& record);

 private:
  AppendFile file_;
};

}  // namespace automodel::metrics
