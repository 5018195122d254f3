// Locates the CUDA half of the program, a shared object next to the executable (cuda_half/cuda_half.h). Does not load
// it.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace automodel {

/// Its file name.
inline constexpr const char* kCudaPlugin = "automodel-cuda.so";
/// Environment variable naming a different file, which is then opened even on a machine without an NVIDIA driver.
inline constexpr const char* kCudaPluginVariable = "AUTOMODEL_CUDA_PLUGIN";
/// How the worker begins its line for `automodel doctor` on a CUDA half that cannot compile kernels.
inline constexpr std::string_view kNoKernelCompiler = "no kernels: ";

/// The search order. If the variable is set, only the file it names; otherwise part_places() of the executables'
/// `folder`.
std::vector<std::filesystem::path> cuda_plugin_places(const std::filesystem::path& folder);
/// The first of these that exists, or an empty path.
std::filesystem::path find_cuda_plugin(const std::filesystem::path& folder);

/// Whether the variable is set and not empty.
bool cuda_plugin_named();

}  // namespace automodel
