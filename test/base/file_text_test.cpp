#include "base/file_text.h"

#include <fstream>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/shared_part.h"
#include "temporary_folder.h"

namespace automodel {

TEST_CASE("only regular files are read, up to a size, and nothing waits", "[base]") {
  const test::TemporaryFolder folder;
  const auto plain = folder.path() / "plain", pipe = folder.path() / "pipe";
  std::ofstream(plain) << "text";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(file_text(plain, 4).text == "text");
  CHECK(file_text(plain, 3).too_large);
  CHECK(file_text(plain, 3).problem == "it has more than 3 bytes");
  CHECK(file_text(pipe, 100).problem == "it is not a regular file");
  CHECK(file_text("/dev/zero", 100).problem == "it is not a regular file");
  CHECK(file_text(folder.path(), 100).problem == "Is a directory");
  CHECK(file_text("/proc/self/mem", 100).problem == "Input/output error");
  CHECK(file_text(folder.path() / "none", 100).problem == "No such file or directory");
  CHECK(open_regular(pipe) == -1);
}

TEST_CASE("a pipe that the caller opened is read to its end", "[base]") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  REQUIRE(write(ends[1], "text", 4) == 4);
  close(ends[1]);
  CHECK(file_text("/dev/fd/" + std::to_string(ends[0]), 10).text == "text");
  close(ends[0]);
}

TEST_CASE("each place of a part of the program is looked at, and named, once", "[base]") {
  using Paths = std::vector<std::filesystem::path>;
  CHECK(part_places("/a/bin", "p.so") == Paths{"/a/bin/p.so", "/a/lib/automodel/p.so"});
  CHECK(part_places("/a/test", "p.so") == Paths{"/a/test/p.so", "/a/lib/automodel/p.so", "/a/bin/p.so"});
}

}  // namespace automodel
