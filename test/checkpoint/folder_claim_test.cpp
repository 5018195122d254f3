// Two runs in one folder: the second is refused only while the first is alive.
#include "checkpoint/format/folder_claim.h"

#include <csignal>
#include <string>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "temporary_folder.h"

namespace automodel::checkpoint {
namespace {

namespace fs = std::filesystem;
constexpr std::chrono::milliseconds kShort{100};

/// A process that holds a folder until it is killed.
class Holder {
 public:
  explicit Holder(const fs::path& root) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    child_ = fork();
    REQUIRE(child_ >= 0);
    if (child_ == 0) {
      const FolderClaim claim(root, kShort);
      const char ready = 1;
      if (write(ends[1], &ready, 1) == 1) pause();
      _exit(0);
    }
    char ready = 0;
    REQUIRE(read(ends[0], &ready, 1) == 1);
    close(ends[0]);
    close(ends[1]);
  }
  ~Holder() { end(); }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  pid_t process() const { return child_; }
  void end() {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
    child_ = 0;
  }

 private:
  pid_t child_ = 0;
};

}  // namespace

TEST_CASE("A second run may not write to a folder until the run that holds it has ended") {
  const test::TemporaryFolder folder;
  const auto root = folder.path() / "run";
  Holder holder(root);
  try {
    const FolderClaim second(root, kShort);
    FAIL("two runs hold the folder");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kEnvironment);
    CHECK(error.problems().front().id == "folder-in-use");
    CHECK(error.problems().front().message ==
          fmt::format("another run is writing to '{}' (process {})", root.native(), holder.process()));
  }
  holder.end();
  const FolderClaim third(root, kShort);
  CHECK(third.other_host().empty());
}

TEST_CASE("A lock left by another host is only reported, since that host may be lost") {
  const test::TemporaryFolder folder;
  const Holder holder(folder.path());
  folder.write(".lock", "elsewhere 12");
  const FolderClaim second(folder.path(), kShort);
  CHECK(second.other_host() == "elsewhere");
}

TEST_CASE("Claiming a folder that cannot be created is not an error") {
  const test::TemporaryFolder folder;
  folder.write("file", "");
  const FolderClaim claim(folder.path() / "file" / "run", kShort);
  CHECK(claim.other_host().empty());
}

TEST_CASE("A run learns that its folder was removed or replaced") {
  const test::TemporaryFolder temporary;
  const auto root = temporary.path() / "run";
  const FolderClaim claim(root, kShort);
  claim.check();
  const auto gone = [&] {
    try {
      claim.check();
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::kCheckpoint);
      return std::string(error.problems().front().id.name());
    }
    return std::string();
  };
  fs::rename(root, temporary.path() / "moved");
  CHECK(gone() == "checkpoints-gone");
  {
    const FolderClaim other(root, kShort);  // as a second run would
    CHECK(gone() == "checkpoints-gone");
  }
  fs::remove_all(root);
  fs::rename(temporary.path() / "moved", root);
  CHECK(gone().empty());
}

}  // namespace automodel::checkpoint
