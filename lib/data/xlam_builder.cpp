// Function calls: a query, the available tools, and the calls that answer it.
#include <array>
#include <cctype>
#include <utility>

#include <fmt/format.h>

#include "data/builder.h"
#include "data/python_json.h"
#include "rows/bounded_json.h"

namespace automodel::data {
namespace {

using nlohmann::ordered_json;

/// Short type names and their JSON Schema equivalents.
constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kSchemaTypes = {{{"str", "string"},
                                                                                         {"string", "string"},
                                                                                         {"int", "integer"},
                                                                                         {"integer", "integer"},
                                                                                         {"float", "number"},
                                                                                         {"double", "number"},
                                                                                         {"number", "number"},
                                                                                         {"bool", "boolean"},
                                                                                         {"boolean", "boolean"},
                                                                                         {"list", "array"},
                                                                                         {"array", "array"},
                                                                                         {"object", "object"}}};

std::string schema_type(const ordered_json& parameter) {
  std::string word = python_text(parameter.value("type", ordered_json("string")));
  for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const auto& [name, type] : kSchemaTypes)
    if (name == word) return std::string(type);
  return "string";
}

/// A list column, either as JSON or as JSON text; null gives an empty list.
ordered_json json_column(const ordered_json& row, const char* column) {
  const auto found = row.find(column);
  if (found == row.end()) throw RowRefused(fmt::format("there is no column '{}'", column));
  ordered_json out = *found;
  if (out.is_string()) out = rows::json_in_text(out.get_ref<const std::string&>());
  if (out.is_null()) return ordered_json::array();
  if (out.is_discarded() || !out.is_array()) throw RowRefused(fmt::format("column '{}' is not a JSON list", column));
  for (const auto& item : out)
    if (!item.is_object()) throw RowRefused(fmt::format("column '{}' has an item that is not an object", column));
  return out;
}

bool has_name(const ordered_json& item) {
  const auto name = item.value("name", ordered_json());
  return !name.is_null() && name != "";
}

ordered_json schema_of(const ordered_json& parameters) {
  ordered_json properties = ordered_json::object(), required = ordered_json::array();
  for (const auto& [name, parameter] : parameters.items()) {
    if (parameter.is_null()) continue;
    if (!parameter.is_object()) throw RowRefused(fmt::format("parameter '{}' is not an object", name));
    ordered_json property = {{"type", schema_type(parameter)},
                             {"description", parameter.value("description", ordered_json(""))}};
    for (const char* kept : {"enum", "default"})
      if (parameter.contains(kept)) property[kept] = parameter[kept];
    if (!parameter.contains("default")) required.push_back(name);
    properties[name] = std::move(property);
  }
  ordered_json out = {{"type", "object"}, {"properties", std::move(properties)}};
  if (!required.empty()) out["required"] = std::move(required);
  return out;
}

class XlamBuilder final : public RowBuilder {
 public:
  XlamBuilder(BuilderParts& parts, RowLengths lengths, std::unique_ptr<const ChatFormat> chat)
      : RowBuilder(parts), lengths_(lengths), chat_(std::move(chat)) {}

  std::optional<BuiltRow> build(std::int64_t index) override {
    const auto row = read(index);
    ordered_json tools = ordered_json::array();
    for (const auto& tool : json_column(row, "tools")) {
      if (!has_name(tool)) continue;
      const auto parameters = tool.value("parameters", ordered_json());
      tools.push_back({{"type", "function"},
                       {"function",
                        {{"name", tool["name"]},
                         {"description", tool.value("description", ordered_json(""))},
                         {"parameters", schema_of(parameters.is_object() ? parameters : ordered_json::object())}}}});
    }
    const auto id = row.value("id", ordered_json());
    const std::string prefix = id.is_null() ? "call" : "call_" + python_text(id);
    ordered_json calls = ordered_json::array();
    const auto answers = json_column(row, "answers");
    for (std::size_t i = 0; i < answers.size(); ++i) {
      if (!has_name(answers[i])) continue;
      const auto arguments = answers[i].value("arguments", ordered_json(""));
      calls.push_back(
          {{"id", fmt::format("{}_{}", prefix, i)},
           {"type", "function"},
           {"function",
            {{"name", answers[i]["name"]},
             {"arguments", arguments.is_string() ? arguments : ordered_json(python_json(arguments, false))}}}});
    }
    const ordered_json messages = {{{"role", "user"}, {"content", text_cell(row, "query")}},
                                   {{"role", "assistant"}, {"content", ""}, {"tool_calls", std::move(calls)}}};
    return chat_->build(messages, tools, {.lengths = lengths_});
  }

 private:
  RowLengths lengths_;
  std::unique_ptr<const ChatFormat> chat_;
};

}  // namespace

std::unique_ptr<Builder> make_xlam_builder(const config::XlamDatasetConfig& config, BuilderParts& parts,
                                           Diagnostics& problems) {
  const std::size_t before = problems.size();
  const RowLengths lengths = row_lengths(config, parts.context.key, problems);
  auto chat = needed_chat(parts, config.chat_template(), "function calls", problems);
  if (!load_repository(parts, config.dataset_name(), "dataset_name",
                       limited(config.split().value_or("train"), config.limit_dataset_samples()), {}, {}, problems) ||
      problems.size() > before)
    return nullptr;
  parts.extra = chat->text();
  return std::make_unique<XlamBuilder>(parts, lengths, std::move(chat));
}

}  // namespace automodel::data
