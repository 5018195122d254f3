// The JSON Schema of recipes accepts what the program reads.
#include <functional>
#include <regex>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "config/recipe.h"
#include "docs/pages.h"

namespace automodel {
namespace {

using nlohmann::json;

/// The keywords of JSON Schema (2020-12) that recipes' schema uses. Returns "" or where and why a value is refused.
class Validator {
 public:
  explicit Validator(json root) : root_(std::move(root)) {}

  std::string refusal(const json& value) const { return check(root_, value, ""); }

 private:
  std::string check(const json& schema, const json& value, const std::string& at) const {
    for (const auto& [keyword, wanted] : schema.items()) {
      if (keyword == "description" || keyword == "default" || keyword == "title" || keyword.starts_with("$")) continue;
      if (const auto why = of_keyword(keyword, wanted, schema, value, at); !why.empty()) return why;
    }
    if (schema.contains("$ref")) return check(root_.at("$defs").at("text"), value, at);
    return "";
  }

  std::string of_keyword(const std::string& keyword, const json& wanted, const json& schema, const json& value,
                         const std::string& at) const {
    const auto refuse = [&] { return at + ": " + value.dump() + " is not of " + keyword + " " + wanted.dump(); };
    if (keyword == "type") {
      const auto has = [&](const json& name) { return is(value, name.get<std::string>()); };
      return (wanted.is_array() ? std::ranges::any_of(wanted, has) : has(wanted)) ? "" : refuse();
    }
    if (keyword == "enum") return std::ranges::find(wanted, value) != wanted.end() ? "" : refuse();
    if (keyword == "pattern") {
      if (!value.is_string()) return "";
      return std::regex_search(value.get<std::string>(), std::regex(wanted.get<std::string>(), std::regex::ECMAScript))
                 ? ""
                 : refuse();
    }
    if (keyword == "anyOf") {
      std::string all;
      for (const auto& each : wanted) {
        const auto why = check(each, value, at);
        if (why.empty()) return "";
        all += "\n  " + why;
      }
      return at + " is none of:" + all;
    }
    if (keyword == "items") {
      for (const auto& item : value.is_array() ? value : json::array())
        if (const auto why = check(wanted, item, at + "[]"); !why.empty()) return why;
      return "";
    }
    if (keyword == "required") {
      for (const auto& key : wanted)
        if (value.is_object() && !value.contains(key)) return refuse();
      return "";
    }
    if (keyword == "properties") return members(schema, value, at);
    if (keyword == "additionalProperties" && !schema.contains("properties")) {
      if (!value.is_object()) return "";
      for (const auto& [key, item] : value.items())
        if (const auto why = check(wanted, item, at + "." + key); !why.empty()) return why;
      return "";
    }
    if (keyword == "patternProperties" || keyword == "additionalProperties") return "";
    return "the test does not know the keyword " + keyword;
  }

  std::string members(const json& schema, const json& value, const std::string& at) const {
    if (!value.is_object()) return "";
    for (const auto& [key, item] : value.items()) {
      const auto here = at + "." + key;
      const json* found = schema["properties"].contains(key) ? &schema["properties"][key] : nullptr;
      if (schema.contains("patternProperties"))
        for (const auto& [pattern, each] : schema["patternProperties"].items())
          if (std::regex_search(key, std::regex(pattern))) found = &each;
      if (found == nullptr && schema["additionalProperties"] == false) return here + " is no key";
      if (found == nullptr) continue;
      if (const auto why = check(*found, item, here); !why.empty()) return why;
    }
    return "";
  }

  static bool is(const json& value, const std::string& name) {
    if (name == "integer") return value.is_number_integer();
    if (name == "number") return value.is_number();
    return name == (value.is_null()      ? "null"
                    : value.is_boolean() ? "boolean"
                    : value.is_string()  ? "string"
                    : value.is_array()   ? "array"
                    : value.is_object()  ? "object"
                                         : "number");
  }

