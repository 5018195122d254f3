#include "comm/activity.h"

#include <sstream>

#include <fmt/format.h>

#include "base/bytes.h"

namespace automodel::comm {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Replaces line breaks, since the wire format has one line per field.
std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

}  // namespace

std::string place_text(const Doing& doing) {
  if (doing.step < 0 && doing.action.empty()) return "before the first step";
  std::string out;
  if (doing.step >= 0) out = fmt::format("step {}", doing.step);
  if (!doing.action.empty()) out += fmt::format("{}action {}", out.empty() ? "" : ", ", doing.action);
  return fmt::format("{} ({})", out, format_seconds(doing.action_seconds));
}

std::string to_wire(const Doing& doing) {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n", doing.step, one_line(doing.action), doing.action_seconds,
                     doing.waiting ? 1 : 0, one_line(doing.verb), one_line(doing.group), doing.peer,
                     doing.wait_seconds);
}

std::optional<Doing> doing_from_wire(const std::string& text) {
  std::istringstream in(text);
  Doing doing;
  std::string number;
  const auto line = [&in](std::string& into) { std::getline(in, into); };
  const auto value = [&](auto& into) {
    line(number);
    if (!(std::istringstream(number) >> into)) in.setstate(std::ios::failbit);
  };
  value(doing.step);
  line(doing.action);
  value(doing.action_seconds);
  value(doing.waiting);
  line(doing.verb);
  line(doing.group);
  value(doing.peer);
  value(doing.wait_seconds);
  if (!in) return std::nullopt;
  return doing;
}

void Activity::begin_step(std::int64_t step) {
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  step_ = step;
  action_.assign("");
  action_begin_ = now;
}

void Activity::begin_action(std::string_view action) {
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  action_.assign(action);
  action_begin_ = now;
}

void Activity::begin_wait(std::string_view verb, std::string_view group, int peer) {
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  if (!waiting_) wait_begin_ = now;
  waiting_ = true;
  verb_.assign(verb);
  group_.assign(group);
  peer_ = peer;
}

void Activity::end_wait() {
  const std::lock_guard lock(mutex_);
  waiting_ = false;
}

Doing Activity::now() const {
  const std::lock_guard lock(mutex_);
  Doing doing{step_, std::string(action_.view()), seconds_since(action_begin_)};
  if (waiting_) {
    doing.waiting = true;
    doing.verb = verb_.view();
    doing.group = group_.view();
    doing.peer = peer_;
    doing.wait_seconds = seconds_since(wait_begin_);
  }
  return doing;
}

}  // namespace automodel::comm
