// Values as Python prints them.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace automodel::data {

/// json.dumps(value), with ", " and ": "; `ascii` writes other characters as \uXXXX.
std::string python_json(const nlohmann::ordered_json& value, bool ascii);
/// str(value).
std::string python_text(const nlohmann::ordered_json& value);

}  // namespace automodel::data
