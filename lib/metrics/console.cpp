#include "metrics/console.h"

#include <cstdlib>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/utf8.h"
#include "metrics/write_all.h"

namespace automodel::metrics {
namespace {

constexpr std::string_view kErase = "\r\033[K";  // to the first column, then clear to the end of the line

/// Whether terminals of this kind can erase a line.
bool draws() {
  const char* kind = std::getenv("TERM");
  return kind != nullptr && *kind != '\0' && std::string_view(kind) != "dumb";
}
/// Whether a bar can be drawn on this descriptor.
bool is_terminal(int file) {
  return isatty(file) == 1 && draws();
}

int columns_of(int file) {
  winsize size{};
  return ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

bool wants_bar(const ConsoleOptions& options) {
  // The launcher has seen the terminal; this rank writes to the launcher's pipe.
  if (options.columns > 0) return options.progress.value_or(true) && draws();
  if (options.progress) return *options.progress && is_terminal(options.bar);
  return is_terminal(options.bar) && is_terminal(options.lines);
}

}  // namespace

std::string step_line(const StepRecord& r, std::string_view share) {
  std::string out = fmt::format(
      "step {} | epoch {} | loss {:.4f} | grad_norm {:.4f} | lr {:.2e} | mem {:.2f} GiB | tps {:.2f}({:.2f}/{}) | "
      "num_label_tokens {}",
      r.step, r.epoch, r.loss, r.grad_norm, r.lr, r.mem, r.tps, r.tps_per_gpu, share, r.num_label_tokens);
  if (r.mfu) out += fmt::format(" | mfu {:.1f}%", *r.mfu * 100);
  return out;
}

std::string validation_line(const ValidationRecord& r, std::string_view name) {
  return fmt::format("[val] name \"{}\" | step {} | epoch {} | loss {:.4f} | lr {:.2e} | num_label_tokens {}", name,
                     r.step, r.epoch, r.val_loss, r.lr, r.num_label_tokens);
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
  write_line(step_line(record, options_.share));
}

void Console::validation(const ValidationRecord& record, std::string_view name) {
  const std::lock_guard lock(mutex_);
  write_line(validation_line(record, name));
}

void Console::line(std::string_view text) {
  const std::lock_guard lock(mutex_);
  write_line(text);
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
  const std::string text = progress_line(done_, options_.end_step, pace_.seconds_per_step(),
                                         options_.columns > 0 ? options_.columns : columns_of(options_.bar));
  if (text.empty()) return;
  write_all(options_.bar, text);
  drawn_ = true;
}

}  // namespace automodel::metrics
