#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "base/processor.h"

namespace automodel {

const Processor& processor() {
  static const Processor here = [] {
    Processor out{.crc32 = (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0};
    if ((getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0) out.bfloat16 = BFloat16Unit::kArm;
    return out;
  }();
  return here;
}

}  // namespace automodel
