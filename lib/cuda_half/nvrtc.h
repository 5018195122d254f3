// NVRTC, the compiler with which cuDNN makes its attention kernels at run time. It opens a second file by bare name and
// has no run path of its own, so where CUDA comes only from wheels it fails unless the process has opened that file.
#pragma once

#include <filesystem>
#include <string>

namespace automodel {

/// Opens NVRTC and its builtins by full path, from `folder` or, if it is not there, from where the loader finds it.
/// Both stay open. No effect if there is none.
void open_nvrtc(const std::filesystem::path& folder);

/// Compiles a kernel with what open_nvrtc() opened, which needs no GPU: the reason if it cannot; "" if it can.
std::string kernel_compiler_problem();

}  // namespace automodel
