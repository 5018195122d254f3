#include "rows/csv_rows.h"

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/utf8.h"

namespace automodel::rows {
namespace {

struct Cell {
  std::string text;
  bool quoted = false;
};

/// Reads the record at `at` and advances `at` past it. Null if a quote is never closed.
std::optional<std::vector<Cell>> read_record(std::string_view text, std::size_t& at, char separator) {
  std::vector<Cell> out(1);
  while (at < text.size()) {
    const char c = text[at++];
    Cell& cell = out.back();
    if (c == '"' && cell.text.empty() && !cell.quoted) {
      cell.quoted = true;
      for (;;) {
        const std::size_t end = text.find('"', at);
        if (end == std::string_view::npos) return std::nullopt;
        cell.text.append(text.substr(at, end - at));
        at = end + 1;
        if (at >= text.size() || text[at] != '"') break;
        cell.text += '"';
        ++at;
      }
    } else if (c == separator) {
      out.emplace_back();
    } else if (c == '\n') {
      return out;
    } else if (c != '\r' || at >= text.size() || text[at] != '\n') {
      cell.text += c;
    }
  }
  return out;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const auto length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

class CsvRows final : public Rows {
 public:
  struct Place {
    std::size_t begin;
    int line;
  };
  CsvRows(std::shared_ptr<const Text> text, char separator, std::string file, std::vector<std::string> columns,
          std::vector<Place> places)
      : text_(std::move(text)),
        separator_(separator),
        file_(std::move(file)),
        columns_(std::move(columns)),
        places_(std::move(places)) {}
  std::int64_t size() const override { return static_cast<std::int64_t>(places_.size()); }
  SourceLocation where(std::int64_t index) const override {
    return {file_, places_[static_cast<std::size_t>(index)].line, 1};
  }
  void read(std::int64_t index, nlohmann::ordered_json& out) const override {
    std::size_t at = places_[static_cast<std::size_t>(index)].begin;
    const auto cells = read_record(text_->view(), at, separator_);
    if (!cells || cells->size() != columns_.size())
      throw RowError(
          fmt::format("the row has {} fields, the first line {}", cells ? cells->size() : 0, columns_.size()),
          where(index));
    out = nlohmann::ordered_json::object();
    // The columns differ, so nothing needs to look for the name.
    std::vector<nlohmann::ordered_json::object_t::value_type>& row = out.get_ref<nlohmann::ordered_json::object_t&>();
    row.reserve(columns_.size());
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const Cell& cell = (*cells)[i];
      if (!is_utf8(cell.text))
        throw RowError(fmt::format("column '{}' is not UTF-8 text: save the file as UTF-8", columns_[i]), where(index));
      if (cell.text.empty() && !cell.quoted)
        row.emplace_back(columns_[i], nullptr);
      else
        row.emplace_back(columns_[i], cell.text);
    }
  }

 private:
  std::shared_ptr<const Text> text_;
  char separator_;
  std::string file_;
  std::vector<std::string> columns_;
  std::vector<Place> places_;
};

}  // namespace

std::unique_ptr<Rows> csv_rows(std::shared_ptr<const Text> text, char separator, const std::string& file,
                               Diagnostics& problems) {
  const std::string_view view = text->view();
  std::size_t at = view.starts_with("\xEF\xBB\xBF") ? 3 : 0;
  int line = 1;
  std::vector<std::string> columns;
  std::vector<CsvRows::Place> places;
  bool first = true;
  while (at < view.size()) {
    const std::size_t begin = at;
    const int begin_line = line;
    const auto cells = read_record(view, at, separator);
    if (!cells) {
      problems.add("bad-row")
          .says("a quoted field does not end")
          .hint("quotes within a field are doubled")
          .at({file, begin_line, 1});
      return nullptr;
    }
    line += static_cast<int>(std::count(view.begin() + static_cast<std::ptrdiff_t>(begin),
                                        view.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
    if (cells->size() == 1 && cells->front().text.empty()) continue;
    if (!first) {
      places.push_back({begin, begin_line});
      continue;
    }
    first = false;
    if (cells->size() > kMostColumns) {
      problems.add("bad-row")
          .says("the file has {} columns; at most {} are read", cells->size(), kMostColumns)
          .hint("the first line names the columns")
          .at({file, begin_line, 1});
      return nullptr;
    }
    std::unordered_set<std::string_view> known;
    for (const auto& cell : *cells) {
      if (!known.insert(cell.text).second) {
        problems.add("bad-row")
            .says("two columns are called '{}'", cell.text)
            .hint("the first line names the columns, each once")
            .at({file, begin_line, 1});
        return nullptr;
      }
      columns.push_back(cell.text);
    }
  }
  return std::make_unique<CsvRows>(std::move(text), separator, file, std::move(columns), std::move(places));
}

}  // namespace automodel::rows
