// Values formatted as Python prints them.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace automodel::data {

/// json.dumps(value), with separators ", " and ": "; `ascii` escapes non-ASCII characters as \uXXXX.
std::string python_json(const nlohmann::ordered_json& value, bool ascii);
/// str(value).
std::string python_text(const nlohmann::ordered_json& value);

/// Donut's text of a JSON value: <s_key>value</s_key> for each key, the last in the alphabet first, list items with
/// <sep/> between them, other values as Python writes them; an object whose only key is text_sequence is its text.
/// Throws RowRefused. Source: json2token in NeMo AutoModel 0.7, which sorts the keys.
std::string tagged_text(const nlohmann::ordered_json& value);

}  // namespace automodel::data
