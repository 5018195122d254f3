// Conversations as templates take them: OpenAI's messages, checked and completed.
#pragma once

#include <nlohmann/json.hpp>

namespace automodel::data {

/// The messages of a row: `messages`, or ShareGPT's `conversations`. Contents become text, calls of tools get id, type
/// and arguments as JSON text. Throws RowRefused.
nlohmann::ordered_json openai_messages(const nlohmann::ordered_json& row);

/// The tools of a row: a list, or its JSON text; null where there is none.
nlohmann::ordered_json tools_of(const nlohmann::ordered_json& row);

}  // namespace automodel::data
