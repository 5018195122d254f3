#include <catch2/catch.hpp>

#include "base/diagnostic.h"
#include "base/error.h"
#include "base/text_table.h"

namespace automodel {

TEST_CASE("a diagnostic prints place, id, message and help", "[base]") {
  const Diagnostic d{
      "unknown-key", "unknown key 'pp_sise'", "did you mean 'pp_size'?", {"a.yaml", 3, 5}, "distributed.pp_sise"};
  CHECK(to_text(d) == "a.yaml:3:5: error[unknown-key]: unknown key 'pp_sise'\n    help: did you mean 'pp_size'?");
  CHECK(to_text(Diagnostic{"bad-value", "m", "", {"command line", 0, 0}, ""}, "warning") ==
        "command line: warning[bad-value]: m");
}

TEST_CASE("an excerpt shows the line with a caret", "[base]") {
  CHECK(source_excerpt("a: 1\nbb: 2\n", 2, 5) == "    bb: 2\n        ^\n");
  CHECK(source_excerpt("a", 7, 1).empty());
}

TEST_CASE("a table aligns words to the left and numbers to the right", "[base]") {
  TextTable table({"name", "count"});
  table.add({"a", "1"});
  table.add({"long name", "1000"});
  CHECK(table.text() == "  name       count\n  a              1\n  long name   1000\n");
}

TEST_CASE("a failed check is an internal error that names file and line", "[base]") {
  CHECK_THROWS_AS(AUTOMODEL_CHECK(1 == 2, "impossible"), InternalError);
}

}  // namespace automodel
