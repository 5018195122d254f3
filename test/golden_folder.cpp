// The one test source that is compiled for its checkout: a compiler cache shares all others between checkouts.
#include "golden_folder.h"

namespace automodel {

std::string golden_folder() {
  return AUTOMODEL_GOLDEN_DIR;
}

}  // namespace automodel
