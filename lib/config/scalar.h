// The meaning of a YAML scalar. The one place for YAML 1.1's words (yes, on, ~) and for the Python words that NeMo
// AutoModel's recipes also use (None, True), on the command line and in files.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "config/value.h"

namespace automodel::config {

/// Without white space at its ends.
std::string_view trimmed(std::string_view text);
/// Empty, `~`, null, Null, NULL, none, None; in quotes only the last two (NeMo AutoModel translates quoted text as
/// well).
bool is_null_word(std::string_view text, bool quoted);
/// true/false, yes/no, on/off in lower case, Capitalised or UPPER case; in quotes only true, True, false, False.
std::optional<bool> parse_boolean(std::string_view text, bool quoted);
/// Decimal with sign and underscores (1_000), or hexadecimal (0x10). Leading zeros (010) are not allowed.
std::optional<std::int64_t> parse_integer(std::string_view text);
/// An integer, or a decimal number with optional exponent (1e-5, .5, 3.), .inf, -.inf, .nan.
std::optional<double> parse_number(std::string_view text);
/// The value that an untyped scalar has: null, boolean, integer, number, else the text itself.
Value scalar_value(std::string_view text, bool quoted);

}  // namespace automodel::config
