// Recipes of strangers: bounded text, and time that grows with their length only.
#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "config/environment.h"
#include "config/node.h"

namespace automodel::config {
namespace {

std::string problem_of(const std::string& text) {
  Diagnostics problems;
  parse_yaml(text, "r.yaml", problems);
  return problems.empty() ? "" : problems[0].message;
}

Environment values(std::string name, std::string value) {
  return [name = std::move(name), value = std::move(value)](const std::string& asked) {
    return asked == name ? std::optional<std::string>(value) : std::nullopt;
  };
}

std::string replaced(std::string_view text, const Environment& environment, std::size_t problems_expected = 0) {
  Diagnostics problems;
  const auto out = interpolate(text, environment, {}, problems);
  CHECK(problems.size() == problems_expected);
  return out;
}

}  // namespace

TEST_CASE("aliases of long texts expand to a limit", "[config]") {
  const std::string anchor = "a: &a \"" + std::string(1'000'000, 'x') + "\"\nb: [";
  const auto aliases = [&](int count) {
    std::string out = anchor;
    for (int i = 0; i < count; ++i) out += i > 0 ? ",*a" : "*a";
    return out + "]";
  };
  CHECK(problem_of(aliases(10)) == "");
  CHECK(problem_of(aliases(50'000)) == "too much text, aliases included");
  CHECK(problem_of("{a: &a {? " + std::string(1'000'000, 'k') +
                   " : 1}, b: [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]}") ==
        "too much text, aliases included");
  // Anchors inside each other: every one keeps a copy.
  std::string deep;
  for (int i = 0; i < 400; ++i) deep += fmt::format("&a{} [", i);
  deep += "\"" + std::string(1'000'000, 'x') + "\"" + std::string(400, ']');
  CHECK(problem_of(deep) == "too much text, aliases included");
}

TEST_CASE("values of aliases count towards the limit of values", "[config]") {
  std::string thousand = "a: &a [0";
  for (int i = 1; i < 1000; ++i) thousand += ",0";
  const auto aliases = [&](int count) {
    std::string out = thousand + "]\nb: [*a";
    for (int i = 1; i < count; ++i) out += ",*a";
    return out + "]";
  };
  CHECK(problem_of(aliases(190)) == "");  // 191 lists of 1000 values
  CHECK(problem_of(aliases(200)) == "too many values, aliases included");
}

TEST_CASE("a map of many keys is read, its own keys before merged ones", "[config]") {
  std::string wide = "base: &b {k7: 0, other: 0}\nwide:\n  <<: *b\n";
  for (int i = 0; i < 60'000; ++i) wide += fmt::format("  k{}: 1\n", i);
  CHECK(problem_of(wide).empty());
  CHECK(problem_of(wide + "  k5: 2\n") == "'k5' appears here twice");
}

TEST_CASE("values of variables are not searched for further references", "[config]") {
  CHECK(replaced("r_${S}/$S", values("S", "pa$HOME/${NOPE}")) == "r_pa$HOME/${NOPE}/pa$HOME/${NOPE}");
  CHECK(replaced("${NOPE,$S/x}", values("S", "$S")) == "$S/x");
  CHECK(replaced("$S ${", values("S", "v")) == "v ${");
  CHECK(replaced("${S} ${open $S", values("S", "v")) == "v ${open v");
  std::string open;
  for (int i = 0; i < 400'000; ++i) open += "${";
  CHECK(replaced(open, values("S", "v")) == open);
}

TEST_CASE("values of variables expand to a limit", "[config]") {
  std::string text = "a: [";
  for (int i = 0; i < 20'000; ++i) text += "$S,";
  Diagnostics problems;
  Node node = parse_yaml(text + "1]", "r.yaml", problems);
  interpolate(node, values("S", std::string(100'000, 'x')), problems);
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].message == "the values of variables make more than 16777216 bytes");
}

}  // namespace automodel::config
