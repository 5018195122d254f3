#include "base/version.h"

namespace automodel {

constinit const std::string_view kVersion = AUTOMODEL_VERSION;

}  // namespace automodel