  json root_;
};

/// A scalar by the core schema of YAML 1.2, which editors use.
json scalar_of(const config::Node& node) {
  static const std::regex integer("[-+]?[0-9]+"), number("[-+]?(\\.[0-9]+|[0-9]+(\\.[0-9]*)?)([eE][-+]?[0-9]+)?");
  const auto& text = node.text;
  if (node.quoted) return text;
  if (text.empty() || text == "null" || text == "Null" || text == "NULL" || text == "~") return nullptr;
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  if (std::regex_match(text, integer)) return std::stoll(text);
  if (std::regex_match(text, number)) return std::stod(text);
  return text;
}

json json_of(const config::Node& node) {
  if (node.kind == config::Node::Kind::kScalar) return scalar_of(node);
  json out = node.kind == config::Node::Kind::kList ? json::array() : json::object();
  for (const auto& item : node.items) out.push_back(json_of(item));
  for (const auto& entry : node.entries) out[entry.key] = json_of(entry.value);
  return out;
}

const Validator& validator() {
  static const Validator out(json::parse(config::recipe_schema()));
  return out;
}

std::string refusal(const std::string& text) {
  Diagnostics problems;
  const auto node = config::parse_yaml(text, "r.yaml", problems);
  REQUIRE(problems.empty());
  return validator().refusal(json_of(node));
}

}  // namespace

TEST_CASE("the schema accepts the repository's recipes", "[docs]") {
  const auto files = test::files_below({"recipes"}, {".yaml"});
  CHECK(files.size() >= 9);
  for (const auto& file : files) {
    INFO(file.string());
    CHECK(refusal(test::read_file(file)) == "");
  }
  const auto page = test::read_file(test::repository() / "README.md");
  std::string recipe;
  std::istringstream lines(page.substr(page.find("    model: ")));
  for (std::string line; std::getline(lines, line) && line.starts_with("    ");) recipe += line.substr(4) + "\n";
  REQUIRE(recipe.find("optimizer:") != std::string::npos);
  CHECK(refusal(recipe) == "");
}

TEST_CASE("the schema accepts the recipes of published runs", "[docs]") {
  std::istringstream lines(test::read_file(test::repository() / "test/golden/published/runs.jsonl"));
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto run = json::parse(line);
    INFO(run["id"]);
    CHECK(validator().refusal(run["recipe"]) == "");
  }
  CHECK(count > 100);
}

TEST_CASE("the schema accepts the spellings that the program reads", "[docs]") {
  for (const char* text : {
           "distributed: {dp_size: none, tp_size: None}",
           "distributed: {dp_size: '4', tp_size: 0x2}",
           "distributed: {strategy: FSDP2}",
           "distributed: {strategy: fsdp2, activation_checkpointing: true}",
           "distributed: {strategy: fsdp2, activation_checkpointing: selective}",
           "distributed: {strategy: fsdp2, sequence_parallel: yes}",
           "checkpoint: {save_consolidated: true}",
           "checkpoint: {save_consolidated: False}",
           "checkpoint: {checkpoint_dir: 17}",
           "step_scheduler: {max_steps: '${STEPS}', num_epochs: null}",
           "step_scheduler: ",
           "validation_dataloader: none",
           "optimizer: {lr: 1.0e-3}",
           "optimizer: {lr: 1e-3, betas: '[0.9, 0.95]'}",
           "dataset: {_target_: nemo_automodel.components.datasets.llm.squad.make_squad_dataset, dataset_name: "
           "rajpurkar/squad}",
           "_shared: {anything: 1}",
       }) {
    INFO(text);
    const auto loaded = config::read_recipe(std::string(text) + "\nmodel: {config: {model_type: llama}}\n", "r.yaml",
                                            {}, [](const std::string&) { return std::optional<std::string>("7"); });
    for (const auto& problem : loaded.problems) FAIL_CHECK(problem.message);
    CHECK(refusal(text) == "");
  }
}

TEST_CASE("the schema refuses what the program refuses", "[docs]") {
  for (const char* text : {"distributed: {dp_sise: 2}", "distributed: {dp_size: two}", "modle: {}",
                           "optimizer: {lr: fast}", "checkpoint: {save_consolidated: sometimes}"}) {
    INFO(text);
    CHECK(refusal(text) != "");
  }
}

}  // namespace automodel
