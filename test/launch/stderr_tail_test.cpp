#include "launch/stderr_tail.h"

#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rank_marks.h"
#include "temporary_folder.h"

namespace automodel::launch {
namespace {

struct Said {
  std::string cause;
  bool last = true, started = false;
  std::optional<ExitCode> done = {};
  std::string forwarded = {};
};

/// What is known of a program that writes `text` to standard error.
Said said(const std::string& text) {
  StderrTail tail;
  const pid_t child = fork();
  if (child == 0) {
    tail.become_stderr();
    _exit(write(STDERR_FILENO, text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  tail.start();
  waitpid(child, nullptr, 0);
  auto cause = tail.finish();
  return {.cause = std::move(cause), .last = tail.cause_was_last(), .started = tail.ranks_started()};
}

TEST_CASE("a rank's own error is preferred to the launcher's messages about other ranks") {
  const auto killed = said("rank 1: error[hang]: waited\nsrun: error: node2: task 0: Killed\n\n");
  CHECK(killed.cause == "rank 1: error[hang]: waited");
  CHECK_FALSE(killed.last);
  CHECK(said("3: rank 3: error[non-finite]: step 2\n3: srun\n").cause == "3: rank 3: error[non-finite]: step 2");
  CHECK(said("error[cannot-start]: no\nrank 0: error[io]: second \r\n").cause == "rank 0: error[io]: second");
  CHECK(said("error[cannot-start]: no\n").last);
  // A line that only mentions an error is not one.
  CHECK(said("note: error[hang] is in docs/errors.md\nthe end\n").cause == "the end");
  CHECK(said("rank: error[hang]\n").cause == "rank: error[hang]");
  CHECK(said("rank x: error[hang]\nlast").cause == "last");
  CHECK(said("").cause.empty());
}

TEST_CASE("ranks signal that they have started with a line that never becomes the cause") {
  const std::string mark(kStartMark);
  CHECK_FALSE(said("a\nlast\n").started);
  for (const std::string before : {"", "0: ", "[1,0]<stderr>:"}) {
    const auto all = said("last\n" + before + mark);
    CHECK(all.started);
    CHECK(all.cause == "last");
    CHECK(said(before + mark + "error[io]: no\n").cause == "error[io]: no");
  }
}

/// The same for a program that writes the pieces one at a time, far enough apart to be read separately.
Said said_in_pieces(const std::vector<std::string>& pieces) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "forwarded";
  std::fflush(stderr);
  const int own = dup(STDERR_FILENO), file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  Said out;
  {
    StderrTail tail;
    const pid_t child = fork();
    if (child == 0) {
      tail.become_stderr();
      for (const auto& piece : pieces) {
        if (write(STDERR_FILENO, piece.data(), piece.size()) != static_cast<ssize_t>(piece.size())) _exit(1);
        usleep(60000);
      }
      _exit(0);
    }
    dup2(file, STDERR_FILENO);
    tail.start();
    waitpid(child, nullptr, 0);
    out.cause = tail.finish();
    out.started = tail.ranks_started();
    out.done = tail.ranks_done();
    dup2(own, STDERR_FILENO);
  }
  close(own);
  close(file);
  out.forwarded = folder.read("forwarded");
  return out;
}

TEST_CASE("the start mark's line is removed however the pipe splits it") {
  const std::string mark(1, kStartMark.front());
  for (const std::string before : {"0: ", "[1,0]<stderr>:"})
    for (const auto& pieces : std::vector<std::vector<std::string>>{{"a\n" + before + mark, "\nb\n"},
                                                                    {"a\n" + before + mark, " \r\nb\n"},
                                                                    {"a\n" + before + mark, " ", "\nb\n"},
                                                                    {"a\n" + before + mark + "\n", "b\n"}}) {
      const auto all = said_in_pieces(pieces);
      CHECK(all.started);
      CHECK(all.forwarded == "a\nb\n");
      CHECK(all.cause == "b");
    }
}

TEST_CASE("ranks signal that they are done, and how") {
  for (const auto& [mark, code] : {std::pair{kDoneMark, ExitCode::kOk}, std::pair{kStoppedMark, ExitCode::kStopped}}) {
    const std::string before = "a\n[1,0]<stderr>:" + std::string(kStartMark), done = "0: " + std::string(mark);
    for (const auto& pieces : std::vector<std::vector<std::string>>{
             {before + "b\n" + done + "c\n"}, {before, "b\n" + done, "c\n"}, {before + done, "b\nc\n"}}) {
      const auto seen = said_in_pieces(pieces);
      CHECK(seen.started);
      CHECK(seen.done == code);
      CHECK(seen.forwarded == "a\nb\nc\n");
      CHECK(seen.cause == "c");
    }
  }
  CHECK_FALSE(said_in_pieces({"a\n" + std::string(kStartMark) + "b\n"}).done);
  const auto foreign = said_in_pieces({"a\n" + std::string(kStartMark) + "b\x04" + "c\n"});  // some library's byte
  CHECK_FALSE(foreign.done);
  CHECK(foreign.forwarded == "a\nb\x04" + std::string("c\n"));
}

TEST_CASE("what mpirun says about its ranks is kept apart, in pieces of any size") {
  const std::string rule(74, '-'), warning = rule + "\nWARNING: no fast network\n" + rule + "\n";
  const std::string banner = rule + "\nprterun has exited due to process rank 0\nexiting improperly.\n" + rule + "\n";
  const std::string forwarding = "mpirun: Forwarding signal 10 to job\n";
  const std::string text =
      "rank 0: error[missing-file]: no\n" + forwarding + warning + banner + "--- a sample\n-----\n" + banner + "end";
  const std::string others = "rank 0: error[missing-file]: no\n" + warning + "--- a sample\n-----\nend";
  for (const std::size_t size : {std::size_t{1}, std::size_t{7}, std::size_t{64}, text.size()}) {
    BannerFilter filter;
    std::string passed;
    for (std::size_t at = 0; at < text.size(); at += size) passed += filter.pass(text.substr(at, size));
    CHECK(passed + filter.rest() == others);
    CHECK(filter.banners() == forwarding + banner + banner);
  }
  BannerFilter open;
  CHECK(open.pass("a\n" + rule + "\nmpirun noticed that\n") == "a\n");
  CHECK(open.rest() == rule + "\nmpirun noticed that\n");
}

}  // namespace
}  // namespace automodel::launch
