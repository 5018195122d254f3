#include "data/messages.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "data/chat_format.h"
#include "data/python_json.h"
#include "rows/bounded_json.h"

namespace automodel::data {
namespace {

using nlohmann::ordered_json;

/// ShareGPT's role names and ours.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kSpeakers = {{{"system", "system"},
                                                                                     {"human", "user"},
                                                                                     {"user", "user"},
                                                                                     {"gpt", "assistant"},
                                                                                     {"assistant", "assistant"},
                                                                                     {"chatgpt", "assistant"},
                                                                                     {"model", "assistant"},
                                                                                     {"bot", "assistant"}}};
constexpr std::array<std::string_view, 4> kRoles = {"system", "user", "assistant", "tool"};

ordered_json from_share_gpt(const ordered_json& turns) {
  if (!turns.is_array()) throw RowRefused("column 'conversations' is not a list");
  ordered_json out = ordered_json::array();
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const auto& turn = turns[i];
    if (!turn.is_object()) throw RowRefused(fmt::format("conversations[{}] is not a turn", i));
    const auto from = turn.contains("from") ? turn["from"] : turn.value("role", ordered_json());
    const auto* speaker = std::find_if(kSpeakers.begin(), kSpeakers.end(),
                                       [&](const auto& row) { return from.is_string() && from == row.first; });
    if (speaker == kSpeakers.end())
      throw RowRefused(fmt::format("conversations[{}] has the unknown role {}", i, from.dump()));
    const auto value = turn.contains("value") ? turn["value"] : turn.value("content", ordered_json(""));
    out.push_back({{"role", speaker->second}, {"content", value}});
  }
  return out;
}

std::string text_of(const ordered_json& content) {
  if (content.is_null()) return "";
  if (!content.is_array()) return python_text(content);
  std::string out;
  bool first = true;
  for (const auto& part : content) {
    if (!part.is_object() || !part.contains("text")) continue;
    if (!part["text"].is_string()) throw RowRefused("a part of a message's content has a 'text' that is not text");
    out += (first ? "" : " ") + part["text"].get<std::string>();
    first = false;
  }
  return out;
}

/// A string member, or `otherwise` if it is missing, null or empty; anything else is refused.
std::string word(const ordered_json& object, const char* name, const std::string& otherwise) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return otherwise;
  if (!found->is_string()) throw RowRefused(fmt::format("'{}' of a tool call is not text", name));
  return found->get_ref<const std::string&>().empty() ? otherwise : found->get<std::string>();
}

ordered_json completed_calls(const ordered_json& calls) {
  if (!calls.is_array()) throw RowRefused("'tool_calls' of a message is not a list");
  ordered_json out = ordered_json::array();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    ordered_json call = calls[i];
    if (!call.is_object()) throw RowRefused(fmt::format("tool_calls[{}] is not a call", i));
    call["id"] = word(call, "id", fmt::format("call_{}", i));
    call["type"] = word(call, "type", "function");
    const auto function = call.find("function");
    if (function == call.end() || !function->is_object())
      throw RowRefused(fmt::format("tool_calls[{}] has no function", i));
    if (word(*function, "name", "").empty()) throw RowRefused(fmt::format("tool_calls[{}] has no name", i));
    auto arguments = function->find("arguments");
    if (arguments == function->end() || arguments->is_null())
      throw RowRefused(fmt::format("tool_calls[{}] has no arguments", i));
    if (!arguments->is_string()) *arguments = python_json(*arguments, true);
    out.push_back(std::move(call));
  }
  return out;
}

/// The parts of a message's content.
ordered_json parts_of(const ordered_json& content) {
  if (!content.is_array()) return ordered_json::array({{{"type", "text"}, {"text", text_of(content)}}});
  ordered_json out = ordered_json::array();
  for (const auto& part : content) {
    const auto type = part.is_object() ? part.value("type", ordered_json()) : ordered_json();
    const auto member = [&](const char* name) { return part.value(name, ordered_json()); };
    if (type == "text" && member("text").is_string()) {
      out.push_back({{"type", "text"}, {"text", member("text")}});
    } else if (type == "image") {
      const auto image = member(part.contains("image") ? "image" : "path");
      if (!image.is_object() && (!image.is_string() || image.get_ref<const std::string&>().empty()))
        throw RowRefused("a picture of a message's content does not name its file as 'image'");
      out.push_back({{"type", "image"}, {"image", image}});
    } else {
      throw RowRefused(fmt::format(
          "a message's content has a part of type {}; parts are text, with 'text', and image, with the name of a file",
          type.dump()));
    }
  }
  return out;
}

