// NVRTC: every program compiles, to nothing. The driver of this device loads none, so what compiles at run time in
// LibTorch itself (jiterator) ends the process there, with the driver's function.
#include <nvrtc.h>

#include "device.h"

struct _nvrtcProgram {};

NULL_DEVICE_EXPORT nvrtcResult nvrtcVersion(int* major, int* minor) {
  *major = CUDART_VERSION / 1000;
  *minor = CUDART_VERSION % 1000 / 10;
  return NVRTC_SUCCESS;
}
NULL_DEVICE_EXPORT nvrtcResult nvrtcCreateProgram(nvrtcProgram* out, const char*, const char*, int, const char* const*,
                                                  const char* const*) {
  *out = new _nvrtcProgram;
  return NVRTC_SUCCESS;
}
NULL_DEVICE_EXPORT nvrtcResult nvrtcCompileProgram(nvrtcProgram, int, const char* const*) {
  return NVRTC_SUCCESS;
}
NULL_DEVICE_EXPORT nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  delete *program;
  *program = nullptr;
  return NVRTC_SUCCESS;
}
