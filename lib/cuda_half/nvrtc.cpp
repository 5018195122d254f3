#include "cuda_half/nvrtc.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <system_error>

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/shared_part.h"

namespace automodel {
namespace {

namespace fs = std::filesystem;

void* opened = nullptr;  ///< NVRTC

/// Opens the file of `folder` whose name begins so; of several versions the highest.
void* open_one(const fs::path& folder, std::string_view prefix) {
  fs::path found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().filename().native().starts_with(prefix)) found = std::max(found, entry.path());
  return found.empty() ? nullptr : dlopen(found.c_str(), RTLD_NOW | RTLD_LOCAL);
}

/// NVRTC's interface (nvrtc.h), which LibTorch does not bring: looked up by name.
template <class Function>
Function* of_nvrtc(const char* name) {
  return reinterpret_cast<Function*>(dlsym(opened, name));
}

}  // namespace

void open_nvrtc(const fs::path& folder) {
  opened = open_one(folder, "libnvrtc.so.");
  if (opened == nullptr) opened = dlopen("libnvrtc.so.13", RTLD_NOW | RTLD_LOCAL);
  if (opened != nullptr) open_one(folder_of_object(opened), "libnvrtc-builtins.so.");
}

std::string kernel_compiler_problem() {
  if (opened == nullptr) return "NVRTC (libnvrtc.so.13) is not found";
  using Program = void*;
  auto* const create =
      of_nvrtc<int(Program*, const char*, const char*, int, const char**, const char**)>("nvrtcCreateProgram");
  auto* const compile = of_nvrtc<int(Program, int, const char**)>("nvrtcCompileProgram");
  auto* const log_size = of_nvrtc<int(Program, std::size_t*)>("nvrtcGetProgramLogSize");
  auto* const log = of_nvrtc<int(Program, char*)>("nvrtcGetProgramLog");
  auto* const destroy = of_nvrtc<int(Program*)>("nvrtcDestroyProgram");
  if (create == nullptr || compile == nullptr || log_size == nullptr || log == nullptr || destroy == nullptr)
    return "NVRTC lacks a function of its interface";
  Program program = nullptr;
  if (create(&program, "extern \"C\" __global__ void one(float* x) { *x += 1; }", "one.cu", 0, nullptr, nullptr) != 0)
    return "NVRTC takes no program";
  const char* options[] = {"--gpu-architecture=compute_90"};
  const int status = compile(program, 1, options);
  std::size_t size = 0;
  std::string said;
  if (status != 0 && log_size(program, &size) == 0 && size > 0) {
    said.resize(size);
    log(program, said.data());
    said.resize(std::string_view(said).find_last_not_of(std::string_view("\n\0", 2)) + 1);
  }
  destroy(&program);
  if (status == 0) return "";
  return fmt::format("NVRTC cannot compile a kernel: {}", said.empty() ? std::to_string(status) : said);
}

}  // namespace automodel
