// Conversations in the form that templates take: OpenAI messages, validated and completed.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include <nlohmann/json.hpp>

namespace automodel::data {

/// The messages of a row: `messages`, or ShareGPT's `conversations`. Contents become text; tool calls get an id, a
/// type, and arguments as JSON text. Throws RowRefused.
nlohmann::ordered_json openai_messages(const nlohmann::ordered_json& row);

/// The same for a model that takes pictures: `conversation` is read too, and contents become lists of parts, {"type":
/// "text", "text": ...} and {"type": "image", "image": a file or a cell with bytes}, because some templates know no
/// others.
nlohmann::ordered_json picture_messages(const nlohmann::ordered_json& row);
/// Refuses messages with a weight other than 1, since all answers are learned alike. Throws RowRefused.
void check_weight(const nlohmann::ordered_json& message, std::size_t index);
/// Refuses a conversation whose rendering `text` would be the same without its tool calls: an answer without them would
/// be learned. `render` gives the text of other messages. Throws RowRefused.
void check_calls(const nlohmann::ordered_json& messages, const std::string& text,
                 const std::function<std::string(const nlohmann::ordered_json&)>& render);
/// The column that they are in.
std::string messages_column(const nlohmann::ordered_json& row);

/// "a, b": the columns of a row.
std::string column_names(const nlohmann::ordered_json& row);

/// The tools of a row: a list, or a list as JSON text; null if there are none.
nlohmann::ordered_json tools_of(const nlohmann::ordered_json& row);

}  // namespace automodel::data
