// Rows of comma- and tab-separated values.
#pragma once

#include <memory>
#include <string>

#include "rows/json_rows.h"
#include "rows/rows.h"

namespace automodel::rows {

/// The first record names the columns. Fields may stand in double quotes, which are doubled within; then they may hold
/// separators and line ends. A field is text as it stands (numbers too), an empty one is null. Adds `bad-row` where
/// quotes do not end or columns have the same name.
std::unique_ptr<Rows> csv_rows(std::shared_ptr<const Text> text, char separator, const std::string& file,
                               Diagnostics& problems);

}  // namespace automodel::rows
