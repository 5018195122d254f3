// Rows of comma- or tab-separated values.
#pragma once

#include <memory>
#include <string>

#include "rows/json_rows.h"
#include "rows/rows.h"

namespace automodel::rows {

/// The first record names the columns. A field may be enclosed in double quotes, doubled inside it, and may then
/// contain separators and line ends. Fields, numbers included, are kept as text; an empty field is null. Adds `bad-row`
/// for an unclosed quote or duplicate column names.
std::unique_ptr<Rows> csv_rows(std::shared_ptr<const Text> text, char separator, const std::string& file,
                               Diagnostics& problems);

}  // namespace automodel::rows
