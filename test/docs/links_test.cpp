// Pages refer only to things that exist, and name every folder of the library.
#include <catch2/catch.hpp>

#include "base/version.h"
#include "docs/pages.h"

namespace automodel {
namespace {

std::vector<test::fs::path> pages() {
  auto out = test::files_below({"docs", "recipes", "bench"}, {".md"});
  for (const auto* page : {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "lib/README.md"})
    out.push_back(test::repository() / page);
  return out;
}

/// Every match's first group.
std::vector<std::string> matches(const std::string& text, const char* pattern) {
  const std::regex expression(pattern);
  std::vector<std::string> out;
  for (std::sregex_iterator it(text.begin(), text.end(), expression), end; it != end; ++it) out.push_back((*it)[1]);
  return out;
}

}  // namespace

TEST_CASE("links in documentation pages lead to existing files", "[docs]") {
  for (const auto& page : pages())
    for (const auto& link : matches(test::read_file(page), R"(\]\(([^)#:]+)(?:#[^)]*)?\))"))
      if (!test::fs::exists(page.parent_path() / link))
        FAIL_CHECK(page.filename().string() << " links to " << link << ", which is not there");
}

TEST_CASE("files named in documentation pages exist", "[docs]") {
  const auto root = test::repository();
  for (const auto& page : pages()) {
    const bool library = page.parent_path().filename() == "lib";
    const std::string folders = "(?:lib|app|test|docs|recipes|scripts|third_party|bench)/";
    const std::string pattern = "`(" + (library ? "" : folders) + R"([\w./-]*\w))" + "`";
    for (const auto& name : matches(test::read_file(page), pattern.c_str()))
      if (name.find('/') != std::string::npos && !test::fs::exists(root / name) &&
          !test::fs::exists(root / "lib" / name))
        FAIL_CHECK(page.filename().string() << " names " << name << ", which is not there");
  }
}

TEST_CASE("file names with a version in documentation pages have the program's version", "[docs]") {
  for (const auto& page : pages())
    for (const auto& version : matches(test::read_file(page), R"(automodel-(\d+\.\d+\.\d+))"))
      if (version != kVersion) FAIL_CHECK(page.filename().string() << " names version " << version);
}

TEST_CASE("lib/README.md has a row for every folder of the library", "[docs]") {
  const auto rows = test::first_column(test::read_file(test::repository() / "lib/README.md"));
  for (const auto& entry : test::fs::directory_iterator(test::repository() / "lib"))
    if (entry.is_directory() && !rows.contains(entry.path().filename().string()))
      FAIL_CHECK("lib/" << entry.path().filename().string() << " has no row in lib/README.md");
}

}  // namespace automodel
