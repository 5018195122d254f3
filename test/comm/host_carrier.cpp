#include "comm/carrier.h"

namespace automodel::test {

comm::WorldOptions carried(comm::WorldOptions options) {
  return options;
}

std::string carrier_mistake() {
  return "";
}

}  // namespace automodel::test
