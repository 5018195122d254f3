// JSON rows: JSON lines, an array of objects, or a sequence of objects.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "rows/rows.h"

namespace automodel::rows {

/// The text of a file, owned or memory-mapped, that rows are cut from.
class Text {
 public:
  virtual ~Text() = default;
  virtual std::string_view view() const = 0;
};
/// Maps a file; throws std::system_error.
std::shared_ptr<const Text> map_text(const std::filesystem::path& file);
std::shared_ptr<const Text> own_text(std::string text);

/// Only finds where rows begin and end; a row is parsed when it is read. `file` is for messages. A byte order mark and
/// blank lines are skipped. Adds `bad-row` if an array is cut off.
std::unique_ptr<Rows> json_rows(std::shared_ptr<const Text> text, const std::string& file, Diagnostics& problems);

/// Whether a file holds one document rather than one row per line.
bool is_document(std::string_view text);

}  // namespace automodel::rows
