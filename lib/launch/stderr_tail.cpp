#include "launch/stderr_tail.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <string_view>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "base/error.h"
#include "base/rank_marks.h"

namespace automodel::launch {
namespace {

constexpr std::size_t kKept = 16384;  // bytes
constexpr int kPatience = 100;        // milliseconds

/// "rank 3: error[hang]: ..." or "error[cannot-start]: ...", possibly after the task number of srun --label.
bool says_cause(std::string_view line) {
  const auto skip_numbered = [&](std::string_view before) {
    auto rest = line;
    if (!rest.starts_with(before)) return;
    rest.remove_prefix(before.size());
    const auto digits = rest.find_first_not_of("0123456789");
    if (digits != 0 && digits != std::string_view::npos && rest.substr(digits).starts_with(": "))
      line = rest.substr(digits + 2);
  };
  skip_numbered("");
  skip_numbered("rank ");
  return line.starts_with("error[");
}

}  // namespace

StderrTail::StderrTail() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    throw Error(Diagnostic{"cannot-start"}
                    .says(std::string("no pipe can be created: ") + std::strerror(errno))
                    .hint("the limit on open files is reached (ulimit -n)"));
  reading_ = ends[0];
  writing_ = ends[1];
}

StderrTail::~StderrTail() {
  finish();
  for (const int each : {reading_, writing_})
    if (each >= 0) close(each);
}

void StderrTail::become_stderr() const {
  dup2(writing_, STDERR_FILENO);
}

void StderrTail::start() {
  close(writing_);
  writing_ = -1;
  thread_ = std::thread([this] { read(); });
}

void StderrTail::read() {
  std::array<char, 4096> buffer;
  while (true) {
    pollfd wanted{.fd = reading_, .events = POLLIN, .revents = 0};
    const int ready = poll(&wanted, 1, kPatience);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      if (ended_) return;
      continue;
    }
    const auto count = ::read(reading_, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    std::string text(buffer.data(), static_cast<std::size_t>(count));
    take_marks(text);
    forward(filter_.pass(text));
    tail_ += text;
    if (tail_.size() > 2 * kKept) tail_.erase(0, tail_.size() - kKept);
  }
}

void StderrTail::forward(std::string_view text) {
  while (!text.empty()) {
    const auto out = write(STDERR_FILENO, text.data(), text.size());
    if (out < 0 && errno == EINTR) continue;
    if (out <= 0) return;  // our own standard error is closed; keep collecting the tail
    text.remove_prefix(static_cast<std::size_t>(out));
  }
}

void StderrTail::show_banners() {
  forward(filter_.banners());
}

void StderrTail::take_marks(std::string& text) {
  constexpr std::array kMarks = {kStartMark.front(), kDoneMark.front(), kStoppedMark.front()};
  for (std::size_t from = 0;;) {
    if (!in_mark_line_) {
      const auto mark = text.find_first_of(std::string_view(kMarks.data(), kMarks.size()), from);
      if (mark == std::string::npos) return;
      // A byte inside a line is some library's or program's, not ours.
      if (mark + 1 < text.size() && text[mark + 1] != '\n') {
        from = mark + 1;
        continue;
      }
      stopped_ = text[mark] == kStoppedMark.front();
      (text[mark] == kStartMark.front() ? ranks_started_ : done_) = true;
      const auto before = text.rfind('\n', mark);
      from = before == std::string::npos ? 0 : before + 1;
    }
    const auto end = text.find('\n', from);
    in_mark_line_ = end == std::string::npos;
    text.erase(from, in_mark_line_ ? end : end + 1 - from);
    if (in_mark_line_) return;
  }
}

std::string StderrTail::finish() {
  ended_ = true;
  if (thread_.joinable()) thread_.join();
  forward(filter_.rest());
  std::istringstream lines(tail_);
  std::string last, cause;
  for (std::string line; std::getline(lines, line);) {
    line.resize(line.find_last_not_of(" \r") + 1);
    if (line.empty()) continue;
    if (says_cause(line)) cause = line;
    last = std::move(line);
  }
  cause_was_last_ = cause.empty() || cause == last;
  explained_ = !cause.empty();
  return cause.empty() ? last : cause;
}

}  // namespace automodel::launch
