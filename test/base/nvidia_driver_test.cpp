#include "base/nvidia_driver.h"

#include <catch2/catch.hpp>

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

}  // namespace automodel
