// Where the recorded values are.
#pragma once

#include <string>

namespace automodel {

/// test/golden of the checkout that the tests were built from.
std::string golden_folder();

}  // namespace automodel
