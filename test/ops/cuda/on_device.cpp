// Makes the operations of a test program use the GPU kernels, emulated on CPU tensors.
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <catch2/catch.hpp>

#include "ops/cuda/emulated_cuda.h"
#include "ops/cuda/emulated_flash.h"
#include "ops/cuda/emulated_groups.h"
#include "ops/kernels/cuda/table.h"
#include "ops/kernels/device.h"

namespace automodel::ops {
namespace {

cuda::Stream no_stream() {
  return nullptr;
}

struct ComputeOnDevice : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;
  void testRunStarting(const Catch::TestRunInfo&) override {
    static const DeviceKernels kernels = cuda::table(no_stream);
    emulated::watch(false);  // tensors are not registered as buffers of the emulation
    compute_on_host_with(&kernels);
    flash_on_host_with(emulated_flash());
    grouped_product_on_host_with(emulated_groups());
  }
};
CATCH_REGISTER_LISTENER(ComputeOnDevice)

}  // namespace
}  // namespace automodel::ops
