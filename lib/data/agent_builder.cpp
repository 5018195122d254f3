// Conversations with tools, turn by turn: chatml roles, ShareGPT's, or OpenAI messages.
#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "data/builder.h"
#include "data/messages.h"
#include "data/python_json.h"
#include "rows/bounded_json.h"

namespace automodel::data {
namespace {

using nlohmann::ordered_json;

/// Role names of ShareGPT and chatml, and the ones used here.
constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kAgentSpeakers = {
    {{"system", "system"},
     {"human", "user"},
     {"user", "user"},
     {"gpt", "assistant"},
     {"assistant", "assistant"},
     {"function_call", "tool_call"},
     {"tool_call", "tool_call"},
     {"observation", "tool_response"},
     {"tool_response", "tool_response"},
     {"tool", "tool_response"}}};

std::string role_of(const ordered_json& turn) {
  const auto role = turn.is_object() ? turn.value("role", ordered_json()) : ordered_json();
  return role.is_string() ? role.get<std::string>() : role.dump();
}

/// A string member; "" if it is missing or not a string.
std::string text_member(const ordered_json& object, const char* name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string json_text(const ordered_json& value) {
  return value.is_string() ? value.get<std::string>() : python_json(value, false);
}

/// Reasoning as text; nothing if it is empty.
std::optional<std::string> reasoning_of(const ordered_json& turn) {
  const auto value = turn.value("reasoning_content", ordered_json());
  const bool none =
      value.is_null() || value == "" || value == 0 || value == false || (value.is_structured() && value.empty());
  if (none) return std::nullopt;
  return python_text(value);
}

ordered_json turns_of(const ordered_json& row) {
  const auto messages = row.value("messages", ordered_json());
  if (messages.is_array()) return messages;
  if (!messages.is_null()) throw RowRefused("column 'messages' is not a list");
  const auto conversation = row.value("conversations", ordered_json());
  if (!conversation.is_array()) throw RowRefused("the row has neither a list 'messages' nor one 'conversations'");
  ordered_json out = ordered_json::array();
  for (const auto& turn : conversation) {
    const std::string from = text_member(turn, "from");
    const auto* speaker = std::find_if(kAgentSpeakers.begin(), kAgentSpeakers.end(),
                                       [&](const auto& known) { return known.first == from; });
    if (speaker == kAgentSpeakers.end()) throw RowRefused(fmt::format("a turn has the unknown role '{}'", from));
    ordered_json own = {{"role", speaker->second}, {"content", turn.value("value", ordered_json(""))}};
    if (const auto reasoning = reasoning_of(turn)) own["reasoning_content"] = *reasoning;
    out.push_back(std::move(own));
  }
  return out;
}

ordered_json call_of(const std::string& id, const std::string& name, const ordered_json& arguments) {
  return {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", json_text(arguments)}}}};
}

/// Converts turns to OpenAI messages.
class TurnConversion {
 public:
  TurnConversion(const ordered_json& turns, const ordered_json& id) : turns_(turns) {
    prefix_ = id.is_null() ? "call" : "call_" + python_text(id);
  }

  ordered_json run() {
    while (at_ < turns_.size()) {
      const std::string role = role_of(turns_[at_]);
      if (role == "tool_call")
        take_calls();
      else if (role == "tool_response" || role == "tool")
        take_responses();
      else if (role == "system" || role == "user" || role == "assistant")
        take_message(role);
      else
        throw RowRefused(fmt::format("a turn has the role {}", role));
    }
    return std::move(out_);
  }

 private:
  std::string next_id() { return fmt::format("{}_{}", prefix_, calls_++); }

  /// Consecutive calls form one message; they join the assistant message directly before them if it has no calls yet.
  void take_calls() {
    ordered_json calls = ordered_json::array();
    waiting_.clear();
    for (; at_ < turns_.size() && role_of(turns_[at_]) == "tool_call"; ++at_) {
      ordered_json call = turns_[at_].value("content", ordered_json());
      if (call.is_null() || call == "") call = ordered_json::object();
      if (call.is_string()) call = rows::json_in_text(call.get_ref<const std::string&>());
      if (call.is_discarded()) throw RowRefused("a tool_call is not JSON");
      const std::string name = text_member(call, "name");
      if (name.empty()) throw RowRefused("a tool_call has no name");
      waiting_.push_back(next_id());
      calls.push_back(call_of(waiting_.back(), name, call.value("arguments", ordered_json(""))));
    }
    const bool attach = !out_.empty() && out_.back()["role"] == "assistant" && !out_.back().contains("tool_calls");
    if (attach)
      out_.back()["tool_calls"] = std::move(calls);
    else
      out_.push_back({{"role", "assistant"}, {"content", ""}, {"tool_calls", std::move(calls)}});
  }

  void take_responses() {
    for (std::size_t i = 0; at_ < turns_.size(); ++at_, ++i) {
      const std::string role = role_of(turns_[at_]);
      if (role != "tool_response" && role != "tool") return;
      const auto& turn = turns_[at_];
      std::string id = text_member(turn, "tool_call_id");
      if (id.empty()) id = i < waiting_.size() ? waiting_[i] : fmt::format("{}_response_{}_{}", prefix_, calls_, i);
      ordered_json message = {
          {"role", "tool"}, {"content", json_text(turn.value("content", ordered_json("")))}, {"tool_call_id", id}};
      if (const std::string name = text_member(turn, "name"); !name.empty()) message["name"] = name;
      out_.push_back(std::move(message));
    }
  }

  void take_message(const std::string& role) {
    const auto& turn = turns_[at_++];
    waiting_.clear();
    const auto content = turn.value("content", ordered_json(""));
    ordered_json message = {{"role", role}, {"content", content.is_null() ? "" : python_text(content)}};
    if (role == "assistant") {
      if (const auto reasoning = reasoning_of(turn)) message["reasoning_content"] = *reasoning;
      const auto calls = turn.value("tool_calls", ordered_json());
      if (!calls.is_null()) message["tool_calls"] = own_calls(calls);
    }
    out_.push_back(std::move(message));
  }

  ordered_json own_calls(const ordered_json& calls) {
    if (!calls.is_array()) throw RowRefused("'tool_calls' of a message is not a list");
    ordered_json out = ordered_json::array();
    for (const auto& call : calls) {
      const auto function = call.is_object() ? call.value("function", ordered_json()) : ordered_json();
      const std::string name = text_member(function, "name");
      if (name.empty()) throw RowRefused("a tool call has no function with a name");
      std::string id = text_member(call, "id");
      const std::string own = next_id();
      waiting_.push_back(id.empty() ? own : id);
      out.push_back(call_of(waiting_.back(), name, function.value("arguments", ordered_json(""))));
    }
    return out;
  }

  const ordered_json& turns_;
  std::string prefix_;
  ordered_json out_ = ordered_json::array();
  std::vector<std::string> waiting_;  ///< ids of the latest calls, which responses answer in order
  std::size_t at_ = 0;
  int calls_ = 0;
};

/// Blank text means no tools.
ordered_json agent_tools(const ordered_json& row) {
  const auto tools = row.value("tools", ordered_json());
  const auto* text = tools.get_ptr<const std::string*>();
  if (text != nullptr && text->find_first_not_of(" \t\r\n") == std::string::npos) return nullptr;
  return tools_of(row);
}

/// Index of the assistant's last message; -1 if there is none.
std::int64_t last_assistant(const ordered_json& messages) {
  std::int64_t out = -1;
  for (std::size_t i = 0; i < messages.size(); ++i)
    if (role_of(messages[i]) == "assistant") out = static_cast<std::int64_t>(i);
  return out;
}

/// Drops rows without an assistant turn; an unreadable row stays, so that it is reported.
void drop_without_assistant(BuilderParts& parts) {
  std::vector<std::int64_t> kept;
  ordered_json row;
  const rows::Rows& all = *parts.rows.rows;
  for (std::int64_t i = 0; i < all.size(); ++i) {
    bool keep = true;
    try {
      all.read(i, row);
      keep = last_assistant(turns_of(row)) >= 0;
    } catch (const RowRefused&) {
    } catch (const rows::RowError&) {
    }
    if (keep) kept.push_back(i);
  }
  parts.rows.rows = rows::select(std::move(parts.rows.rows), kept);
}

class AgentBuilder final : public RowBuilder {
 public:
  AgentBuilder(const config::AgentChatDatasetConfig& config, const BuilderParts& parts, ChatOptions options,
               std::unique_ptr<const ChatFormat> chat)
      : RowBuilder(parts),
        config_(config),
        options_(options),
        chat_(std::move(chat)),
        length_(config.seq_length() ? *config.seq_length() : 0) {}

  std::optional<BuiltRow> build(std::int64_t index) override {
    const auto row = read(index);
    const auto tools = agent_tools(row);
    return chat_->build(messages_of(row, tools), tools, options_);
  }

 private:
  ordered_json messages_of(const ordered_json& row, const ordered_json& tools) const {
    ordered_json turns = turns_of(row);
    const std::int64_t last = last_assistant(turns);
    if (config_.trim_incomplete_last_turn() && last >= 0) turns.erase(turns.begin() + last + 1, turns.end());
    ordered_json out = TurnConversion(turns, row.value("id", ordered_json())).run();
    if (config_.drop_history_reasoning_content()) {
      const std::int64_t keep = last_assistant(out);
      for (std::size_t i = 0; i < out.size(); ++i)
        if (static_cast<std::int64_t>(i) != keep) out[i].erase("reasoning_content");
    }
    return config_.truncate_history() && length_ > 0 ? shortened(out, tools) : out;
  }

  /// Drops the oldest exchanges, each of which starts with a user message, until the rest fits.
  ordered_json shortened(const ordered_json& messages, const ordered_json& tools) const {
    if (chat_->count(messages, tools) <= length_) return messages;
    std::size_t systems = 0;
    while (systems < messages.size() && role_of(messages[systems]) == "system") ++systems;
    std::optional<ordered_json> least;
    for (std::size_t i = systems; i < messages.size(); ++i) {
      if (role_of(messages[i]) != "user") continue;
      ordered_json rest = ordered_json::array();
      for (std::size_t k = 0; k < systems; ++k) rest.push_back(messages[k]);
      for (std::size_t k = i; k < messages.size(); ++k) rest.push_back(messages[k]);
      if (chat_->count(rest, tools) <= length_) return rest;
      least = std::move(rest);
    }
    return least.value_or(messages);
  }

  config::AgentChatDatasetConfig config_;
  ChatOptions options_;
  std::unique_ptr<const ChatFormat> chat_;
  std::int64_t length_;
};

bool load_agent_rows(const config::AgentChatDatasetConfig& config, BuilderParts& parts, Diagnostics& problems) {
  const auto& name = config.dataset_name();
  const auto& paths = config.paths().paths;
  if (name.has_value() != paths.empty()) {
    problems.add("missing-key", parts.context.key + ".dataset_name")
        .says("exactly one of dataset_name and path says where the rows are")
        .hint("dataset_name: a repository; path: JSON files");
    return false;
  }
  if (name)
    return load_repository(parts, *name, "dataset_name",
                           limited(config.split().value_or("train"), config.limit_dataset_samples()), {},
                           config.revision(), problems);
  if (!load_named_files(parts, paths, "path", config.split(), problems)) return false;
  if (const auto& limit = config.limit_dataset_samples(); limit && *limit < parts.rows.rows->size())
    keep_first(parts, *limit);
  return true;
}

}  // namespace

std::unique_ptr<Builder> make_agent_builder(const config::AgentChatDatasetConfig& config, BuilderParts& parts,
                                            Diagnostics& problems) {
  const std::size_t before = problems.size();
  const std::string& key = parts.context.key;
  const ChatOptions options{.lengths = row_lengths(config, key, problems),
                            .mask_reasoning = config.mask_reasoning_content(),
                            .last_turn = config.train_on_last_turn_only()};
  if (config.filter_overlong() && !config.seq_length())
    problems.add("missing-key", key + ".seq_length").says("filter_overlong needs a length").hint("set seq_length");
  auto chat = needed_chat(parts, config.chat_template(), "conversations", problems);
  if (!load_agent_rows(config, parts, problems) || problems.size() > before) return nullptr;
  if (config.filter_no_assistant()) drop_without_assistant(parts);
  parts.extra = chat->text();
  return std::make_unique<AgentBuilder>(config, parts, options, std::move(chat));
}

}  // namespace automodel::data
