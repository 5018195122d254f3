// Interpretation of YAML scalars. The single place that knows YAML 1.1's words (yes, on,
// ) and the Python words that NeMo AutoModel's recipes also use (None, True), for both the command line and files.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "config/value.h"

namespace automodel::config {

/// Without leading and trailing white space.
std::string_view trimmed(std::string_view text);
/// Empty, `
/// `, null, Null, NULL, none or None. If quoted, only the last two, because NeMo AutoModel translates them even in
/// quotes.
bool is_null_word(std::string_view text, bool quoted);
/// true/false, yes/no, on/off in lower, Capitalised or UPPER case. If quoted, only true, True, false and False.
std::optional<bool> parse_boolean(std::string_view text, bool quoted);
/// Decimal with sign and underscores (1_000), or hexadecimal (0x10). Leading zeros (010) are not allowed.
std::optional<std::int64_t> parse_integer(std::string_view text);
/// An integer, or a decimal number with optional exponent (1e-5, .5, 3.), .inf, -.inf, .nan.
std::optional<double> parse_number(std::string_view text);
/// The value of an untyped scalar: null, boolean, integer, number, or else the text itself.
Value scalar_value(std::string_view text, bool quoted);

}  // namespace automodel::config
