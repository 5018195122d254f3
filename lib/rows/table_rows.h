// Rows of Parquet and Arrow files, and compressed texts, through the shared object with Apache Arrow.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "rows/json_rows.h"
#include "rows/rows.h"

struct AutomodelTableModule;

namespace automodel::rows {

enum class TableKind { kParquet, kArrow };

/// The shared object is opened here, the first time. Null after `unavailable` where it was not built or cannot be
/// loaded, or `bad-table` for a file that is damaged.
std::unique_ptr<Rows> table_rows(const std::filesystem::path& file, TableKind kind, Diagnostics& problems);

/// Opens the shared object that is in the first of `places` that has it; null after `unavailable` about `file`.
const AutomodelTableModule* open_table_module(const std::vector<std::filesystem::path>& places,
                                              const std::filesystem::path& file, Diagnostics& problems);

/// The content of a .gz or .zst file; null after the same problems.
std::shared_ptr<const Text> inflate_text(const std::filesystem::path& file, Diagnostics& problems);

}  // namespace automodel::rows
