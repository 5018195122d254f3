// Runs the front end as a user does and captures its output.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "temporary_folder.h"

namespace automodel::test {

struct Outcome {
  int code = -1;
  std::string out = {};
  std::string err = {};
};

/// `words` follow the program's name and must not contain quotes. Runs in `folder`.
inline Outcome run_program(const TemporaryFolder& folder, const std::string& words) {
  const std::string command =
      "cd '" + folder.path().string() + "' && '" AUTOMODEL_PROGRAM "' " + words + " >.out 2>.err";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, folder.read(".out"), folder.read(".err")};
}

}  // namespace automodel::test
