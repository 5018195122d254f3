// The console output of a run: one line per step and, on a terminal, a progress bar below the lines.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "metrics/progress_bar.h"
#include "metrics/step_record.h"

namespace automodel::metrics {

/// NeMo AutoModel's per-step line, so that programs that parse its logs can parse ours, followed by " | mfu 41.3%" if
/// MFU is known. `share` names the unit of the second token rate: "gpu", or "rank" on a machine without GPUs. No line
/// break.
std::string step_line(const StepRecord& record, std::string_view share = "gpu");
/// NeMo AutoModel's validation line; `name` is the name of the validation set, "default" for an unnamed one.
std::string validation_line(const ValidationRecord& record, std::string_view name = "default");

/// Environment variable through which `automodel train --nproc-per-node` passes the width of the output terminal to the
/// ranks, which cannot see it under mpirun. The bar then goes to the same stream as the lines, which keeps the two in
/// order.
inline constexpr const char* kTerminalVariable = "AUTOMODEL_TERMINAL";

struct ConsoleOptions {
  int lines = 1;  ///< file descriptor of the lines: standard output, since they are the command's result
  int bar = 2;    ///< file descriptor of the bar: standard error
  /// logging.progress. Unset: a bar is drawn if both descriptors are terminals (a pipe may end in the same terminal, as
  /// with tee, and its lines would run into the bar). true: whenever `bar` is a terminal. false: never.
  std::optional<bool> progress = std::nullopt;
  int columns = 0;  ///< width of the terminal that the launcher writes to; 0: query `bar`
  std::int64_t first_step = 0;
  std::int64_t end_step = 0;       ///< one past the last step
  std::string_view share = "gpu";  ///< see step_line
};

/// The bar never mixes with the lines: it is erased before each line and redrawn after it, with control characters that
/// go only to the bar's descriptor. The cursor is never hidden or moved to another line and no terminal mode is
/// changed, so there is nothing to restore if the run is killed; at the end the bar is erased. The width is queried on
/// every redraw. Of a step's line that is wider than the terminal, the last parts are left out; a file has all of it.
/// Thread-safe.
class Console {
 public:
  explicit Console(const ConsoleOptions& options);
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  void step(const StepRecord& record);
  void validation(const ValidationRecord& record, std::string_view name = "default");
  /// Prints any other line, folded at the width of a terminal unless it names a command; `text` has no line break.
  void line(std::string_view text);
  /// Shows `text` in place of the bar until the next line, for work that prints nothing for long; at most ten times a
  /// second. No bar, no text.
  void status(std::string_view text);
  /// Erases the bar until the next line, for other writers to the terminal (log::set_before_line).
  void clear_bar();

 private:
  void write_line(std::string_view text);  ///< requires the lock
  int columns() const;                     ///< of the terminal that lines go to; 0: none
  int bar_columns() const;                 ///< of the terminal that the bar is drawn on
  void erase();
  void draw();

  std::mutex mutex_;
  ConsoleOptions options_;
  bool has_bar_;
  bool drawn_ = false;
  std::int64_t done_ = 0;
  std::chrono::steady_clock::time_point status_at_ = {};
  StepPace pace_;
};

}  // namespace automodel::metrics
