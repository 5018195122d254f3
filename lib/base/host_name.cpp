#include "base/host_name.h"

#include <array>

#include <unistd.h>

namespace automodel {

std::string host_name() {
  std::array<char, 256> name = {};
  gethostname(name.data(), name.size() - 1);
  return name[0] != '\0' ? name.data() : "localhost";
}

}  // namespace automodel
