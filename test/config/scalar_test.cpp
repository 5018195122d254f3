#include "config/scalar.h"

#include <set>

#include <catch2/catch.hpp>

#include "config/environment.h"
#include "config/override.h"
#include "golden_file.h"

namespace automodel::config {
namespace {

/// Converts the golden file's tagged value ({"int": 1}, {"float": "1.0"}, ...) to ours.
Value untag(const nlohmann::json& tagged) {
  const std::string tag = tagged.begin().key();
  const nlohmann::json& value = tagged.begin().value();
  if (tag == "null") return nullptr;
  if (tag == "bool") return value.get<bool>();
  if (tag == "int")
    return value.is_string() ? Value(std::stod(value.get<std::string>())) : Value(value.get<std::int64_t>());
  if (tag == "float") return std::stod(value.get<std::string>());
  if (tag == "str") return value.get<std::string>();
  Value::List list;
  if (tag == "list")
    for (const auto& item : value) list.push_back(untag(item));
  return list;
}

Value override_value(const std::string& text) {
  Diagnostics problems;
  Node root{.kind = Node::Kind::kMap, .entries = {}};
  apply_overrides(root, std::vector<Override>{{"k", text, "k=" + text}}, problems);
  REQUIRE(problems.empty());
  return to_value(root.find("k")->value);
}

Environment environment_of(const nlohmann::json& map) {
  return [map](const std::string& name) -> std::optional<std::string> {
    return map.contains(name) ? std::optional<std::string>(map[name].get<std::string>()) : std::nullopt;
  };
}

}  // namespace

TEST_CASE("override values get the same types as in NeMo AutoModel, except where YAML differs", "[config]") {
  // Values on the command line are YAML: its null and boolean words keep their meaning, and list items need no quotes.
  // Python's tuples, sets, bytes and complex numbers are not valid values of any key.
  const std::set<std::string> yaml = {"null",  "~",      "",      "TRUE", "yes",   "no",   "on", "off",
                                      "[a,b]", "{a: 1}", "(1,2)", "1,2",  "{1,2}", "b'x'", "1j"};
  int checked = 0;
  for (const auto& row : golden::load("config/nemo_config_cli.json")) {
    if (row["input"]["op"] != "translate_value") continue;
    const auto text = row["input"]["value"].get<std::string>();
    if (yaml.count(text) > 0 || row["output"].contains("dict")) continue;
    INFO(text);
    CHECK(override_value(text) == untag(row["output"]));
    ++checked;
  }
  CHECK(checked >= 38);
  CHECK(override_value("yes") == Value(true));
  CHECK(override_value("~").is_null());
  CHECK(override_value("[a,b]") == Value(Value::List{"a", "b"}));
}

TEST_CASE("environment references are replaced as in NeMo AutoModel, except nested ones", "[config]") {
  for (const auto& row : golden::load("config/nemo_config_cli.json")) {
    const auto& input = row["input"];
    if (input["op"] != "resolve_env" && input["op"] != "config_scalar") continue;
    const auto environment = environment_of(input.value(
        "env", nlohmann::json{{"A_VAR", "hello"}, {"N_VAR", "42"}, {"my.dot.var", "dotted"}, {"EMPTY", ""}}));
    Diagnostics problems;
    const auto value = input["value"].get<std::string>();
    const auto text = interpolate(value, environment, {}, problems);
    INFO(row.dump());
    if (value == "${A_VAR,${N_VAR}}") {  // NeMo AutoModel gives "hello}"
      CHECK(problems.size() == 1);
      continue;
    }
    CHECK(problems.empty() == !row.contains("error"));
    if (row.contains("error")) {
      REQUIRE(problems.size() == 1);
      CHECK(problems[0].id == "environment");
    } else if (input["op"] == "resolve_env") {
      CHECK(text == row["output"].get<std::string>());
    } else {
      CHECK(scalar_value(text, true) == untag(row["output"]));
    }
  }
}

TEST_CASE("an environment reference nested in another is refused", "[config]") {
  Diagnostics problems;
  interpolate("${A, ${B,x}} 160", environment_of({{"A", "1"}, {"B", "2"}}), {}, problems);
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].id == "environment");
  CHECK(problems[0].message == "'${A, ${B,x}' nests one reference in another");
}

TEST_CASE("overrides are parsed as in NeMo AutoModel, but nothing is dropped silently", "[config]") {
  int checked = 0;
  for (const auto& row : golden::load("config/nemo_config_cli.json")) {
    const auto& input = row["input"];
    if (input["op"] != "parse_cli_argv" || row.contains("error") || input["default_cfg_path"].is_null()) continue;
    auto words = input["argv"].get<std::vector<std::string>>();
    if (!words.empty() && (words[0] == "-c" || words[0] == "--config")) words.erase(words.begin(), words.begin() + 2);
    Diagnostics problems;
    const auto overrides = parse_overrides(words, problems);
    INFO(row.dump());
    if (!problems.empty()) {  // words that NeMo AutoModel drops: positional, -x, a third value, ---a
      CHECK(problems[0].id == "bad-override");
      continue;
    }
    std::vector<std::string> joined;
    for (const auto& item : overrides)
      joined.push_back(item.key + "=" +
                       (item.value == "true" && item.shown.find("true") == std::string::npos ? "True" : item.value));
    CHECK(joined == row["output"][1].get<std::vector<std::string>>());
    ++checked;
  }
  CHECK(checked >= 10);
}

TEST_CASE("scalars follow YAML 1.1's rules or Python's, as requested", "[config]") {
  CHECK(scalar_value("", false).is_null());
  CHECK(scalar_value("none", true).is_null());
  CHECK(scalar_value("null", true) == Value("null"));
  CHECK(scalar_value("yes", false) == Value(true));
  CHECK(scalar_value("yes", true) == Value("yes"));
  CHECK(scalar_value("1e-5", false) == Value(1e-5));
  CHECK(scalar_value("1_000", false) == Value(1000));
  CHECK(scalar_value("0x10", false) == Value(16));
  CHECK(scalar_value("010", false) == Value("010"));
  CHECK(scalar_value(".inf", false) == Value(std::numeric_limits<double>::infinity()));
  CHECK_FALSE(parse_integer("9223372036854775808"));
  CHECK(parse_number("9223372036854775808") == 9223372036854775808.0);
}

}  // namespace automodel::config
