#include <cstdlib>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "golden_file.h"
#include "golden_folder.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/named_templates.h"
#include "tokenizer/tokenizer.h"

namespace automodel::tokenizer {
namespace {

using nlohmann::ordered_json;

std::string render(const std::string& source, const std::string& messages = "[]", bool prompt = false) {
  Diagnostics problems;
  const auto made = ChatTemplate::parse(source, "chat_template.jinja", problems);
  INFO(to_text(problems));
  REQUIRE(made);
  return made->render(ordered_json::parse(messages), prompt, {{"bos_token", "<s>"}});
}

std::string failure(const std::string& source) {
  Diagnostics problems;
  const auto made = ChatTemplate::parse(source, "t", problems);
  if (!made) CHECK(problems.at(0).id == "bad-template");
  if (!made) return std::to_string(problems.at(0).where.line) + ": " + problems.at(0).message;
  try {
    return "no failure: " + made->render(ordered_json::parse("[]"), false, {});
  } catch (const TemplateError& error) {
    return std::to_string(error.line) + ": " + error.what();
  }
}

}  // namespace

TEST_CASE("whitespace around template tags is trimmed as transformers configures Jinja", "[tokenizer]") {
  CHECK(render("a\n  {% if true %}\n  b\n  {% endif %}\nc\n") == "a\n  b\nc");
  CHECK(render("a {{- ' x ' -}}  b") == "a x b");
  CHECK(render("a\n  {{ 'x' }}\nb") == "a\n  x\nb");
  CHECK(render("  {%+ if true %}x{% endif +%}\n") == "  x");
  CHECK(render("a {# note #} b{# note #}\nc") == "a  bc");
  CHECK(render("{% if true -%}\n\n  x  {%- endif %}") == "x");
}

TEST_CASE("template expressions are evaluated as in Jinja", "[tokenizer]") {
  CHECK(render("{{ 'a' + ' b ' | trim + 'c' }}") == "abc");
  CHECK(render("{{ 1 + 2 * 3 }} {{ 7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 3 }}") == "7 3 2 3.5 8");
  CHECK(render("{{ not 1 == 2 }} {{ 1 < 2 < 3 }} {{ 'b' in 'abc' }} {{ 2 not in [1] }}") == "True True True True");
  CHECK(render("{{ 'x' if false else 'y' }}{{ 'z' if false }}") == "y");
  CHECK(render("{{ nothing is defined }} {{ nothing is not defined }} {{ none is none }}") == "False True True");
  CHECK(render("{{ 'abcdef'[1:4] }} {{ 'abc'[::-1] }} {{ 'abc'[-1] }} {{ [1, 2, 3][1:] }}") == "bcd cba c [2, 3]");
  CHECK(render("{{ 'x=%s' ~ 3 ~ true ~ none }}") == "x=%s3TrueNone");
  CHECK(render("{{ ('a', 'b') | join('-') }} {{ {'k': 'v'}.k }} {{ {'k': 'v'}['k'] }}") == "a-b v v");
  CHECK(render("{{ nothing or 'other' }}{{ '' and 1 }}") == "other");
  CHECK(render("{{ 'a\\n\\'b' }}{{ \"\\u00e9\" }}") == "a\n'b\u00e9");
  CHECK(render("{{ '  x '.strip() }}{{ 'aXbX'.split('X')[1] }}{{ 'ab'.startswith('a') }}") == "xbTrue");
  CHECK(render("{{ '2.5' | float }} {{ 3 | float }} {{ 'x' | float }} {{ -2 | abs }} {{ -2.5 | abs }}") ==
        "2.5 3.0 0.0 2 2.5");
  CHECK(render("{{ [3, 1, 2] | sort(true) }} {{ ['b', 'a', 'A'] | sort }} {{ ['b', 'a', 'A'] | sort(false, true) }}") ==
        "[3, 2, 1] ['a', 'A', 'b'] ['A', 'a', 'b']");
  CHECK(render("{{ {'a': [1, 'x'], 'b': none} | tojson }}") == R"({"a": [1, "x"], "b": null})");
}

TEST_CASE("template loops, conditions and assignments are scoped as in Jinja", "[tokenizer]") {
  CHECK(render("{% for i in range(3) %}{{ loop.index0 }}{{ ',' if not loop.last }}{% endfor %}") == "0,1,2");
  CHECK(render("{% for i in [] %}x{% else %}none{% endfor %}") == "none");
  CHECK(render("{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{% endfor %}{{ x }}") == "1");
  CHECK(render("{% set n = namespace(x=1) %}{% for i in [1] %}{% set n.x = 2 %}{% endfor %}{{ n.x }}") == "2");
  CHECK(render("{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}") == "a1");
  CHECK(render("{% for i in range(9) if i % 2 %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}") == "13");
  CHECK(render("{% set x %}a{{ 1 }}{% endset %}{{ x }}") == "a1");
  CHECK(render("{% if false %}a{% elif true %}b{% else %}c{% endif %}") == "b");
  CHECK(render("{% for m in messages %}{{ m.role }}{{ loop.previtem.role if loop.previtem is defined }};{% endfor %}",
               R"([{"role": "a"}, {"role": "b"}])") == "a;ba;");
}

TEST_CASE("what a template asks of Python's objects is answered as there, or refused", "[tokenizer]") {
  CHECK(render("a\u00a0{%- if true -%}\u3000b{% endif %}") == "ab");
  CHECK(render("{{ 'aXbXc'.split('X', maxsplit=1) }}{{ 'aaa'.replace('a', 'b', 1) }}{{ 'aaa'|replace('a', 'b', "
               "count=2) }}") == "['a', 'bXc']baabba");
  CHECK(render("{{ ''|default('x', boolean=true) }}{{ 'abc'|reverse }}{{ ['a', 'A']|unique|list }}") == "xcba['a']");
  CHECK(render("{{ (1, 'a') }}{{ (1,) }}{{ (1,) == [1] }}") == "(1, 'a')(1,)False");
  // A generator is true, and empty once it was gone through.
  CHECK(render("{% set s = []|select %}{{ s is defined and (s and true) }}{{ s|list }}") == "True[]");
  CHECK(render("{% set s = [1, 2]|select %}{{ s|first }}{{ s|list }}{{ s|list }}") == "1[2][]");
  CHECK(render("{% set d = {'items': 1} %}{{ d.items is defined }}{{ d['items'] }}{{ d.items is number }}") ==
        "True1False");
  CHECK(render("{% for i in [1, 2] %}{% continue %}{% else %}none{% endfor %}") == "none");
  CHECK(render("{% for i in [1, 2] %}{% set x %}{% break %}{% endset %}{{ i }}{% endfor %}") == "");
  CHECK(render("{{ \"don't stop\"|title }} {{ \"don't\".title() }} {{ '\u00c9COLE'|lower }}") ==
        "Don't Stop Don'T \u00e9cole");
  CHECK(render("{{ ' 1_0 '|int }}{{ '12abc'|int }}{{ '3.7'|int }}{{ 2 ** -1 }}{{ ['\u00a0'] }}") == "10030.5['\\xa0']");
  CHECK(render("{{ [{'a': [5]}]|map(attribute='a.0')|list }}{{ {'a': 1}|tojson(indent=0) }}") == "[5]{\n\"a\": 1\n}");
  CHECK(failure("{{ 'a'.startswith('a', 1) }}") == "1: 'startswith' takes at most 1 arguments here");
  CHECK(failure("{{ 'a'|trim(characters='a') }}") == "1: 'trim' takes no argument 'characters' here");
  CHECK(failure("{{ 1 is odd(3) }}") == "1: the test 'odd' takes 0 arguments, not 1");
  CHECK(failure("{{ 'a'|trim.upper() }}").find("is expected") != std::string::npos);
  CHECK(failure("{{ ['a']|map('upper') }}") == "1: a generator has no text of its own; 'list' makes one of its items");
  CHECK(failure("{{ '\u00e9'|upper }}") ==
        "1: the case of '\u00e9' cannot be changed or asked for: only that of ASCII");
  CHECK(failure("{{ {1: 2} }}") == "1: keys of dictionaries are strings here, not int");
}

TEST_CASE("templates drawn at random give the text that Jinja gives, or are refused", "[tokenizer]") {
  const char* other = std::getenv("AUTOMODEL_TEMPLATES");
  std::ifstream file(other != nullptr ? other : automodel::golden_folder() + "/chat/templates.jsonl");
  int cases = 0, rendered = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const auto row = ordered_json::parse(line);
    Diagnostics problems;
    const auto chat = ChatTemplate::parse(row["t"].get<std::string>(), "t", problems);
    if (!chat) continue;
    try {
      const auto text = chat->render(row["m"], row["tools"], row["g"].get<bool>(),
                                     {{"bos_token", "<s>"}, {"eos_token", "</s>"}}, nullptr);
      INFO(row["t"].get<std::string>());
      CHECK(text == row["text"].get<std::string>());
      ++rendered;
    } catch (const TemplateError&) {  // what is not known here is refused
    }
  }
  CHECK(cases >= 300);
  CHECK(rendered >= cases * 19 / 20);
}

