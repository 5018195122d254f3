// Values formatted as Python prints them.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace automodel::data {

/// json.dumps(value), with separators ", " and ": "; `ascii` escapes non-ASCII characters as \uXXXX.
std::string python_json(const nlohmann::ordered_json& value, bool ascii);
/// str(value).
std::string python_text(const nlohmann::ordered_json& value);

}  // namespace automodel::data