ordered_json completed(const ordered_json& message, std::size_t i, bool parts) {
  if (!message.is_object()) throw RowRefused(fmt::format("messages[{}] is not a message", i));
  ordered_json out = message;
  const auto role = out.value("role", ordered_json());
  if (!role.is_string() || std::find(kRoles.begin(), kRoles.end(), role.get_ref<const std::string&>()) == kRoles.end())
    throw RowRefused(
        fmt::format("messages[{}] has the role {}; it must be system, user, assistant or tool", i, role.dump()));
  check_weight(message, i);
  const auto content = out.value("content", ordered_json());
  out["content"] = parts ? parts_of(content) : ordered_json(text_of(content));
  if (role == "assistant") {
    if (out.contains("reasoning_content")) {
      if (out["reasoning_content"].is_null()) out["reasoning_content"] = "";
      if (!out["reasoning_content"].is_string())
        throw RowRefused(fmt::format("the reasoning of messages[{}] is not text", i));
    }
    if (out.contains("tool_calls")) out["tool_calls"] = completed_calls(out["tool_calls"]);
  }
  const auto id = out.value("tool_call_id", ordered_json());
  if (role == "tool" && (!id.is_string() || id.get_ref<const std::string&>().empty()))
    throw RowRefused(fmt::format("messages[{}] answers no call: it has no tool_call_id", i));
  return out;
}

}  // namespace

std::string column_names(const ordered_json& row) {
  std::string out;
  for (const auto& [name, value] : row.items()) out += (out.empty() ? "" : ", ") + name;
  return out.empty() ? "nothing" : out;
}

namespace {

ordered_json messages_of(const ordered_json& row, bool parts) {
  ordered_json messages = row.value("messages", ordered_json());
  if (messages.is_null() && parts) messages = row.value("conversation", ordered_json());
  const auto turns = row.value("conversations", ordered_json());
  if (messages.is_null() && !turns.is_null()) messages = from_share_gpt(turns);
  if (messages.is_null())
    throw RowRefused(
        fmt::format("the row has neither 'messages' nor 'conversations' but {}, which _target_: "
                    "column_mapped reads with a column_mapping",
                    column_names(row)));
  if (!messages.is_array() || messages.empty())
    throw RowRefused(fmt::format("column '{}' is {}", messages_column(row),
                                 messages.is_array() ? "an empty list" : "not a list of messages"));
  ordered_json out = ordered_json::array();
  for (std::size_t i = 0; i < messages.size(); ++i) out.push_back(completed(messages[i], i, parts));
  return out;
}

}  // namespace

ordered_json openai_messages(const ordered_json& row) {
  return messages_of(row, false);
}

ordered_json picture_messages(const ordered_json& row) {
  return messages_of(row, true);
}

void check_weight(const ordered_json& message, std::size_t index) {
  const auto weight = message.value("weight", ordered_json());
  if (!weight.is_null() && weight != 1)
    throw RowRefused(
        fmt::format("messages[{}] has the weight {}, but all answers are learned alike", index, weight.dump()));
}

void check_calls(const ordered_json& messages, const std::string& text,
                 const std::function<std::string(const ordered_json&)>& render) {
  const auto calls = [](const ordered_json& message) { return !message.value("tool_calls", ordered_json()).empty(); };
  if (std::none_of(messages.begin(), messages.end(), calls)) return;  // most rows: nothing is copied or rendered
  ordered_json others = messages;
  for (auto& message : others) message.erase("tool_calls");
  try {
    if (render(others) != text) return;
  } catch (const std::runtime_error&) {
    return;  // the template wants them
  }
  throw RowRefused("the chat template leaves the tool calls out, and an answer without them would be learned");
}

std::string messages_column(const ordered_json& row) {
  for (const char* name : {"messages", "conversation"})
    if (const auto column = row.find(name); column != row.end() && !column->is_null()) return name;
  return "conversations";
}

ordered_json tools_of(const ordered_json& row) {
  ordered_json tools = row.value("tools", ordered_json());
  if (tools.is_string()) {
    tools = rows::json_in_text(tools.get_ref<const std::string&>());
    if (tools.is_discarded()) throw RowRefused("column 'tools' is text that is not JSON");
  }
  if (!tools.is_null() && !tools.is_array()) throw RowRefused("column 'tools' is not a list");
  return tools.empty() ? ordered_json() : tools;
}

}  // namespace automodel::data
