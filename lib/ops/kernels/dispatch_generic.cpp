#include "ops/kernels/kernels.h"

namespace automodel::ops {

namespace generic {
Kernels table(const char* name);
}

const Kernels& kernels() {
  static const Kernels only = generic::table("generic");
  return only;
}

}  // namespace automodel::ops
