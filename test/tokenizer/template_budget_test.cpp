// Templates come with the tokenizers of strangers: each of these ends with a reason, in bounded time and memory.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tokenizer/chat_template.h"

namespace automodel::tokenizer {
namespace {

/// Why a template is refused; empty if it is rendered.
std::string refusal(const std::string& source) {
  Diagnostics problems;
  const auto made = ChatTemplate::parse(source, "t", problems);
  if (!made) return problems.at(0).message;
  try {
    made->render(nlohmann::ordered_json::parse(R"([{"role": "user", "content": "hi"}])"), false, {});
    return "";
  } catch (const TemplateError& error) {
    return error.what();
  }
}

std::string repeat(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

const std::string kTooLong = "the text is too long", kEndless = "the template does not come to an end",
                  kDeepValue = "the values are nested too deeply", kDeepCall = "blocks and calls are nested too deeply";

}  // namespace

TEST_CASE("values of templates nest to a limit", "[tokenizer]") {
  const auto nested = [](const std::string& levels, const std::string& then) {
    return "{% set n = namespace(a=[1]) %}{% for i in range(" + levels + ") %}{% set n.a = [n.a] %}{% endfor %}" + then;
  };
  CHECK(refusal(nested("90", "{{ n.a }}{{ n.a|tojson }}{{ n.a == n.a }}")) == "");
  for (const std::string then : {"", "{{ n.a }}", "{{ n.a|tojson }}", "{{ n.a == [n.a] }}"})
    CHECK(refusal(nested("30000", then)) == kDeepValue);
  CHECK(refusal("{% set n = namespace(a=1) %}{% for i in range(999) %}{% set n.a = {'k': n.a} %}{% endfor %}") ==
        kDeepValue);
  CHECK(
      refusal("{% set n = namespace(a=1) %}{% for i in range(999) %}{% set n.a = dict(k=n.a).items() %}{% endfor %}") ==
      kDeepValue);
  // No value holds itself, so that no depth grows after it was checked.
  CHECK(refusal("{% set n = namespace() %}{% set n.a = n %}{{ n }}") == "a namespace cannot be part of another value");
  CHECK(refusal("{% set n = namespace() %}{% set l = [n] %}") == "a namespace cannot be part of another value");
  CHECK(refusal("{% set m = messages[0] %}{% set m.role = [m] %}{{ m }}") == "'m' is not a namespace");
}

TEST_CASE("blocks, macros, filters and expressions of templates nest to one limit", "[tokenizer]") {
  for (const std::string block : {"{% if true %}|{% endif %}", "{% for i in [1] %}|{% endfor %}",
                                  "{% set x %}|{% endset %}", "{% generation %}|{% endgeneration %}"}) {
    const std::string open = block.substr(0, block.find('|')), close = block.substr(block.find('|') + 1);
    CHECK(refusal("{% macro m(n) %}" + repeat(open, 140) + "{{ m(n) }}" + repeat(close, 140) +
                  "{% endmacro %}{{ m(1) }}") == kDeepCall);
  }
  CHECK(refusal("{% macro m(n) %}{{ m(n) }}{% endmacro %}{{ m(1) }}") == kDeepCall);
  CHECK(refusal("{% macro m(n) %}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(40) }}") == "");
  CHECK(refusal("{{ 'a'|map('map'" + repeat(", 'map'", 50'000) + ", 'upper')|list }}") == kDeepCall);
  CHECK(refusal("{{ 1" + repeat(" + 1", 200) + " }}") == "");
  CHECK(refusal("{{ 1" + repeat(" + 1", 5'000) + " }}") == "the expression is too long");
  CHECK(refusal("{{ 'a'" + repeat("|trim", 5'000) + " }}") == "the expression is too long");
  CHECK(refusal("{{ " + repeat("(", 40) + "1" + repeat(repeat(" + 1", 140) + ")", 40) + " }}") ==
        "the expression is too long");
}

TEST_CASE("everything that a template writes is counted", "[tokenizer]") {
  const auto growing = [](const std::string& value) {
    return "{% set n = namespace(a='aaaaaaaaaaaaaaaa') %}{% for i in range(40) %}{% set n.a = " + value +
           " %}{% endfor %}";
  };
  for (const std::string value : {"n.a ~ n.a", "n.a + n.a", "n.a * 2", "[n.a, n.a]|join", "n.a|replace('a', 'aa')",
                                  "n.a.replace('a', 'aa')", "n.a.join(['', '', ''])", "[n.a, n.a]|string",
                                  "[n.a, n.a]|tojson", "(n.a ~ n.a)|upper", "n.a|tojson(indent=16)|tojson|tojson"})
    CHECK(refusal(growing(value)) != "");
  CHECK(refusal(growing("n.a ~ n.a")) == kTooLong);
  CHECK(refusal("{% set a = 'a' * 60000 %}{% set b = a|replace('a', 'b' * 60000) %}") == kTooLong);
  CHECK(refusal("{{ range(90000)|list|join('b' * 60000) }}") == kTooLong);
  CHECK(refusal("{{ ('b' * 60000).join(range(90000)|map('string')|list) }}") == kTooLong);
  CHECK(refusal("{{ range(5000)|list|tojson(separators=['b' * 60000, ':']) }}") == kTooLong);
  CHECK(refusal("{% set a = 'a' * 60000 %}{% for i in range(90000) %}{{ a }}{% endfor %}") == kTooLong);
  CHECK(refusal("{{ '' * 9000000000000000000 }}") == "");
  CHECK(refusal("{{ 'a' * 9000000000000000000 }}") == kTooLong);
  // Shared parts: 3^40 leaves.
  const std::string shared =
      "{% set n = namespace(a=[1]) %}{% for i in range(40) %}{% set n.a = [n.a, n.a, n.a] %}{% endfor %}";
  CHECK(refusal(shared + "{{ n.a|string }}") != "");
  CHECK(refusal(shared + "{{ n.a|tojson }}") != "");
  CHECK(refusal(shared + "{% set b = [n.a] == [n.a] %}") == kEndless);
}

TEST_CASE("everything that a template goes through is counted", "[tokenizer]") {
  const std::string list = "{% set l = range(100000)|list %}";
  CHECK(refusal(list + "{% for i in range(100000) %}{% if -1 in l %}{% endif %}{% endfor %}") == kEndless);
  CHECK(refusal("{{ range(100000)|unique|list|length }}") == kEndless);
  CHECK(refusal(list + "{% for i in range(1000) %}{% set m = l|sort %}{% endfor %}") == kEndless);
  for (const std::string act : {"l[::-1]", "l[1:]", "l|reverse", "l + l", "l|list", "l|map('upper')", "l|select",
                                "l == l", "l|last", "range(100000)", "l|join"})
    CHECK(refusal(list + "{% for i in range(1000) %}{% set m = " + act + " %}{% endfor %}") != "");
  const std::string text = "{% set t = 'ab' * 1000000 %}{% set s = t ~ 'c' %}";
  for (const std::string act :
       {"t|length", "t[5]", "t[-1]", "t.find('c')", "'c' in t", "t.count('c')", "t.split('c')", "t.strip('xyz')",
        "t == 'ba' * 1000000", "t < s", "t|int", "t is in s", "t.startswith(t)"})
    CHECK(refusal(text + "{% for i in range(100000) %}{% set m = " + act + " %}{% endfor %}") != "");
  // A search that could take the product of both lengths.
  CHECK(refusal("{% set a = 'a' * 8000000 %}{% set b = 'a' * 4000000 ~ 'b' %}{{ b in a }}") == "");
  std::string wide = "{% set n = namespace() %}";
  for (int i = 0; i < 20'000; ++i) wide += "{% set n.a" + std::to_string(i) + " = 1 %}";
  CHECK(refusal(wide) == kEndless);
}

TEST_CASE("operations of templates refuse what they have no value for", "[tokenizer]") {
  CHECK(refusal("{{ 0." + std::string(400, '0') + "1 }}") == "");
  CHECK(refusal("{{ 1" + std::string(400, '0') + ".5 }}") == "the number is too large");
  CHECK(refusal("{{ 'x'|abs }}") == "a number is expected, not str");
  CHECK(refusal("{{ 'x' is gt 3 }}") == "a number is expected, not str");
  CHECK(refusal("{{ [1]|map }}") == "a name is expected");
  CHECK(refusal("{{ raise_exception('a' * 1000000) }}").size() <= 2000);
  CHECK(refusal(std::string(2 << 20, ' ')) == "the template is too long");
}

}  // namespace automodel::tokenizer
