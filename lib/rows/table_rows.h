// Rows of Parquet and Arrow files, and compressed text, through the shared object built on Apache Arrow.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "rows/json_rows.h"
#include "rows/rows.h"

struct AutomodelTableModule;

namespace automodel::rows {

enum class TableKind { kParquet, kArrow };

/// Opens the shared object on first use. Null after adding `unavailable` if it was not built or cannot be loaded, or
/// `bad-table` if the file is damaged.
std::unique_ptr<Rows> table_rows(const std::filesystem::path& file, TableKind kind, Diagnostics& problems);

/// Opens the shared object from the first of `places` that contains it; null after adding `unavailable` about `file`.
const AutomodelTableModule* open_table_module(const std::vector<std::filesystem::path>& places,
                                              const std::filesystem::path& file, Diagnostics& problems);

/// The content of a .gz or .zst file; null after adding the same problems.
std::shared_ptr<const Text> inflate_text(const std::filesystem::path& file, Diagnostics& problems);

}  // namespace automodel::rows
