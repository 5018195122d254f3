// Arbitrary bytes as rows of JSON, CSV or TSV (selected by the first byte): rows or problems. Every row can be read or
// fails with a reason, and the same the second time.
#include <cstdint>
#include <cstdlib>
#include <string>

#include <nlohmann/json.hpp>

#include "rows/csv_rows.h"
#include "rows/json_rows.h"

namespace {

using namespace automodel;  // NOLINT(google-build-using-namespace): a program of one file

/// The row as text, or the reason why there is none.
std::string row_of(const rows::Rows& rows, std::int64_t index) {
  nlohmann::ordered_json row;
  try {
    rows.read(index, row);
  } catch (const rows::RowError& error) {
    if (std::string(error.what()).empty() || error.where.line < 1) std::abort();
    return error.what();
  }
  if (!row.is_object()) std::abort();
  return row.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto text = rows::own_text(std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
  Diagnostics problems;
  const auto rows = data[0] % 3 == 0   ? rows::json_rows(text, "fuzz", problems)
                    : data[0] % 3 == 1 ? rows::csv_rows(text, ',', "fuzz", problems)
                                       : rows::csv_rows(text, '\t', "fuzz", problems);
  if (!rows && problems.empty()) std::abort();
  for (const auto& problem : problems)
    if (problem.message.empty()) std::abort();
  if (!rows) return 0;
  if (rows->size() < 0 || static_cast<std::size_t>(rows->size()) > size) std::abort();
  for (std::int64_t i = 0; i < rows->size(); ++i) {
    if (rows->where(i).line < 1) std::abort();
    if (row_of(*rows, i) != row_of(*rows, i)) std::abort();
  }
  return 0;
}
