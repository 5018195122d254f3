// The name of this machine.
#pragma once

#include <string>

namespace automodel {

/// The name of this host; "localhost" if it has none.
std::string host_name();

}  // namespace automodel
