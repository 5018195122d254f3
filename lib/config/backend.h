// Communication backends.
#pragma once

#include "config/types.h"

namespace automodel::config {

enum class Backend { kAuto, kMpi, kNccl };
template <>
struct EnumNames<Backend> {
  static constexpr std::array names = {
      EnumName<Backend>{"auto", Backend::kAuto}, EnumName<Backend>{"nccl", Backend::kNccl},
      EnumName<Backend>{"mpi", Backend::kMpi}, EnumName<Backend>{"gloo", Backend::kMpi}};
};

}  // namespace automodel::config
