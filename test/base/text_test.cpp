#include <catch2/catch.hpp>

#include "base/diagnostic.h"
#include "base/error.h"
#include "base/expression.h"
#include "base/text_table.h"
#include "base/visible_text.h"

namespace automodel {

TEST_CASE("a diagnostic prints location, id, message and help", "[base]") {
  const Diagnostic d{
      "unknown-key", "unknown key 'pp_sise'", "did you mean 'pp_size'?", {"a.yaml", 3, 5}, "distributed.pp_sise"};
  CHECK(to_text(d) == "a.yaml:3:5: error[unknown-key]: unknown key 'pp_sise'\n    help: did you mean 'pp_size'?");
  CHECK(to_text(Diagnostic{"bad-value", "m", "", {"command line", 0, 0}, ""}, "warning") ==
        "command line: warning[bad-value]: m");
}

TEST_CASE("a source excerpt shows the line with a caret under the column", "[base]") {
  CHECK(source_excerpt("a: 1\nbb: 2\n", 2, 5) == "    bb: 2\n        ^\n");
  CHECK(source_excerpt("a", 7, 1).empty());
  // Of a long line, 160 characters around the column.
  const auto part = source_excerpt(std::string(200, 'a') + "b" + std::string(200, 'c'), 1, 201);
  CHECK(part == "    " + std::string(120, 'a') + "b" + std::string(39, 'c') + "\n    " + std::string(120, ' ') + "^\n");
}

TEST_CASE("a text table aligns words left and numbers right", "[base]") {
  TextTable table({"name", "count"});
  table.add({"a", "1"});
  table.add({"long name", "1000"});
  CHECK(table.text() == "  name       count\n  a              1\n  long name   1000\n");
}

TEST_CASE("a regular expression matches a whole text, is found in part of it, and captures a group", "[base]") {
  const auto expression = Expression::read("data/(.+)-[0-9]{2}");
  REQUIRE(expression);
  CHECK(expression->matches("data/train-00"));
  CHECK_FALSE(expression->matches("more/data/train-00"));
  CHECK(expression->found_in("more/data/train-00"));
  CHECK(expression->first_group("data/train-00") == "train");
  CHECK_FALSE(expression->first_group("data/train"));
  CHECK_FALSE(Expression::read("("));
}

TEST_CASE("a terminal is shown no control characters but line ends and tabs", "[base]") {
  CHECK(visible_text("a\tb\nc \u00e9 \xff") == "a\tb\nc \u00e9 \xff");
  CHECK(visible_text(std::string_view("\0\x1b[31m\x7f\r", 7)) == "\ufffd\ufffd[31m\ufffd\ufffd");
  CHECK(visible_text("\u009b31m\u00a0") == "\ufffd31m\u00a0");
}

TEST_CASE("a failed check throws an internal error that names file and line", "[base]") {
  CHECK_THROWS_AS(AUTOMODEL_CHECK(1 == 2, "impossible"), InternalError);
}

}  // namespace automodel
