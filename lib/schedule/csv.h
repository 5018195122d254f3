// Schedules as CSV files in the format of torch.distributed.pipelining: one line per rank and one cell per action; an
// empty cell is an idle step. Lines may differ in length; there are no headers and no quotes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/diagnostic.h"
#include "schedule/action.h"
#include "schedule/origin.h"

namespace automodel::schedule {

enum class CsvFormat : std::uint8_t {
  kComputeOnly,   ///< F, I, W, B, overlaps and idle steps; communication is added by lower()
  kComputeComms,  ///< the complete table including communication, without idle steps
};
/// "compute_only", "compute_comms".
std::string_view name_of(CsvFormat format);

/// Tables with more cells are rejected ("schedule-too-large").
inline constexpr std::size_t kMaxCells = std::size_t{1} << 22;
/// Problem lists are cut off after about this many; a final entry gives the number of further problems.
inline constexpr std::size_t kMostProblems = 50;

struct CsvTable {
  Schedule schedule = {};
  Origin origin = {};
  Diagnostics problems = {};  ///< empty if every cell is well-formed and allowed by the format
};

/// Parses `text`. Lines end in LF or CRLF. A blank line is a rank without actions, which torch also counts and
/// validate() rejects. `file` names the text in messages. Ids: schedule-csv-cell (not an action),
/// schedule-csv-communication (SEND_F, ... in a compute_only file), schedule-csv-bubble (an empty cell in a
/// compute_comms file), schedule-wait (a wait of PyTorch
/// 2.15 before what it waits for, or a second one; in order it becomes an idle step), schedule-csv-empty,
/// schedule-too-large. Memory is proportional to the size of the text.
CsvTable read_csv(std::string text, std::string file, CsvFormat format);
/// The same from a file; id schedule-csv-file if it cannot be read.
CsvTable load_csv(const std::string& path, CsvFormat format);
/// The contents of a CSV file, with CRLF line endings as torch writes them.
std::string to_csv(const Schedule& schedule);

}  // namespace automodel::schedule
