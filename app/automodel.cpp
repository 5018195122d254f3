// The front end: links neither LibTorch nor MPI, so that everything except training responds within milliseconds.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "base/error.h"
#include "command_line.h"

namespace {

/// `code`, unless output was lost: a full disk must not leave half a script and report success.
int after_output(int code) {
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (written || code != 0) return code;
  const auto problem = automodel::Diagnostic{"cannot-write"}
                           .says(std::string("standard output cannot be written: ") + std::strerror(errno))
                           .hint("the disk is full, or the reader of the output has exited");
  std::fputs((automodel::to_text(problem) + "\n").c_str(), stderr);
  return static_cast<int>(automodel::ExitCode::kEnvironment);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return after_output(automodel::app::run_command_line(argc, argv, automodel::app::commands()));
  } catch (const automodel::Error& error) {
    std::fputs(error.what(), stderr);
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error[internal]: %s\n", error.what());
    return static_cast<int>(automodel::ExitCode::kInternal);
  }
}
