// Arbitrary bytes as a Parquet file, an Arrow file or compressed text (selected by the first byte): rows or problems.
// Every row can be read or fails with a reason; nothing but a RowError is thrown.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <unistd.h>

#include "rows/table_rows.h"

namespace {

using namespace automodel;  // NOLINT(google-build-using-namespace): a program of one file

constexpr std::int64_t kMostRows = 1000;

/// A file in memory, with a name.
class File {
 public:
  File(const std::uint8_t* data, std::size_t size) : handle_(memfd_create("fuzz", 0)) {
    for (std::size_t done = 0; done < size;) {
      const auto written = write(handle_, data + done, size - done);
      if (written <= 0) std::abort();
      done += static_cast<std::size_t>(written);
    }
  }
  ~File() { close(handle_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(handle_); }

 private:
  int handle_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const File file(data + 1, size - 1);
  Diagnostics problems;
  if (data[0] % 3 == 2) {
    const auto text = rows::inflate_text(file.path(), problems);
    if (!text && problems.empty()) std::abort();
    return 0;
  }
  const auto kind = data[0] % 3 == 0 ? rows::TableKind::kParquet : rows::TableKind::kArrow;
  const auto rows = rows::table_rows(file.path(), kind, problems);
  if (!rows && problems.empty()) std::abort();
  for (const auto& problem : problems)
    if (problem.message.empty() || problem.id == "unavailable") std::abort();
  if (!rows) return 0;
  for (std::int64_t i = 0; i < std::min(rows->size(), kMostRows); ++i) {
    nlohmann::ordered_json row;
    try {
      rows->read(i, row);
      if (!row.is_object()) std::abort();
      rows->bytes(i, 0);
    } catch (const rows::RowError& error) {
      if (std::string(error.what()).empty()) std::abort();
    }
  }
  return 0;
}
