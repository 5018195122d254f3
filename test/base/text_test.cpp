#include <catch2/catch.hpp>

#include "base/diagnostic.h"
#include "base/error.h"
#include "base/expression.h"
#include "base/problems.h"
#include "base/terminal.h"
#include "base/text_table.h"
#include "base/utf8.h"

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

TEST_CASE("text is folded at blanks, below the column in which it began", "[base]") {
  CHECK(folded("mesh      2 ranks: pp 2, ddp on cpu\nmodel     x\n", 24) ==
        "mesh      2 ranks: pp 2,\n          ddp on cpu\nmodel     x\n");
  CHECK(folded("  --rows N    Rows to print, as trained", 39) == "  --rows N    Rows to print, as trained");
  CHECK(folded("  --rows N    Rows to print, as trained", 38) ==
        "  --rows N    Rows to print, as\n              trained");
  CHECK(folded("a.yaml:1:2: error[bad-value]: it is wrong\n    help: mend it now", 32) ==
        "a.yaml:1:2: error[bad-value]: it\n    is wrong\n    help: mend it now");
  // Cells of a table stay whole too.
  CHECK(folded("  0  223 MiB  44.0 KiB  220 MiB of", 30) == "  0  223 MiB  44.0 KiB\n              220 MiB of");
  // Words stay whole, so that a path can be copied; columns are characters, not bytes.
  CHECK(folded("    /a/path/that/is/wider/than/it x", 20) == "    /a/path/that/is/wider/than/it\n        x");
  CHECK(folded("\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc \xc3\xbc\xc3\xbc", 7) ==
        "\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc \xc3\xbc\xc3\xbc");
  // A number stays with its unit.
  CHECK(folded("time      1 step: other 5.00 ms", 30) == "time      1 step: other\n          5.00 ms");
  CHECK(folded("model     3.35 B per token, in layer 7 mostly", 42) ==
        "model     3.35 B per token, in layer 7\n          mostly");
  CHECK(folded("no terminal changes a line", 0) == "no terminal changes a line");
  for (int columns = 1; columns < 90; ++columns) {
    INFO(columns);
    auto text = folded("  0     1  layer 1, norm, head       234 K  100% heaviest", columns);
    std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
    CHECK(text == "01layer1,norm,head234K100%heaviest");
  }
}

TEST_CASE("a diagnostic's id and help are coloured, quoted ones are not", "[base]") {
  CHECK(coloured("a.yaml:1:2: error[bad-value]: says 'help: no'\n    help: mend it\nwarning[x]: y") ==
        "a.yaml:1:2: \033[1;31merror[bad-value]\033[0m: says 'help: no'\n    \033[36mhelp:\033[0m mend it\n"
        "\033[1;33mwarning[x]\033[0m: y");
  CHECK(coloured("an error[x] in a sentence\n") == "an error[x] in a sentence\n");
  CHECK(coloured("a: b: ") == "a: b: ");
}

TEST_CASE("a value from a file cannot move the cursor, begin a line or turn the writing round", "[base]") {
  CHECK(printable("\x1b]0;x\a\xc2\x9b\x31m\r\x7f \xff") == "\\x1b]0;x\\x07\\x9b1m\\x0d\\x7f \\xff");
  CHECK(printable("a\nrank 0: error[hang]\t") == "a\\nrank 0: error[hang]\\t");
  CHECK(printable("\xe2\x80\xae \xe2\x80\xa8") == "\\u202e \\u2028");
  CHECK(printable("Gr\xc3\xbc\xc3\x9f \xe4\xb8\xad \xf0\x9f\x99\x82 'q' \\") ==
        "Gr\xc3\xbc\xc3\x9f \xe4\xb8\xad \xf0\x9f\x99\x82 'q' \\");
  CHECK(printable("\xe4\xb8\xad\xe4\xb8\xad", 1) == "\xe4\xb8\xad...");
  Diagnostic d{"bad-value"};
  d.says("seed is '{}'", "1\x1b\nrank 0: error[hang]: no").hint("a\nb").at({"r\n.yaml", 1, 2});
  CHECK(to_text(d) == "r\\n.yaml:1:2: error[bad-value]: seed is '1\\x1b\\nrank 0: error[hang]: no'\n    help: a\\nb");
  CHECK(source_excerpt("\x1b\xc3\xbc: x", 1, 4) == "    \\x1b\xc3\xbc: x\n         ^\n");
}

TEST_CASE("problems end a program with their ids' common exit code", "[base]") {
  Diagnostics problems;
  problems.add("no-device", "device").says("no device");
  CHECK(exit_code(problems) == ExitCode::kEnvironment);
  CHECK(Error(problems).code() == ExitCode::kEnvironment);
  problems.add("bad-value", "seed");
  CHECK(exit_code(problems) == ExitCode::kBadInput);
  CHECK(Error(Diagnostic{"indivisible"}.exits(ExitCode::kRefused)).code() == ExitCode::kRefused);
  CHECK(ProblemId::named("hang") == ProblemId("hang"));
  CHECK_FALSE(ProblemId::named("hung"));
}

TEST_CASE("a problem of a recipe has the place of its key, or of the section around it", "[base]") {
  Origins origins;
  origins.set_file("r.yaml");
  origins.add("a.b", {{"r.yaml", 7, 3}, "x"});
  Problems problems(origins);
  problems.refuse("bad-value", "a.b.c").says("{} is {}", "c", 3).hint("at most {}", 2);
  problems.warn("no-effect", "z").says("{braces}").at({"other", 1, 1});
  Diagnostics relative;
  relative.add("missing-key", "b");
  problems.refuse_all(relative, "a");
  CHECK(to_text(problems.problems()) ==
        "r.yaml:7:3: error[bad-value]: c is 3\n    help: at most 2\nr.yaml:7:3: error[missing-key]: \n");
  CHECK(to_text(problems.warnings(), "warning") == "other:1:1: warning[no-effect]: {braces}\n");
  CHECK(problems.problems()[1].key == "a.b");
  CHECK(problems.given("a.b"));
  CHECK_FALSE(problems.given("a"));
  CHECK(problems.exit() == ExitCode::kBadInput);
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
  CHECK(printable_lines("a\tb\nc \u00e9 \xff") == "a\tb\nc \u00e9 \\xff");
  CHECK(printable_lines(std::string_view("\0\x1b[31m\x7f\r", 7)) == "\\x00\\x1b[31m\\x7f");
  CHECK(printable_lines("\u009b31m\u00a0") == "\\x9b31m\u00a0");
}

TEST_CASE("a failed check throws an internal error that names file and line", "[base]") {
  CHECK_THROWS_AS(AUTOMODEL_CHECK(1 == 2, "impossible"), InternalError);
}

}  // namespace automodel
