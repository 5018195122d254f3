// Rows of a table, whatever file format holds them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/diagnostic.h"

namespace automodel::rows {

/// Limits of a row, whatever file holds it. A row's objects take memory in proportion to its text (about 60 bytes a
/// byte), and time that grows with the square of an object's keys.
inline constexpr std::size_t kMostColumns = 10'000;                  ///< keys of one object
inline constexpr std::size_t kMostDepth = 64;                        ///< of lists and objects inside each other
inline constexpr std::size_t kMostRowBytes = std::size_t{16} << 20;  ///< of a row as JSON text

/// A row that cannot be read, and its location.
class RowError : public std::runtime_error {
 public:
  RowError(const std::string& reason, SourceLocation at) : std::runtime_error(reason), where(std::move(at)) {}
  SourceLocation where;
};

class Rows {
 public:
  Rows() = default;
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;
  virtual ~Rows() = default;

  virtual std::int64_t size() const = 0;
  /// Row `index` as a JSON object, its keys in file order; a cell without a value is null or absent, a binary cell is
  /// {"bytes": its number}. Throws RowError. Thread-safe.
  virtual void read(std::int64_t index, nlohmann::ordered_json& out) const = 0;
  /// The content of that binary cell of the row, 64 MiB at most. Throws RowError, also where rows are text and have
  /// none. Thread-safe.
  virtual std::string bytes(std::int64_t index, std::int64_t cell) const;
  /// File and line (from 1) of a row; formats without lines use the row number.
  virtual SourceLocation where(std::int64_t index) const = 0;
};

/// Several tables, one after another.
std::unique_ptr<Rows> concatenate(std::vector<std::unique_ptr<Rows>> parts);

/// Rows [from, to).
struct RowSpan {
  std::int64_t from = 0, to = 0;
};

/// The rows of several spans of a table, one after another.
std::unique_ptr<Rows> select(std::unique_ptr<Rows> rows, std::vector<RowSpan> spans);
/// Rows order[0], order[1], ... of a table.
std::unique_ptr<Rows> select(std::unique_ptr<Rows> rows, const std::vector<std::int64_t>& order);

}  // namespace automodel::rows
