// Programs that watch a run: they die, do not read, are missing, or stay, and the run goes on.
#include "metrics/watcher.h"

#include <algorithm>
#include <chrono>
#include <fstream>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "metrics/event_stream.h"
#include "temporary_folder.h"

namespace automodel::metrics {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

std::vector<std::string> shell(const std::string& script) {
  return {"/bin/sh", "-c", script};
}

bool say(const std::vector<std::string>& notes, const std::string& part) {
  return std::ranges::any_of(notes, [&](const auto& each) { return each.find(part) != std::string::npos; });
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

TEST_CASE("a watcher gets every line in order, and its end", "[metrics]") {
  const test::TemporaryFolder folder;
  const auto seen = (folder.path() / "seen").native();
  std::string expected;
  {
    Watcher watcher(shell("cat > " + seen + "; echo end >> " + seen));
    for (int i = 0; i < 5000; ++i) {
      const auto line = fmt::format("{{\"step\": {}}}", i);
      expected += line + "\n";
      watcher.offer(line);
    }
    watcher.finish();
    CHECK(watcher.take_notes().empty());
  }
  CHECK(folder.read("seen") == expected + "end\n");
}

TEST_CASE("a watcher that dies is started again with the first line, a few times", "[metrics]") {
  const test::TemporaryFolder folder;
  const auto seen = (folder.path() / "seen").native();
  Watcher watcher(shell("echo new >> " + seen + "; head -n 2 >> " + seen + "; exit 3"),
                  {.restarts = 2, .first_pause = milliseconds(10)});
  const auto begin = Clock::now();
  std::vector<std::string> notes;
  int i = 0;
  while (!say(notes, "is not started again") && seconds_since(begin) < 60) {
    watcher.offer(i == 0 ? "start" : std::to_string(i));
    ++i;
    std::this_thread::sleep_for(milliseconds(20));
    for (auto& each : watcher.take_notes()) notes.push_back(std::move(each));
  }
  CHECK(say(notes, "ended with exit code 3"));
  CHECK(say(notes, "is not started again"));
  const auto text = folder.read("seen");
  CHECK(text.starts_with("new\nstart\n1\nnew\nstart\n"));
  std::size_t count = 0;
  for (auto at = text.find("new"); at != std::string::npos; at = text.find("new", at + 1)) ++count;
  CHECK(count == 3);  // once, and two restarts
  watcher.offer("late");
  watcher.finish();
  CHECK(say(watcher.take_notes(), "dropped"));
}

TEST_CASE("a watcher that never reads holds nobody up", "[metrics]") {
  Watcher watcher(shell("exec sleep 100"), {.bytes = 1 << 20, .end = milliseconds(500)});
  const std::string line(1000, 'x');
  const auto begin = Clock::now();
  for (int i = 0; i < 5000; ++i) watcher.offer(line);  // 5 MB: five times what may wait
  CHECK(seconds_since(begin) < 5);
  CHECK(say(watcher.take_notes(), "does not read them"));
  watcher.finish();
  CHECK(seconds_since(begin) < 20);
  const auto notes = watcher.take_notes();
  CHECK(say(notes, "is killed"));
  CHECK(say(notes, "dropped"));
}

TEST_CASE("a watcher that outlives the run is killed, even if it ignores SIGTERM", "[metrics]") {
  Watcher watcher(shell("trap '' TERM; cat > /dev/null; while true; do sleep 1; done"), {.end = milliseconds(500)});
  watcher.offer("start");
  const auto begin = Clock::now();
  watcher.finish();
  CHECK(seconds_since(begin) < 20);
  CHECK(say(watcher.take_notes(), "is killed"));
}

TEST_CASE("a watcher is killed after the shorter limit of a run that fails", "[metrics]") {
  Watcher watcher(shell("exec sleep 100"));
  const auto begin = Clock::now();
  watcher.finish(milliseconds(100));
  CHECK(seconds_since(begin) < 20);
  CHECK(say(watcher.take_notes(), "is killed"));
}

TEST_CASE("what a watcher leaves running is ended with it", "[metrics]") {
  const test::TemporaryFolder folder;
  const std::string child = "(trap '' TERM; exec sleep 100) & echo $! > " + (folder.path() / "left").native() + "; ";
  for (const std::string then : {"exec cat > /dev/null", "exit 1"}) {
    INFO(then);
    Watcher watcher(shell(child + then), {.restarts = 0});
    watcher.offer("start");
    const auto begin = Clock::now();
    while (!folder.read("left").ends_with('\n') && seconds_since(begin) < 60)
      std::this_thread::sleep_for(milliseconds(20));
    watcher.finish();
    std::ifstream file("/proc/" + std::to_string(std::stoi(folder.read("left"))) + "/stat");
    std::string pid, name, state = "gone";
    file >> pid >> name >> state;
    CHECK((state == "gone" || state == "Z"));  // Z: nobody has asked how it ended
    std::filesystem::remove(folder.path() / "left");
  }
}

TEST_CASE("warnings about a watcher, which are events, do not wait for themselves", "[metrics]") {
  Watcher watcher(shell("exec sleep 100"), {.bytes = 100, .end = milliseconds(100)});  // no event fits
  EventStream stream(-1, &watcher);
  std::vector<std::string> lines;
  log::set_listener([&](std::string_view text) {
    lines.emplace_back(text);
    stream.logged(text);
  });
  for (int i = 0; i < 8; ++i) {
    log::warning("of the run " + std::string(100, 'x'));  // dropped; so is what is said about that
    stream.add({.event = "checkpoint", .message = std::string(100, 'x')});
  }
  log::set_listener({});
  CHECK(say(lines, "dropped"));
  CHECK(lines.size() < 8 + 8);  // said when their number has doubled
}

TEST_CASE("a watcher's program is found beside the recipe or in PATH, or is an error", "[metrics][errors]") {
  const test::TemporaryFolder folder;
  const auto script = folder.write("tools/watch.sh", "#!/bin/sh\n");
  CHECK_THROWS_AS(watcher_words("./tools/watch.sh", folder.path()), Error);  // not executable
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  CHECK(watcher_words("./tools/watch.sh  a b", folder.path()).size() == 3);
  CHECK(watcher_words("sh -c true", folder.path())[0].ends_with("/sh"));
  for (const char* bad : {"no-such-program-here", "./missing", "", "/tmp"})
    CHECK_THROWS_AS(watcher_words(bad, folder.path()), Error);
}

}  // namespace automodel::metrics
