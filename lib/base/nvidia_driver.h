// What this machine's NVIDIA driver can run, from its version line under /proc; no library is loaded.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace automodel {

/// Major version of the CUDA runtime that LibTorch's CUDA wheels are built with (third_party/pip.txt).
inline constexpr int kCudaMajor = 13;

/// First line of /proc/driver/nvidia/version; empty if there is none.
std::string nvidia_driver();
/// Whether a driver is present, including where that file is missing (WSL, some containers).
bool has_nvidia_driver();
/// Model of this machine's GPUs as the driver names it ("NVIDIA H200"), from `folder`/gpus/*/information; empty without
/// GPUs, if there are several models, and where the driver has no such files.
std::string nvidia_gpu(const std::filesystem::path& folder = "/proc/driver/nvidia");
/// Driver branch of a version line: 580 for "NVRM version: NVIDIA UNIX x86_64 Kernel Module 580.65.06 ..."; 0 if the
/// line has no version.
int driver_branch(std::string_view line);
/// Why the driver cannot run programs built for CUDA `major` (11, 12 or 13); "" if it can or if its version is unknown.
/// Minimum driver branches from NVIDIA's compatibility table: 450, 525, 580.
std::string driver_lack(std::string_view line, int major);

}  // namespace automodel
