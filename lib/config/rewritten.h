// A recipe's text with some of its sections changed.
#pragma once

#include <string>
#include <string_view>

#include "config/value.h"

namespace automodel::config {

/// YAML text that reads as `value`, a map: `text` with the sections that differ written anew, those that are gone left
/// out and new ones appended. Everything else stays as it is, comments too. If that cannot be done, as with a section
/// that refers to an anchor in another one, all of it is written anew.
std::string rewritten(std::string_view text, const Value& value);

}  // namespace automodel::config
