#include "base/error.h"

#include <cstring>

#include <fmt/format.h>

namespace automodel {

Error::Error(ExitCode code, Diagnostics problems)
    : std::runtime_error(to_text(problems)), code_(code), problems_(std::move(problems)) {}

namespace detail {
void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  const char* name = std::strrchr(file, '/');
  throw InternalError(fmt::format("{}:{}: {} ({}); this is a defect of automodel, please report it",
                                  name != nullptr ? name + 1 : file, line, message, condition));
}
}  // namespace detail

}  // namespace automodel
