// SHA-256 (FIPS 180-4), as recorded values give large outputs.
#pragma once

#include <string>
#include <string_view>

namespace automodel::test {

/// In lower-case hexadecimal.
std::string sha256(std::string_view bytes);

}  // namespace automodel::test
