#include "base/json_depth.h"

#include <string>

#include <catch2/catch.hpp>

namespace automodel {

TEST_CASE("the nesting of a JSON text is counted outside its strings", "[base][json]") {
  CHECK(nesting_of("") == 0);
  CHECK(nesting_of("12") == 0);
  CHECK(nesting_of(R"("[[{{")") == 0);
  CHECK(nesting_of(R"({"a": [1, {"b": 2}], "c": []})") == 3);
  CHECK(nesting_of(R"([[], [], {}, []])") == 2);
  CHECK(nesting_of(R"(["\"[[[", []])") == 2);  // an escaped quote does not end a string
  CHECK(nesting_of(R"(["\\", [[]]])") == 3);   // an escaped backslash does not escape the quote
  CHECK(nesting_of(R"({"[": {"\u005b]": [0]}})") == 3);
  CHECK(nesting_of(R"(["\)") == 1);  // ends within an escape
  CHECK(nesting_of("]]]][[") == 2);  // no credit for what was never open
  CHECK(nesting_of(std::string(1'000'000, '[')) == 1'000'000);
}

}  // namespace automodel
