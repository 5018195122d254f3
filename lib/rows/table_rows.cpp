#include "rows/table_rows.h"

#include <algorithm>
#include <mutex>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/shared_part.h"
#include "rows/bounded_json.h"
#include "rows/module/table_module.h"

namespace automodel::rows {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using Module = AutomodelTableModule;

constexpr const char* kFile = "automodel-table.so";
/// Text of JSON and prose shrinks to a tenth, or to a fiftieth where it repeats itself.
constexpr std::uint64_t kMostInflation = 100, kLeastInflated = std::uint64_t{256} << 20;

void append(void* taker, const char* text, std::size_t size) {
  static_cast<std::string*>(taker)->append(text, size);
}

/// How much text a file may turn into.
std::uint64_t most_text(const fs::path& file) {
  std::error_code error;
  const auto size = fs::file_size(file, error);
  return std::max(kLeastInflated, error ? 0 : size * kMostInflation);
}

Part<Module> opened(const std::vector<fs::path>& places) {
  auto out = open_part<Module>(places, "automodel_table_module", AUTOMODEL_TABLE_VERSION);
  if (out.interface == nullptr && out.reason.empty())
    out.reason = fmt::format("the reader is not installed; looked for {}", shown_places(places));
  return out;
}

const Module* said(const Part<Module>& found, const fs::path& file, Diagnostics& problems) {
  if (found.interface == nullptr)
    problems.add("unavailable")
        .says("'{}' cannot be read: {}", file.native(), found.reason)
        .hint("scripts/install_dependencies.sh gets Apache Arrow; then build again")
        .at({file.native(), 0, 0});
  return found.interface;
}

const Module* module_for(const fs::path& file, Diagnostics& problems) {
  static const auto found = opened(part_places(program_folder(), kFile));
  return said(found, file, problems);
}

void refuse(const fs::path& file, const std::string& reason, Diagnostics& problems) {
  problems.add("bad-table")
      .says("'{}' cannot be read: {}", file.native(), reason)
      .hint(reason.starts_with(AUTOMODEL_TABLE_LIMIT)
                ? "SECURITY.md lists the limits; decompress the file or write it in smaller parts"
                : "the file is damaged or was cut off; copy it again")
      .at({file.native(), 0, 0});
}

/// Columns that `datasets` stores as text although they hold JSON of arbitrary shape.
std::vector<std::string> json_columns(const std::string& features) {
  std::vector<std::string> out;
  const auto root = json_in_text(features);
  const auto info = root.is_object() ? root.value("info", ordered_json()) : ordered_json();
  const auto columns = info.is_object() ? info.value("features", ordered_json()) : ordered_json();
  if (!columns.is_object()) return out;
  for (const auto& [name, feature] : columns.items())
    if (feature.is_object() && feature.contains("_type") && feature["_type"] == "Json") out.push_back(name);
  return out;
}

class TableRows final : public Rows {
 public:
  TableRows(const Module& module, AutomodelTable* table, fs::path file)
      : module_(module),
        table_(table),
        file_(std::move(file)),
        size_(module.rows(table)),
        json_columns_(json_columns(module.features(table))),
        most_(most_text(file_)) {}
  TableRows(const TableRows&) = delete;
  TableRows& operator=(const TableRows&) = delete;
  ~TableRows() override { module_.close(table_); }

  std::int64_t size() const override { return size_; }

  SourceLocation where(std::int64_t index) const override {
    return {file_.native(), static_cast<int>(std::min<std::int64_t>(index + 1, 1 << 30)), 1};
  }
  void read(std::int64_t index, ordered_json& out) const override {
    std::string text;
    bool good = false;
    {
      const std::lock_guard lock(mutex_);
      check_given(index);
      good = module_.read(table_, index, append, &text) != 0;
      if (good) count(index, text.size());
      check_given(index);
    }
    if (!good) refuse_row(index, text);
    out = ordered_json::parse(text, nullptr, false);
    if (!out.is_object()) throw RowError(fmt::format("row {} holds what is not text", index + 1), where(index));
    for (const auto& column : json_columns_) {
      auto& cell = out[column];
      if (!cell.is_string()) continue;
      auto value = json_in_text(cell.get_ref<const std::string&>());
      if (!value.is_discarded()) cell = std::move(value);
    }
  }
  std::string bytes(std::int64_t index, std::int64_t cell) const override {
    std::string out;
    const std::lock_guard lock(mutex_);
    if (module_.bytes(table_, index, cell, append, &out) == 0) refuse_row(index, out);
    return out;
  }

 private:
  [[noreturn]] void refuse_row(std::int64_t index, const std::string& reason) const {
    throw RowError(fmt::format("row {}: {}", index + 1, reason), where(index));
  }
  /// Counts the text of rows as they are first reached: compression may hide any amount.
  void count(std::int64_t index, std::size_t bytes) const {
    if (index < reached_) return;
    reached_ = index + 1;
    given_ += bytes;
  }
  /// Once it is too much, nothing more is decompressed.
  void check_given(std::int64_t index) const {
    if (given_ > most_)
      throw RowError(fmt::format("the rows up to {} hold more than {} bytes of text", reached_, most_), where(index));
  }

  const Module& module_;
  AutomodelTable* table_;
  fs::path file_;
  std::int64_t size_;
  std::vector<std::string> json_columns_;
  std::uint64_t most_;
  mutable std::mutex mutex_;
  mutable std::uint64_t given_ = 0;
  mutable std::int64_t reached_ = 0;
};

}  // namespace

const AutomodelTableModule* open_table_module(const std::vector<fs::path>& places, const fs::path& file,
                                              Diagnostics& problems) {
  return said(opened(places), file, problems);
}

std::unique_ptr<Rows> table_rows(const fs::path& file, TableKind kind, Diagnostics& problems) {
  const Module* module = module_for(file, problems);
  if (module == nullptr) return nullptr;
  std::string reason;
  AutomodelTable* table = module->open(file.c_str(), kind == TableKind::kParquet ? 0 : 1, append, &reason);
  if (table == nullptr) {
    refuse(file, reason, problems);
    return nullptr;
  }
  return std::make_unique<TableRows>(*module, table, file);
}

std::shared_ptr<const Text> inflate_text(const fs::path& file, Diagnostics& problems) {
  const Module* module = module_for(file, problems);
  if (module == nullptr) return nullptr;
  struct Taker {
    std::string text = {};
    std::string reason = {};
  } taker;
  const auto take = [](void* to, const char* text, std::size_t size) {
    static_cast<Taker*>(to)->text.append(text, size);
  };
  const auto fail = [](void* to, const char* text, std::size_t size) {
    static_cast<Taker*>(to)->reason.append(text, size);
  };
  if (module->inflate(file.c_str(), static_cast<std::int64_t>(most_text(file)), take, fail, &taker) == 0) {
    refuse(file, taker.reason, problems);
    return nullptr;
  }
  return own_text(std::move(taker.text));
}

}  // namespace automodel::rows
