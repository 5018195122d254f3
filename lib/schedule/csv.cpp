#include "schedule/csv.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "schedule/torch_waits.h"

namespace automodel::schedule {
namespace {

constexpr std::array<std::pair<CsvFormat, std::string_view>, 2> kFormats = {{
    {CsvFormat::kComputeOnly, "compute_only"},
    {CsvFormat::kComputeComms, "compute_comms"},
}};
/// Also bounds how much is read from an arbitrary file.
constexpr std::uintmax_t kMaxBytes = std::uintmax_t{64} << 20;

class CsvReader {
 public:
  CsvReader(CsvTable& table, CsvFormat format) : table_(table), format_(format) {}

  void read() {
    const std::string_view text = table_.origin.text();
    if (!sizes_ok(text)) return;
    std::string_view rest = text;
    while (!rest.empty()) {
      const std::size_t end = rest.find('\n');
      std::string_view line = rest.substr(0, end);
      if (line.ends_with('\r')) line.remove_suffix(1);
      read_line(line);
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    }
    if (dropped_ > 0)
      table_.problems.add("schedule-csv-cell").says("{} more problems like these", dropped_).at(table_.origin.whole());
  }

 private:
  /// Checks the sizes before anything is allocated.
  bool sizes_ok(std::string_view text) {
    const auto count = [&](char c) { return static_cast<std::size_t>(std::count(text.begin(), text.end(), c)); };
    const std::size_t lines = count('\n') + (text.empty() || text.back() == '\n' ? 0 : 1);
    if (text.empty())
      table_.problems.add("schedule-csv-empty")
          .says("the schedule file is empty")
          .hint("a schedule has one line a pipeline rank")
          .at(table_.origin.whole());
    if (lines > static_cast<std::size_t>(kMaxRanks) || lines + count(',') > kMaxCells)
      table_.problems.add("schedule-too-large")
          .says("the schedule file has {} lines and {} cells", lines, lines + count(','))
          .hint("at most {} lines (ranks) and {} cells", kMaxRanks, kMaxCells)
          .at(table_.origin.whole());
    if (!table_.problems.empty()) return false;
    table_.schedule.reserve(lines);
    return true;
  }

  void read_line(std::string_view line) {
    Row& row = table_.schedule.emplace_back();
    done_.clear();
    waited_for_.clear();
    if (line.find_first_not_of(" \t") == std::string_view::npos) return;
    row.reserve(static_cast<std::size_t>(std::count(line.begin(), line.end(), ',')) + 1);
    std::size_t begin = 0;
    while (true) {
      const std::size_t end = std::min(line.find(',', begin), line.size());
      read_cell(line.substr(begin, end - begin), begin, row);
      if (end == line.size()) return;
      begin = end + 1;
    }
  }

  void read_cell(std::string_view cell, std::size_t column, Row& row) {
    if (const auto action = parse_wait(cell)) return read_wait(*action, cell, column, row);
    ParseProblem problem;
    const auto slot = parse_slot(cell, problem);
    if (!slot) {
      report("schedule-csv-cell", std::move(problem), column, row);
      row.emplace_back();
      return;
    }
    for (const Action& action : slot->actions())
      if (!is_compute(action.op())) done_.insert(to_text(action));
    if (format_ == CsvFormat::kComputeComms && slot->is_bubble())
      report("schedule-csv-bubble", {0, "an empty cell in a table with communication", "remove it"}, column, row);
    if (format_ == CsvFormat::kComputeOnly && !slot->is_bubble() && !is_compute(slot->actions()[0].op()))
      report("schedule-csv-communication",
             {cell.find_first_not_of(" \t"), fmt::format("{} in a compute_only table", to_text(*slot)),
              "only F, I, W, B and OVERLAP_F_B may stand there: communication is added later; a table that is complete "
              "has the format compute_comms"},
             column, row);
    row.push_back(*slot);
  }

  /// A wait of PyTorch 2.15 becomes an idle step, so that positions stay those of the file.
  void read_wait(const Action& action, std::string_view cell, std::size_t column, Row& row) {
    const std::string text = to_text(action);
    const std::size_t offset = cell.find_first_not_of(" \t");
    if (format_ == CsvFormat::kComputeOnly)
      report("schedule-csv-communication",
             {offset, fmt::format("a wait for {} in a compute_only table", text), "only F, I, W, B and OVERLAP_F_B"},
             column, row);
    else if (!done_.contains(text))
      report("schedule-wait",
             {offset, fmt::format("a wait for {} before it", text), "a wait follows what it waits for"}, column, row);
    else if (!waited_for_.insert(text).second)
      report("schedule-wait", {offset, fmt::format("a second wait for {}", text), "one wait per message or reduction"},
             column, row);
    row.emplace_back();
  }

  /// `column` is the cell's offset in its line; `row` does not contain the cell yet.
  void report(ProblemId id, ParseProblem problem, std::size_t column, const Row& row) {
    if (table_.problems.size() >= kMostProblems) {
      ++dropped_;
      return;
    }
    const std::size_t rank = table_.schedule.size() - 1;
    SourceLocation where = table_.origin.row(rank);
    where.column = static_cast<int>(column + problem.offset) + 1;
    table_.problems.add(id)
        .says("rank {}, step {}: {}", rank, row.size(), problem.message)
        .hint(std::move(problem.help))
        .at(std::move(where));
  }

  CsvTable& table_;
  CsvFormat format_;
  std::unordered_set<std::string> done_ = {};        // messages, gathers and reductions of this row
  std::unordered_set<std::string> waited_for_ = {};  // of those, what a wait has named
  std::size_t dropped_ = 0;
};

}  // namespace

std::string_view name_of(CsvFormat format) {
  return kFormats[static_cast<std::size_t>(format)].second;
}

CsvTable read_csv(std::string text, std::string file, CsvFormat format) {
  CsvTable table;
  table.origin = Origin(std::move(file), std::move(text));
  CsvReader(table, format).read();
  return table;
}

CsvTable load_csv(const std::string& path, CsvFormat format) {
  const auto refused = [&](std::string message) {
    CsvTable table;
    table.origin = Origin(path);
    table.problems.add("schedule-csv-file")
        .says(std::move(message))
        .hint(
            "pp_schedule_csv names a file with one line a "
            "pipeline rank")
        .at(table.origin.whole());
    return table;
  };
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    return refused(std::filesystem::exists(path, error) ? "not a file" : "no such file");
  const auto size = std::filesystem::file_size(path, error);
  if (error || size > kMaxBytes) return refused(error ? error.message() : "larger than any schedule");
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  if (!(text << stream.rdbuf()) && size > 0) return refused("cannot be read");
  return read_csv(std::move(text).str(), path, format);
}

std::string to_csv(const Schedule& schedule) {
  std::string out;
  for (const Row& row : schedule) out += to_text(row) + "\r\n";
  return out;
}

}  // namespace automodel::schedule
