// The front end: links neither LibTorch nor MPI, so that everything but training answers in milliseconds.
#include <cstdio>
#include <exception>

#include "base/error.h"
#include "command_line.h"

int main(int argc, char** argv) {
  try {
    return automodel::app::run_command_line(argc, argv, automodel::app::commands());
  } catch (const automodel::Error& error) {
    std::fputs(error.what(), stderr);
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error[internal]: %s\n", error.what());
    return static_cast<int>(automodel::ExitCode::kInternal);
  }
}
