// How much a recipe may make the program read and keep (SECURITY.md).
#pragma once

#include <cstddef>

namespace automodel::config {

inline constexpr std::size_t kMaxRecipe = std::size_t{4} << 20;  ///< bytes of its text
inline constexpr std::size_t kMaxExpanded = std::size_t{16}
                                            << 20;  ///< of scalars and keys, aliases and variables replaced
inline constexpr std::size_t kMaxNodes = 200'000;   ///< values, those of aliases included

}  // namespace automodel::config
