#include "comm/ending.h"

#include <new>
#include <string_view>

#include <fmt/format.h>

#include <c10/util/Exception.h>

#include "comm/world.h"

namespace automodel::comm {

Ending ending() {
  try {
    throw;
  } catch (const JobEnded&) {
    throw;
  } catch (const Error& error) {
    return {error.code(), error.what(), error.rank()};
  } catch (const std::bad_alloc&) {
    return {ExitCode::kEnvironment, "error[out-of-memory]: the host's memory is used up"};
  } catch (const c10::OutOfMemoryError& error) {
    return {ExitCode::kEnvironment,
            fmt::format("error[out-of-memory]: the device's memory is used up: {}", error.what_without_backtrace())};
  } catch (const c10::AcceleratorError& error) {
    return {ExitCode::kEnvironment,
            fmt::format("error[cuda-failed]: the device failed: {}", error.what_without_backtrace())};
  } catch (const c10::Error& error) {
    // LibTorch's allocator of host memory has no type for it.
    if (std::string_view(error.what_without_backtrace()).find("DefaultCPUAllocator") != std::string_view::npos)
      return {ExitCode::kEnvironment,
              fmt::format("error[out-of-memory]: the host's memory is used up: {}", error.what_without_backtrace())};
    return {ExitCode::kInternal, fmt::format("error[internal]: {}", error.what_without_backtrace())};
  } catch (const std::exception& error) {
    return {ExitCode::kInternal, fmt::format("error[internal]: {}", error.what())};
  }
}

}  // namespace automodel::comm