TEST_CASE("a template that cannot be rendered is reported with the reason and line", "[tokenizer]") {
  CHECK(failure("a\n{% include 'x' %}") == "2: the statement 'include' is not supported");
  CHECK(failure("a\n\n{{ raise_exception('bad roles') }}") == "3: bad roles");
  CHECK(failure("{{ 'a' + 1 }}") == "1: str + int cannot be");
  CHECK(failure("{{ nothing.x }}") == "1: an undefined value has no member 'x'");
  CHECK(failure("{{ 'a' | upprcase }}").find("the filter 'upprcase' is not supported") != std::string::npos);
  CHECK(failure("{% if x %}") == "1: 'endif' is expected");
  CHECK(failure("{{ 1 / 0 }}") == "1: division by zero");
  CHECK(failure(std::string(10'000, '(')).find("no failure") == 0);
  std::string deep = "{{ ";
  for (int i = 0; i < 10'000; ++i) deep += "not ";
  CHECK(failure(deep + "1 }}").find("nested too deeply") != std::string::npos);
  CHECK(failure("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}")
            .find("does not come to an end") != std::string::npos);
}

TEST_CASE("templates by name give ChatML and Llama 3's headers, and mark what the assistant says", "[tokenizer]") {
  const auto messages = ordered_json::parse(R"([{"role": "system", "content": "S"}, {"role": "user", "content": " Q "},
                                                {"role": "assistant", "content": "A"}])");
  const auto rendered = [&](const char* name, bool opens) {
    const auto* named = find_named_template(name);
    REQUIRE(named != nullptr);
    CHECK(ChatTemplate::marks_generation(std::string(named->text)));
    Diagnostics problems;
    const auto chat = ChatTemplate::parse(std::string(named->text), name, problems);
    INFO(to_text(problems));
    REQUIRE(chat);
    std::vector<TextSpan> marked;
    const auto text = chat->render(messages, ordered_json(), opens, {{"bos_token", "<|begin_of_text|>"}}, &marked);
    REQUIRE(marked.size() == 1);
    CHECK(text.substr(marked[0].begin, marked[0].end - marked[0].begin) == "A" + std::string(named->end_of_turn));
    return text;
  };
  CHECK(rendered("chatml", false) ==
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n Q <|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n");
  CHECK(rendered("chatml", true).ends_with("A<|im_end|>\n<|im_start|>assistant\n"));
  CHECK(rendered("llama3", false) ==
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user"
        "<|end_header_id|>\n\nQ<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|>");
  CHECK(rendered("llama3", true).ends_with("<|start_header_id|>assistant<|end_header_id|>\n\n"));
  CHECK(find_named_template("llama4") == nullptr);
}

TEST_CASE("recorded conversations are rendered and encoded as by transformers", "[tokenizer]") {
  for (const std::string name : {"llama2", "llama3", "qwen2"}) {
    Diagnostics problems;
    const auto tokenizer = Tokenizer::load(automodel::golden_folder() + "/tokenizer/" + name, problems);
    REQUIRE(tokenizer);
    REQUIRE(tokenizer->chat_template());
    const auto chat = ChatTemplate::parse(*tokenizer->chat_template(), name, problems);
    INFO(to_text(problems));
    REQUIRE(chat);
    Encoder encoder(*tokenizer);
    const auto recorded = golden::load("chat/expected_" + name + ".json");
    const auto check = [&](const ordered_json& messages, const nlohmann::json& row) {
      const std::string text = chat->render(messages, false, tokenizer->roles());
      CHECK(text == row["text"].get<std::string>());
      std::vector<Id> ids;
      encoder.encode(text, false, ids);
      CHECK(ids == row["input_ids"].get<std::vector<Id>>());
    };
    std::ifstream instruct(automodel::golden_folder() + "/chat/instruct.jsonl");
    std::string line;
    for (const auto& row : recorded["rows"]) {
      REQUIRE(std::getline(instruct, line));
      const auto source = ordered_json::parse(line);
      ordered_json messages = {{{"role", "user"}, {"content", source["prompt"]}},
                               {{"role", "assistant"}, {"content", source["response"]}}};
      check(messages, row);
      messages.erase(1);
      CHECK(chat->render(messages, true, tokenizer->roles()) == row["prompt_text"].get<std::string>());
    }
    std::ifstream multi(automodel::golden_folder() + "/chat/chat_multi.jsonl");
    for (const auto& row : recorded["multi"]) {
      REQUIRE(std::getline(multi, line));
      check(ordered_json::parse(line)["messages"], row);
    }
  }
}

}  // namespace automodel::tokenizer
