// Facts about code points that neither the standard library nor PCRE2 has. scripts/make_unicode_tables.py writes the
// source file.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace automodel::tokenizer {

/// A code point's canonical decomposition, one step; `second` is 0 where it has one part. Ordered by code point.
struct Decomposition {
  char32_t point;
  char32_t first;
  char32_t second;
};
std::span<const Decomposition> decompositions();

/// Code points first ... last have this canonical combining class; all others have 0. Ordered.
struct CombiningClass {
  char32_t first;
  char32_t last;
  std::uint8_t value;
};
std::span<const CombiningClass> combining_classes();

/// Two code points that compose (without Hangul, which is computed). Ordered by (first, second).
struct Composition {
  char32_t first;
  char32_t second;
  char32_t composed;
};
std::span<const Composition> compositions();

/// What belongs to a general category in `tokenizers` 0.23 and not in PCRE2 10.42's Unicode 14, as the inside of a
/// bracket expression.
struct NewerRanges {
  std::string_view category;
  std::string_view ranges;
};
std::span<const NewerRanges> newer_ranges();

}  // namespace automodel::tokenizer
