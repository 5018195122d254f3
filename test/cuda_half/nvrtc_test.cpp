// The compiler of cuDNN's kernels, where CUDA comes only from wheels: FAKE_NVRTC has one that needs a second file, and
// FAKE_NVRTC_ALONE one without it.
#include "cuda_half/nvrtc.h"

#include <catch2/catch.hpp>
#include <dlfcn.h>

namespace automodel {

TEST_CASE("NVRTC and its builtins are opened by full path", "[cuda]") {
  REQUIRE(dlopen("libnvrtc-builtins.so.99.0", RTLD_LAZY) == nullptr);
  open_nvrtc(FAKE_NVRTC_ALONE);
  CHECK(kernel_compiler_problem() ==
        "NVRTC cannot compile a kernel: nvrtc: error: failed to open libnvrtc-builtins.so.99.0.");
  open_nvrtc(FAKE_NVRTC);
  CHECK(kernel_compiler_problem() == "");
  CHECK(dlopen("libnvrtc-builtins.so.99.0", RTLD_LAZY | RTLD_NOLOAD) != nullptr);
  CHECK(dlopen("libnvrtc.so.99", RTLD_LAZY | RTLD_NOLOAD) != nullptr);  // as cuDNN asks for it
}

}  // namespace automodel
