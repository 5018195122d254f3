#include "base/nvidia_driver.h"

#include <catch2/catch.hpp>

#include "temporary_folder.h"

namespace automodel {

TEST_CASE("the NVIDIA driver's branch is read from its version line", "[base]") {
  CHECK(driver_branch("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 07:14:50 UTC 2025") ==
        580);
  CHECK(driver_branch("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.104.12  Release Build") == 535);
  CHECK(driver_branch("") == 0);
  CHECK(driver_branch("NVRM version: unknown 12") == 0);
}

TEST_CASE("an NVIDIA driver that is too old for the program is reported", "[base]") {
  const auto line = [](const std::string& version) {
    return "NVRM version: NVIDIA UNIX x86_64 Kernel Module  " + version + "  Release Build";
  };
  CHECK(driver_lack(line("580.65.06"), 13).empty());
  CHECK(driver_lack(line("595.10"), 13).empty());
  CHECK(driver_lack(line("570.86.10"), 13) ==
        "driver 570 runs CUDA 12; this program needs CUDA 13, driver 580 or later");
  CHECK(driver_lack(line("470.10"), 12) == "driver 470 runs CUDA 11; this program needs CUDA 12, driver 525 or later");
  CHECK(driver_lack(line("525.60.13"), 12).empty());
  CHECK(driver_lack("", 13).empty());  // a missing driver is not too old
}

TEST_CASE("the model of this machine's GPUs is read from the driver's files", "[base]") {
  const test::TemporaryFolder folder;
  CHECK(nvidia_gpu(folder.path()).empty());  // no driver
  folder.write("gpus/0000:18:00.0/information",
               "Model: \t\t NVIDIA H200\nIRQ:   \t\t 412\nGPU UUID: \t GPU-0\nBus Location: \t 0000:18:00.0\n");
  CHECK(nvidia_gpu(folder.path()) == "NVIDIA H200");
  folder.write("gpus/0000:2a:00.0/information", "Model: \t\t NVIDIA H200 \nIRQ:   \t\t 413\n");
  CHECK(nvidia_gpu(folder.path()) == "NVIDIA H200");
  folder.write("gpus/0000:3a:00.0/registry", "Binary: \"\"\n");
  CHECK(nvidia_gpu(folder.path()) == "NVIDIA H200");
  folder.write("gpus/0000:3a:00.0/information", "Model: \t\t NVIDIA L4\n");
  CHECK(nvidia_gpu(folder.path()).empty());  // several models
  folder.write("gpus/0000:3a:00.0/information", "Model: \t\t \n");
  CHECK(nvidia_gpu(folder.path()).empty());
}

}  // namespace automodel
