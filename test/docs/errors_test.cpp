// docs/errors.md, the program and the tests know the same diagnostics.
#include <algorithm>
#include <map>

#include <catch2/catch.hpp>

#include "docs/pages.h"

namespace automodel {
namespace {

using Path = test::fs::path;
using Places = std::map<std::string, std::string>;  ///< id -> a file that has it

/// What precedes the id of a diagnostic; words are separated by single blanks.
const std::regex kBefore(
    R"((push_back|emplace_back) ?\( ?\{ ?$|Diagnostic( \w+)? ?\{ ?$|ExitCode::k\w+, ?\{ ?$|return ?\{+ ?$|)"
    R"(\b(refuse|warn|report|fault|add|wrong|cell|row|whole|has_peer|fail) ?\( ?(problems, ?)?(folder, ?)?(ExitCode::k\w+, ?)?$|)"
    R"(\bError ?\(\w+\.code, ?\{ ?$|)"
    R"(\w = ?\{ ?$|\.id = $|\{ \{ ?$)");
/// The same for ids of a single word; in other calls the first word may be a key.
const std::regex kBeforeWord(
    R"((push_back|emplace_back) ?\( ?\{ ?$|Diagnostic( \w+)? ?\{ ?$|ExitCode::k\w+, ?\{ ?$|\bwarn ?\( ?$)");
const std::regex kId("[a-z]+(-[a-z]+)*");
const std::regex kPrinted(R"(error\[([a-z-]+)\])");

/// Removes line comments and replaces blanks and line ends by single blanks; strings are kept.
std::string compact(const std::string& source) {
  std::string out;
  bool text = false;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (!text && source.compare(i, 2, "//") == 0) i = std::min(source.find('\n', i), source.size() - 1);
    const char c = source[i];
    if (c == '"' && (i == 0 || (source[i - 1] != '\\' && source[i - 1] != '\''))) text = !text;
    if (!text && (c == ' ' || c == '\n')) {
      if (!out.ends_with(' ')) out += ' ';
    } else {
      out += c;
    }
  }
  return out;
}

bool is_id(const std::string& word, const std::string& before, const std::string& after) {
  if (!std::regex_match(word, kId)) return false;
  if (word.starts_with("schedule-")) return true;
  if (before.ends_with("ignored.push_back({")) return false;  // a key
  const bool one_word = word.find('-') == std::string::npos && word != "indivisible";
  const bool ends = after.starts_with(",") || after.starts_with("}") || after.starts_with(";");
  return ends && std::regex_search(before, one_word ? kBeforeWord : kBefore);
}

Places ids_of(const std::string& source, const std::string& file) {
  Places out;
  const std::string text = compact(source);
  for (std::size_t open = text.find('"'); open != std::string::npos; open = text.find('"', open)) {
    std::size_t close = open + 1;
    while (close < text.size() && text[close] != '"') close += text[close] == '\\' ? 2 : 1;
    if (close >= text.size()) break;
    const std::string word = text.substr(open + 1, close - open - 1);
    const std::size_t from = open > 60 ? open - 60 : 0;
    if (word.size() < 60 && is_id(word, text.substr(from, open - from), text.substr(close + 1, 1)))
      out.emplace(word, file);
    open = close + 1;
  }
  for (std::sregex_iterator it(text.begin(), text.end(), kPrinted), end; it != end; ++it) out.emplace((*it)[1], file);
  return out;
}

Places ids_of_program() {
  Places out;
  for (const auto& file : test::files_below({"lib", "app"}, {".h", ".cpp", ".cu"}))
    out.merge(ids_of(test::read_file(file), test::fs::relative(file, test::repository()).string()));
  return out;
}

std::string join(const std::vector<Path>& files) {
  std::string out;
  for (const auto& file : files) out += test::read_file(file);
  return out;
}

/// Provoking these needs a broken or shared MPI library, network or GPU, or a defect of this program.
const std::set<std::string> kNotProvoked = {"mpi-threads", "transport-failed", "cuda-failed", "gpu-shared",
                                            "verify-failed"};

bool mentioned(const std::string& text, const std::string& id) {
  return text.find('"' + id + '"') != std::string::npos || text.find('[' + id + ']') != std::string::npos;
}

/// Like mentioned(), but also true if an id of several words is part of a longer string ("bad-row: ...").
bool looked_for(const std::string& tests, const std::string& id) {
  if (mentioned(tests, id)) return true;
  if (id.find('-') == std::string::npos) return false;
  const auto part = [](char c) { return c == '-' || (c >= 'a' && c <= 'z'); };
  for (auto at = tests.find(id); at != std::string::npos; at = tests.find(id, at + 1))
    if (at > 0 && !part(tests[at - 1]) && !part(tests[at + id.size()])) return true;
  return false;
}

}  // namespace

TEST_CASE("diagnostic ids are found in source text", "[docs]") {
  const std::string source =
      "// \"comment-id\", is none\n"
      "problems.push_back(\n    {\"first-id\",\n fmt::format(\"not-an-id\", x)});\n"
      "throw Error(ExitCode::kEnvironment, {\"word\", y});  EnumName<E>{\"inverse-square-root\", E::k};\n"
      "report.refuse(\"second-id\", key); refuse(\"key\", \"text\"); problem.id = \"third-id\"; warn(\"bad\", x);"
      "refuse(ExitCode::kBadInput, \"fourth-id\", x); throw Error(outcome.code, {\"fifth-id\", y});";
  Places found = ids_of(source, "f");
  std::vector<std::string> names;
  for (const auto& [id, file] : found) names.push_back(id);
  CHECK(names == std::vector<std::string>{"bad", "fifth-id", "first-id", "fourth-id", "second-id", "third-id", "word"});
}

TEST_CASE("docs/errors.md explains every diagnostic of the program, and no others", "[docs]") {
  const auto page = test::first_column(test::read_file(test::repository() / "docs/errors.md"));
  const auto program = ids_of_program();
  CHECK(program.size() > 50);
  for (const auto& [id, file] : program)
    if (!page.contains(id)) FAIL_CHECK(file << " has the diagnostic '" << id << "': add a row to docs/errors.md");
  const std::string sources = join(test::files_below({"lib", "app"}, {".h", ".cpp", ".cu"}));
  for (const auto& id : page)
    if (!mentioned(sources, id)) FAIL_CHECK("docs/errors.md explains '" << id << "', which the program does not have");
}

TEST_CASE("every diagnostic id is looked for by a test", "[docs]") {
  std::string tests;
  for (const auto& file : test::files_below({"test"}, {".h", ".cpp", ".sh", ".py"}))
    if (file.filename() != "errors_test.cpp") tests += test::read_file(file);
  for (const auto& [id, file] : ids_of_program())
    if (!kNotProvoked.contains(id) && !looked_for(tests, id))
      FAIL_CHECK(file << " has the diagnostic '" << id << "', which no test looks for");
}

}  // namespace automodel
