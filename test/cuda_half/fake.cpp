// Stand-ins for the CUDA half (plugin_test.py): one from another build, one from this build that needs a missing
// library, and one from this build without an entry point.
#include "cuda_half/stamp.h"

extern "C" {

[[gnu::used]] extern const char fake_stamp[] = AUTOMODEL_CUDA_PLUGIN_MARK FAKE_STAMP;

#ifdef FAKE_NEEDS
void automodel_missing_library();
void* automodel_cuda_half() {
  automodel_missing_library();
  return nullptr;
}
#endif
}
