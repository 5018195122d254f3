#include "comm/ending.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <new>
#include <string_view>

#include <fmt/format.h>

#include <c10/util/Exception.h>

#include "comm/world.h"

namespace automodel::comm {
namespace {

/// Error messages for which LibTorch has no exception type: from its host allocator and from the libraries that it
/// calls. cuBLAS and cuDNN allocate outside the caching allocator.
struct Saying {
  std::string_view said;
  ProblemId id;
  std::string_view cause;
};
constexpr std::array kSayings = {
    Saying{"DefaultCPUAllocator", "out-of-memory", "the host's memory is used up"},
    Saying{"_STATUS_ALLOC_FAILED", "out-of-memory", "a library finds no memory on the device"},
    Saying{"CUDA error: ", "cuda-failed", "the device failed"},
    Saying{"CUDA driver error: ", "cuda-failed", "the device failed"},
    Saying{"CUDA NVRTC error: ", "cuda-failed", "the device failed"},
    Saying{"cuDNN error: ", "cuda-failed", "the device failed"},
    Saying{"cuDNN Frontend error: ", "cuda-failed", "the device failed"},
};

constexpr std::int32_t kMemoryAllocation = 2;  // cudaErrorMemoryAllocation

Ending out_of_memory(const std::string& cause) {
  const auto problem = Diagnostic{"out-of-memory"}
                           .says("{}", cause)
                           .hint(
                               "a smaller step_scheduler.local_batch_size (global_batch_size may stay), "
                               "distributed.activation_checkpointing: full, shorter rows, or more ranks need less; "
                               "'automodel plan' says what each rank needs and for what");
  return {problem.exit(), to_text(problem)};
}

}  // namespace

Ending ending() {
  try {
    throw;
  } catch (const JobEnded&) {
    throw;
  } catch (const Error& error) {
    return {error.code(), error.what(), error.rank()};
  } catch (const std::bad_alloc&) {
    return out_of_memory("the host's memory is used up");
  } catch (const c10::OutOfMemoryError& error) {
    return out_of_memory(fmt::format("the device's memory is used up: {}", error.what_without_backtrace()));
  } catch (const c10::AcceleratorError& error) {
    // Device memory is reported by LibTorch's allocator instead: this is pinned memory, or memory that the driver
    // itself needs.
    if (error.get_error_code() == kMemoryAllocation)
      return out_of_memory(
          fmt::format("pinned memory of the host, or memory of the device that the driver wants, is used up: {}",
                      error.what_without_backtrace()));
    return {ExitCode::kEnvironment,
            fmt::format("error[cuda-failed]: the device failed: {}", error.what_without_backtrace())};
  } catch (const c10::Error& error) {
    const std::string_view text = error.what_without_backtrace();
    const auto* known = std::ranges::find_if(
        kSayings, [&](const Saying& each) { return text.find(each.said) != std::string_view::npos; });
    if (known == kSayings.end())
      return {ExitCode::kInternal, fmt::format("error[internal]: {}", error.what_without_backtrace())};
    const auto cause = fmt::format("{}: {}", known->cause, text);
    if (known->id == ProblemId("out-of-memory")) return out_of_memory(cause);
    return {ExitCode::kEnvironment, fmt::format("error[{}]: {}", known->id.name(), cause)};
  } catch (const std::exception& error) {
    return {ExitCode::kInternal, fmt::format("error[internal]: {}", error.what())};
  }
}

}  // namespace automodel::comm
