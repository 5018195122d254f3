#include "metrics/console.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"

namespace automodel::metrics {
namespace {

StepRecord record_of(std::int64_t step) {
  return {.step = step,
          .epoch = 0,
          .timestamp = 100.0 + 0.5 * static_cast<double>(step),
          .loss = 2.66951,
          .grad_norm = 10.875,
          .lr = 1e-5,
          .mem = 11.54,
          .tps = 2122.13,
          .tps_per_gpu = 2122.13,
          .num_label_tokens = 2123};
}

/// A terminal screen that knows only carriage return, line feed and erasing to the end of the line. Lines scroll up
/// without limit.
struct Screen {
  explicit Screen(std::size_t width) : columns(width) {}

  void show(std::string_view text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (c == '\r') {
        column = 0;
      } else if (c == '\n') {
        lines.emplace_back();
      } else if (text.substr(i, 3) == "\033[K") {
        if (lines.back().size() > column) lines.back().resize(column);
        i += 2;
      } else {
        REQUIRE(c >= ' ');
        if (column == columns) {
          lines.emplace_back();
          column = 0;
          ++wrapped;
        }
        if (lines.back().size() <= column) lines.back().resize(column + 1, ' ');
        lines.back()[column++] = c;
      }
    }
  }

  std::size_t columns;
  std::vector<std::string> lines = {""};
  std::size_t column = 0;
  int wrapped = 0;
};

std::string read_all(int file) {
  std::string out;
  std::array<char, 4096> buffer;
  for (pollfd ready{file, POLLIN, 0}; poll(&ready, 1, 200) > 0;) {
    const ssize_t got = read(file, buffer.data(), buffer.size());
    if (got <= 0) break;  // EIO: the other side is closed
    out.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return out;
}

/// Runs `body` in a process whose standard output and error are a terminal of that width; returns what it received.
template <class Body>
std::string on_terminal(int columns, const Body& body) {
  winsize size{};
  size.ws_col = static_cast<unsigned short>(columns);
  size.ws_row = 24;
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  REQUIRE(child >= 0);
  if (child == 0) {
    setenv("TERM", "xterm", 1);
    body();
    _exit(0);
  }
  const std::string out = read_all(terminal);
  waitpid(child, nullptr, 0);
  close(terminal);
  return out;
}

void run_steps(const ConsoleOptions& options, std::int64_t end) {
  Console console(options);
  for (std::int64_t step = 0; step < end; ++step) {
    console.step(record_of(step));
    if (step == 1) console.validation({.step = 1, .val_loss = 2.5, .lr = 1e-4, .num_label_tokens = 10});
  }
}

const std::string kValidation =
    "[val] name \"default\" | step 1 | epoch 0 | loss 2.5000 | lr 1.00e-04 | num_label_tokens 10";

/// A line as a terminal of this width gets it: parts that do not fit are left out, from the last one, up to the loss.
std::string shown_at(int columns, std::string line) {
  while (line.size() > static_cast<std::size_t>(columns)) {
    const auto part = line.rfind(" | ");
    if (line.find("loss", part) != std::string::npos) break;
    line.resize(part);
  }
  return line;
}

}  // namespace

TEST_CASE("a step's log line has NeMo AutoModel's format, followed by MFU if it is known", "[metrics]") {
  StepRecord record = record_of(1);
  const std::string line =
      "step 1 | epoch 0 | loss 2.6695 | grad_norm 10.8750 | lr 1.00e-05 | mem 11.54 GiB | tps 2122.13(2122.13/gpu) | "
      "num_label_tokens 2123";
  CHECK(step_line(record) == line);
  record.mfu = 0.4134;
  CHECK(step_line(record) == line + " | mfu 41.3%");
  CHECK(validation_line({.step = 1, .val_loss = 2.5, .lr = 1e-4, .num_label_tokens = 10}) == kValidation);
}

TEST_CASE("the progress bar fits every width and shows less on a narrow terminal", "[metrics]") {
  CHECK(progress_line(120, 1000, 0.5, 80) ==
        "120/1000  12% [====>                             ] 7 min 20 s left, 500 ms/step");
  CHECK(progress_line(120, 1000, 0.5, 50) == "120/1000  12% [==>              ] 7 min 20 s left");
  CHECK(progress_line(120, 1000, 0.5, 35) == "120/1000  12% 7 min 20 s left");
  CHECK(progress_line(120, 1000, 0.5, 22) == " 12% 7 min 20 s left");
  CHECK(progress_line(120, 1000, 0.5, 10) == " 12%");
  CHECK(progress_line(120, 1000, 0.5, 4).empty());
  CHECK(progress_line(0, 10, std::nullopt, 60).find("left") == std::string::npos);
  for (const std::optional<double> pace : {std::optional<double>(), std::optional(1e-5), std::optional(1e5)})
    for (int columns = 0; columns < 200; ++columns)
      for (const std::int64_t done : {0, 1, 9, 999'999})
        REQUIRE(static_cast<int>(progress_line(done, 1'000'000, pace, columns).size()) <= std::max(0, columns - 1));
}

TEST_CASE("the pace is averaged over the last fifty steps", "[metrics]") {
  StepPace pace;
  CHECK(!pace.seconds_per_step());
  pace.add(0);
  CHECK(!pace.seconds_per_step());
  pace.add(100);
  CHECK(*pace.seconds_per_step() == 100);
  for (int step = 1; step <= 50; ++step) pace.add(100 + step);
  CHECK(*pace.seconds_per_step() == 1);
}

TEST_CASE("on a terminal log lines stand above the bar, as wide as it is, and the bar is erased at the end",
          "[metrics]") {
  for (const int columns : {200, 130, 100, 40, 12, 3}) {
    const std::string sent = on_terminal(columns, [] { run_steps({.end_step = 5}, 5); });
    Screen screen(static_cast<std::size_t>(columns));
    screen.show(sent);
    std::string shown;
    std::string expected;
    for (const auto& line : screen.lines) shown += line;
    for (int step = 0; step < 5; ++step)
      expected += shown_at(columns, step_line(record_of(step))) + (step == 1 ? shown_at(columns, kValidation) : "");
    INFO("columns " << columns);
    CHECK(shown == expected);
    CHECK((screen.wrapped == 0) == (columns >= 100));     // loss and, at 40, the validation line stay
    if (columns == 200) CHECK(screen.lines.size() == 7);  // 6 lines and the empty one after them
    CHECK(screen.lines.back().empty());
    CHECK((sent.find("80%") != std::string::npos) == (columns >= 12));
    CHECK(sent.find("?25") == std::string::npos);  // the cursor is never hidden
  }
}

TEST_CASE("during a run the bar is drawn below the log lines, and a log line erases it", "[metrics]") {
  const std::string sent = on_terminal(100, [] {
    Console console({.end_step = 10});
    console.step(record_of(0));
    console.step(record_of(1));
    log::set_before_line([&] { console.clear_bar(); });
    log::warning("a spike");
    log::set_before_line(nullptr);
    console.step(record_of(2));
    _exit(0);  // as if killed
  });
  Screen screen(160);
  screen.show(sent);
  REQUIRE(screen.lines.size() == 5);
  CHECK(screen.lines[2] == "warning: a spike");
  CHECK(screen.lines[3] == shown_at(100, step_line(record_of(2))));
  CHECK(screen.lines[3].ends_with(" | mem 11.54 GiB"));
  CHECK(screen.lines[4].find("3/10  30% [") == 0);
  CHECK(screen.lines[4].find("3.50 s left, 500 ms/step") != std::string::npos);
  CHECK(screen.lines[4].size() < 100);
}

TEST_CASE("a status takes the bar's place until the next line, and is not written elsewhere", "[metrics]") {
  const auto body = [](const ConsoleOptions& options) {
    Console console(options);
    console.step(record_of(0));
    console.status("validation after step 0: 3/40 of 'default'");
    console.status("validation after step 0: 4/40 of 'default'");
  };
  const std::string sent = on_terminal(100, [&] {
    body({.end_step = 10});
    _exit(0);
  });
  CHECK(sent.find("3/40") != std::string::npos);
  CHECK(sent.find("4/40") == std::string::npos);  // within a tenth of a second
  const auto last = sent.rfind("\r\033[K");
  CHECK(last == sent.size() - 4);  // erased at the end
  const std::string narrow = on_terminal(12, [&] {
    Console console({.end_step = 10});
    console.status("validation after step 0");
    _exit(0);
  });
  CHECK(narrow == "validation ");  // no line is wrapped
  std::array<int, 2> lines{};
  REQUIRE(pipe(lines.data()) == 0);
  body({.lines = lines[1], .bar = lines[1], .end_step = 10});
  close(lines[1]);
  CHECK(read_all(lines[0]) == step_line(record_of(0)) + "\n");
  close(lines[0]);
}

TEST_CASE("other lines are folded at the width of a terminal, commands are not", "[metrics]") {
  const std::string command = "export    automodel checkpoint export runs/with/a/long/name NEW_FOLDER";
  const std::string sent = on_terminal(40, [&] {
    Console console({.progress = false, .end_step = 1});
    console.line("model     runs/v/model: a Hugging Face folder, for transformers");
    console.line(command);
  });
  CHECK(sent.starts_with("model     runs/v/model: a Hugging Face\r\n          folder, for transformers\r\n"));
  CHECK(sent.find(command) != std::string::npos);
}

TEST_CASE("a terminal without a size, as mpirun gives its ranks, gets whole lines", "[metrics]") {
  const std::string line =
      "model     runs/v/model: a Hugging Face folder, which transformers opens, in one long line of text";
  const std::string sent = on_terminal(0, [&] {
    Console console({.progress = false, .end_step = 1});
    console.step(record_of(0));
    console.line(line);
  });
  CHECK(sent == step_line(record_of(0)) + "\r\n" + line + "\r\n");
}

TEST_CASE("a rank whose launcher writes to a terminal draws the bar into the launcher's pipe", "[metrics]") {
  for (const std::string kind : {"xterm", "dumb"}) {
    std::array<int, 2> pipes{};
    REQUIRE(pipe(pipes.data()) == 0);
    if (const pid_t child = fork(); child == 0) {
      setenv("TERM", kind.c_str(), 1);
      run_steps({.lines = pipes[1], .bar = pipes[1], .columns = 100, .end_step = 5}, 2);
      _exit(0);
    } else {
      waitpid(child, nullptr, 0);
    }
    close(pipes[1]);
    CHECK((read_all(pipes[0]).find("2/5  40% [") != std::string::npos) == (kind == "xterm"));
    close(pipes[0]);
  }
}

TEST_CASE("a pipe or a file gets only the log lines", "[metrics]") {
  std::array<int, 2> lines{};
  std::array<int, 2> bar{};
  REQUIRE(pipe(lines.data()) == 0);
  REQUIRE(pipe(bar.data()) == 0);
  for (const std::optional<bool> progress : {std::optional<bool>(), std::optional(true), std::optional(false)})
    run_steps({.lines = lines[1], .bar = bar[1], .progress = progress, .end_step = 5}, 2);
  close(lines[1]);
  close(bar[1]);
  const std::string once = step_line(record_of(0)) + "\n" + step_line(record_of(1)) + "\n" + kValidation + "\n";
  CHECK(read_all(lines[0]) == once + once + once);
  CHECK(read_all(bar[0]).empty());
  close(lines[0]);
  close(bar[0]);
}

TEST_CASE("with log lines in a pipe the bar is drawn only on request, and not into the pipe", "[metrics]") {
  for (const bool asked : {false, true}) {
    std::array<int, 2> lines{};
    REQUIRE(pipe(lines.data()) == 0);
    const std::string sent = on_terminal(100, [&] {
      run_steps({.lines = lines[1], .progress = asked ? std::optional(true) : std::nullopt, .end_step = 5}, 2);
    });
    close(lines[1]);
    CHECK(sent.empty() != asked);
    CHECK(read_all(lines[0]) == step_line(record_of(0)) + "\n" + step_line(record_of(1)) + "\n" + kValidation + "\n");
    close(lines[0]);
  }
}

TEST_CASE("no bar is drawn if it is switched off or the terminal is dumb", "[metrics]") {
  const std::string lines = on_terminal(200, [] { run_steps({.progress = false, .end_step = 5}, 2); });
  CHECK(lines.find('\033') == std::string::npos);
  const std::string dumb = on_terminal(200, [] {
    setenv("TERM", "dumb", 1);
    run_steps({.end_step = 5}, 2);
  });
  CHECK(dumb.find('\033') == std::string::npos);
}

TEST_CASE("a slow reader of a non-blocking pipe loses nothing", "[metrics]") {
  std::array<int, 2> lines{};
  REQUIRE(pipe2(lines.data(), O_NONBLOCK) == 0);
  std::thread writer([&] {
    Console console({.lines = lines[1], .end_step = 2000});
    for (std::int64_t step = 0; step < 2000; ++step) console.step(record_of(step));
    close(lines[1]);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const std::string out = read_all(lines[0]);
  writer.join();
  close(lines[0]);
  CHECK(std::count(out.begin(), out.end(), '\n') == 2000);
}

}  // namespace automodel::metrics
