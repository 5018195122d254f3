#include "cuda_half/cuda_half.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>
#include <typeinfo>

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <ATen/detail/CUDAHooksInterface.h>

#include "base/cuda_plugin.h"
#include "base/error.h"
#include "base/nvidia_driver.h"
#include "base/shared_part.h"
#include "cuda_half/module/module.h"
#include "cuda_half/nvrtc.h"
#include "cuda_half/stamp.h"

namespace automodel {
namespace {

namespace fs = std::filesystem;

struct Loaded {
  const CudaHalf* half = nullptr;
  std::optional<Diagnostic> problem = {};
};

Loaded lacking(std::string message, std::string help) {
  return {nullptr, Diagnostic{"no-cuda-half"}.says(std::move(message)).hint(std::move(help)).of("device")};
}

/// The build stamp embedded in `file`; empty if there is none.
std::string stamp_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(in), {});
  const std::string_view mark = AUTOMODEL_CUDA_PLUGIN_MARK;
  const auto at = bytes.find(mark);
  return at == std::string::npos ? "" : std::string(bytes.c_str() + at + mark.size());
}

/// The folder from which this process has loaded a library; empty if it has not.
fs::path folder_of_loaded(const char* name) {
  void* library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return {};
  auto out = folder_of_object(library);
  dlclose(library);
  return out;
}

/// Reports that `what` could not be loaded, with the cause from dlerror().
Loaded not_loaded(const std::string& what) {
  const std::string said = dlerror();
  const auto colon = said.find(": ");  // after the name of the file
  const auto file = said.substr(0, colon), cause = colon == std::string::npos ? said : said.substr(colon + 2);
  if (said.find("cannot open shared object file") == std::string::npos)
    return lacking(fmt::format("{} cannot be loaded: {}", what, cause),
                   "the program and its CUDA half are of one build with one LibTorch; install both again");
  return lacking(
      fmt::format("{} cannot be loaded: {} is not found", what, file),
      "pip install torch brings NVIDIA's libraries; in a checkout scripts/install_dependencies.sh --gpu does; "
      "LD_LIBRARY_PATH names other places");
}

Loaded load() {
  std::error_code error;
  const auto places = cuda_plugin_places(program_folder());
  const auto file = first_that_exists(places);
  if (file.empty())
    return lacking(fmt::format("the program's CUDA half is not installed; looked for {}", shown_places(places)),
                   "build it: cmake --preset cuda (docs/gpu.md); device: cpu does without");
  // The stamp includes the compiler's version. A check on a GPU machine may compile the half with another one.
  const auto stamp = stamp_of(file);
  if (stamp != AUTOMODEL_CUDA_HALF_STAMP && std::getenv("AUTOMODEL_CUDA_ANY_BUILD") == nullptr)
    return lacking(fmt::format("'{}' belongs to another build of this program ({}, not {})", file.native(),
                               stamp.empty() ? "no stamp" : stamp, AUTOMODEL_CUDA_HALF_STAMP),
                   "build or install the program and its CUDA half together");
  // LibTorch's CUDA library comes first, because its run path locates NCCL, cuBLAS and cuDNN.
  const auto libtorch = folder_of_loaded("libtorch_cpu.so") / "libtorch_cuda.so";
  if (!fs::exists(libtorch, error))
    return lacking(
        fmt::format("LibTorch in '{}' is the CPU build: it has no libtorch_cuda.so", libtorch.parent_path().native()),
        "pip install torch from PyPI, whose wheels have CUDA");
  if (dlopen(libtorch.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) return not_loaded("LibTorch's CUDA half");
  open_nvrtc(folder_of_loaded("libcudart.so.13"));
  void* object = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (object == nullptr) return not_loaded(fmt::format("'{}'", file.native()));
  using Entry = const CudaHalf* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(object, "automodel_cuda_half"));
  if (entry == nullptr) return not_loaded(fmt::format("'{}'", file.native()));
  // LibTorch caches its CUDA hooks at first use, so nothing may have used them before this.
  AUTOMODEL_CHECK(typeid(at::detail::getCUDAHooks()) != typeid(at::CUDAHooksInterface),
                  "LibTorch was asked for devices before its CUDA half was loaded");
  return {entry(), {}};
}

const Loaded& loaded() {
  static const Loaded result = [] {
    auto out = load();  // never closed
    if (out.half != nullptr) {
      comm::use_nccl(*out.half->nccl);
      ops::use_kernels(*out.half->kernels);
      ops::use_capture(out.half->capture);
    }
    return out;
  }();
  return result;
}

}  // namespace

std::optional<Diagnostic> load_cuda_half() {
  return loaded().problem;
}

void require_cuda_half() {
  if (const auto problem = load_cuda_half()) throw Error(ExitCode::kEnvironment, *problem);
}

std::string cuda_half_versions() {
  return loaded().half != nullptr ? loaded().half->versions() : "";
}

bool cuda_half_expected() {
  return cuda_plugin_named() || has_nvidia_driver();
}

}  // namespace automodel
