#include "metrics/console.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/terminal.h"
#include "base/utf8.h"
#include "metrics/write_all.h"

namespace automodel::metrics {
namespace {

constexpr auto kStatusEvery = std::chrono::milliseconds(100);
constexpr std::string_view kErase = "\r\033[K";  // to the first column, then clear to the end of the line

/// `line` without as many of its last parts as do not fit a terminal of this width; the loss stays.
std::string fitted(std::string line, int columns) {
  while (columns > 0 && line.size() > static_cast<std::size_t>(columns)) {
    const auto part = line.rfind(" | ");
    if (part == std::string::npos || line.find("loss", part) != std::string::npos) break;
    line.erase(part);
  }
  return line;
}

bool wants_bar(const ConsoleOptions& options) {
  // The launcher has seen the terminal; this rank writes to the launcher's pipe.
  if (options.columns > 0) return options.progress.value_or(true) && knows_sequences();
  if (options.progress) return *options.progress && takes_sequences(options.bar);
  return takes_sequences(options.bar) && takes_sequences(options.lines);
}

}  // namespace

std::string step_line(const StepRecord& r, std::string_view share) {
  std::string out = fmt::format(
      "step {} | epoch {} | loss {:.4f} | grad_norm {:.4f} | lr {:.2e} | mem {:.2f} GiB | tps {:.2f}({:.2f}/{}) | "
      "num_label_tokens {}",
      r.step, r.epoch, r.loss, r.grad_norm, r.lr, r.mem, r.tps, r.tps_per_gpu, share, r.num_label_tokens);
  if (r.accuracy) out += fmt::format(" | accuracy {:.4f}", *r.accuracy);
  if (r.kd_loss) out += fmt::format(" | ce_loss {:.4f} | kd_loss {:.4f}", r.ce_loss.value_or(0), *r.kd_loss);
  if (r.mfu) out += fmt::format(" | mfu {:.1f}%", *r.mfu * 100);
  return out;
}

std::string validation_line(const ValidationRecord& r, std::string_view name) {
  return fmt::format("[val] name \"{}\" | step {} | epoch {} | loss {:.4f} | lr {:.2e} | num_label_tokens {}{}", name,
                     r.step, r.epoch, r.val_loss, r.lr, r.num_label_tokens,
                     r.accuracy ? fmt::format(" | accuracy {:.4f}", *r.accuracy) : "");
}

Console::Console(const ConsoleOptions& options)
    : options_(options), has_bar_(wants_bar(options)), done_(options.first_step) {}

Console::~Console() {
  clear_bar();
}

void Console::step(const StepRecord& record) {
  const std::lock_guard lock(mutex_);
  done_ = record.step + 1;
  pace_.add(record.timestamp);
  write_line(fitted(step_line(record, options_.share), columns()));
}

void Console::validation(const ValidationRecord& record, std::string_view name) {
  const std::lock_guard lock(mutex_);
  write_line(fitted(validation_line(record, name), columns()));
}

void Console::line(std::string_view text) {
  const std::lock_guard lock(mutex_);
  const bool command = text.find("automodel ") != text.npos;  // to be copied as it is
  write_line(command ? std::string(text) : folded(text, columns()));
}

void Console::status(std::string_view text) {
  const std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (!has_bar_ || now - status_at_ < kStatusEvery) return;
  status_at_ = now;
  erase();
  const int width = bar_columns() - 1;
  write_all(options_.bar, printable(text.substr(0, static_cast<std::size_t>(std::max(0, width)))));
  drawn_ = true;
}

int Console::columns() const {
  return options_.columns > 0 ? options_.columns : terminal_columns(options_.lines);
}

int Console::bar_columns() const {
  constexpr int kUnknown = 80;  // of a terminal that does not say
  const int columns = options_.columns > 0 ? options_.columns : terminal_columns(options_.bar);
  return columns > 0 ? columns : kUnknown;
}

void Console::clear_bar() {
  const std::lock_guard lock(mutex_);
  erase();
}

void Console::write_line(std::string_view text) {
  erase();
  write_all(options_.lines, printable_lines(text) + "\n");
  draw();
}

void Console::erase() {
  if (drawn_) write_all(options_.bar, kErase);
  drawn_ = false;
}

void Console::draw() {
  if (!has_bar_ || done_ >= options_.end_step) return;
  const std::string text = progress_line(done_, options_.end_step, pace_.seconds_per_step(), bar_columns());
  if (text.empty()) return;
  write_all(options_.bar, text);
  drawn_ = true;
}

}  // namespace automodel::metrics
