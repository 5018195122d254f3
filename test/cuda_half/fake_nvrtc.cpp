// Stand-ins for NVRTC and its builtins, of a version that no machine has. Like the real one, NVRTC opens its builtins
// by bare name when it compiles; their folder is in no search path.
#ifdef FAKE_BUILTINS
extern "C" int fake_builtins() {
  return 0;
}
#else
#include <cstddef>
#include <cstring>

#include <dlfcn.h>

namespace {

constexpr char kLog[] = "nvrtc: error: failed to open libnvrtc-builtins.so.99.0.\n";

}  // namespace

extern "C" {

int nvrtcCreateProgram(void** program, const char* source, const char*, int, const char**, const char**) {
  *program = nullptr;
  return std::strstr(source, "__global__") != nullptr ? 0 : 1;
}
int nvrtcCompileProgram(void*, int, const char**) {
  return dlopen("libnvrtc-builtins.so.99.0", RTLD_LAZY) != nullptr ? 0 : 7;
}
int nvrtcGetProgramLogSize(void*, std::size_t* size) {
  *size = sizeof kLog;
  return 0;
}
int nvrtcGetProgramLog(void*, char* log) {
  std::memcpy(log, kLog, sizeof kLog);
  return 0;
}
int nvrtcDestroyProgram(void**) {
  return 0;
}
}
#endif
