// docs/errors.md, the table of problems and the tests agree. That the program has no other ids is checked by the
// compiler (base/problem_id.h).
#include <algorithm>
#include <cctype>
#include <regex>

#include <catch2/catch.hpp>

#include "base/problem_id.h"
#include "docs/pages.h"

namespace automodel {
namespace {

using Literals = std::vector<std::string>;

bool starts(const std::string& text, std::size_t at, std::string_view with) {
  return text.compare(at, with.size(), with) == 0;
}

/// The end of a literal or comment that begins at `at` and is not over before `from`.
std::size_t end_of(const std::string& text, std::size_t from, std::string_view closing) {
  const auto at = text.find(closing, from);
  return at == std::string::npos ? text.size() : at + closing.size();
}

/// The string literals of a C++ or Python source: no comments, no docstrings, no titles of test cases.
Literals literals_of(const std::string& text, bool python) {
  Literals out;
  std::size_t at = 0;
  while (at < text.size()) {
    const char c = text[at];
    const bool in_word = at > 0 && std::isalnum(static_cast<unsigned char>(text[at - 1])) != 0;
    if (python ? c == '#' : starts(text, at, "//")) {
      at = end_of(text, at, "\n");
    } else if (!python && starts(text, at, "/*")) {
      at = end_of(text, at + 2, "*/");
    } else if (python && starts(text, at, "\"\"\"")) {
      at = end_of(text, at + 3, "\"\"\"");
    } else if (!python && c == '"' && at > 0 && text[at - 1] == 'R') {
      const auto open = text.find('(', at);
      const auto end = end_of(text, open, ")" + text.substr(at + 1, open - at - 1) + "\"");
      out.push_back(text.substr(open, end - open));
      at = end;
    } else if (c == '"' || (c == '\'' && !(in_word && !python))) {  // 10'000 has no literal
      std::size_t end = at + 1;
      while (end < text.size() && text[end] != c) end += text[end] == '\\' ? 2 : 1;
      constexpr std::string_view kTitle = "TEST_CASE(";
      if (at < kTitle.size() || !starts(text, at - kTitle.size(), kTitle))
        out.push_back(text.substr(at + 1, std::min(end, text.size()) - at - 1));
      at = end + 1;
    } else {
      ++at;
    }
  }
  return out;
}

/// Whether a literal is or mentions the id: "bad-row", "error[bad-row]", "bad-row: ...".
bool mentions(const Literals& literals, const std::string& id) {
  const auto part = [](char c) { return c == '-' || std::isalnum(static_cast<unsigned char>(c)) != 0; };
  const bool word = id.find('-') == std::string::npos;  // in running text such a word may be no id
  return std::ranges::any_of(literals, [&](const std::string& text) {
    if (text == id || text.find('[' + id + ']') != std::string::npos) return true;
    for (auto at = word ? std::string::npos : text.find(id); at != std::string::npos; at = text.find(id, at + 1))
      if ((at == 0 || !part(text[at - 1])) && (at + id.size() == text.size() || !part(text[at + id.size()])))
        return true;
    return false;
  });
}

Literals literals_below(std::initializer_list<const char*> folders, const std::set<std::string>& but) {
  Literals out;
  for (const auto& file : test::files_below(folders, {".h", ".cpp", ".cu", ".py"}))
    if (!but.contains(file.filename().string()))
      std::ranges::move(literals_of(test::read_file(file), file.extension() == ".py"), std::back_inserter(out));
  return out;
}

/// The literals of the call that begins at `at`, joined.
std::string said_by_call(const std::string& text, std::size_t at) {
  int depth = 0;
  std::size_t end = text.find('(', at);
  for (bool quoted = false; end < text.size(); ++end) {
    const char c = text[end];
    if (c == '\\') ++end;
    if (c == '"') quoted = !quoted;
    if (!quoted && (c == '(' || c == ')') && (depth += c == '(' ? 1 : -1) == 0) break;
  }
  std::string out;
  for (const auto& literal : literals_of(text.substr(at, end - at), false)) out += literal;
  return out;
}

/// A command, or an option with a value, that is not in quotes: "--checkpoint.resume never starts anew" misleads.
bool has_bare_command(const std::string& hint) {
  static const std::regex quoted("'[^']*'"),
      command("(^|[ (])(automodel [a-z]+|hf download|--[a-z][a-z_.-]*[ =][A-Z0-9])");
  return std::regex_search(std::regex_replace(hint, quoted, ""), command);
}

/// Provoking these needs a broken or shared MPI library, network or GPU, or a defect of this program.
const std::set<std::string> kNotProvoked = {"mpi-threads", "transport-failed", "cuda-failed", "gpu-shared",
                                            "verify-failed"};

}  // namespace

TEST_CASE("docs/errors.md is what the program prints", "[docs]") {
  const bool current = test::read_file(test::repository() / "docs/errors.md") == errors_page();
  if (!current) FAIL("write it anew: automodel schema --errors > docs/errors.md");
}

TEST_CASE("an id in a comment, a docstring or a title is not looked for", "[docs]") {
  const auto found = [](const std::string& text, bool python) {
    return mentions(literals_of(text, python), "bad-row");
  };
  CHECK(found("CHECK(problem.id == \"bad-row\");", false));
  CHECK(found("x = 10'000; CHECK(text.find(\"error[bad-row]: no\") == 0);", false));
  CHECK(found("f(R\"(a \" // b)\"); g('\"'); CHECK(said(\"bad-row: x\"));", false));
  CHECK(found("self.assertIn('error[bad-row]', err)", true));
  CHECK_FALSE(found("// \"bad-row\"\n/* \"bad-row\" */ CHECK(a == \"/\"); // 'bad-row'", false));
  CHECK_FALSE(found("TEST_CASE(\"bad-row\", \"[x]\") { CHECK(id == \"bad-rows\"); }", false));
  CHECK_FALSE(found("\"\"\"of \"bad-row\" here\"\"\"\nx = 'a'  # \"bad-row\"", true));
}

TEST_CASE("hints quote the commands and options with values that they name", "[docs]") {
  CHECK(has_bare_command("give --memory 80GiB or hardware.profile"));
  CHECK(has_bare_command("automodel plan shows everything"));
  CHECK_FALSE(has_bare_command("give '--memory 80GiB', or leave --style out"));
  std::size_t hints = 0;
  for (const auto& file : test::files_below({"lib", "app"}, {".h", ".cpp"})) {
    const auto text = test::read_file(file);
    for (const std::string call : {".hint(", "wrong_words("})
      for (auto at = text.find(call); at != std::string::npos; at = text.find(call, at + 1)) {
        ++hints;
        if (const auto said = said_by_call(text, at); has_bare_command(said))
          FAIL_CHECK(file.filename().string() << ": " << said);
      }
  }
  CHECK(hints > 300);
}

TEST_CASE("every problem of the table is reported by the program and looked for by a test", "[docs]") {
  const auto program = literals_below({"lib", "app"}, {"problem_id.h", "problem_table.cpp"});
  const auto tests = literals_below({"test"}, {"errors_test.cpp"});
  for (const auto name : detail::kProblemIds) {
    const std::string id(name);
    if (!mentions(program, id)) FAIL_CHECK("the program never reports '" << id << "'");
    if (!kNotProvoked.contains(id) && !mentions(tests, id)) FAIL_CHECK("no test looks for '" << id << "'");
  }
}

}  // namespace automodel
