// Pages that repeat what the declarations in lib/config say are current.
#include "config/reference.h"

#include <map>

#include <catch2/catch.hpp>

#include "config/recipe.h"
#include "docs/pages.h"

namespace automodel {
namespace {

std::string escaped(std::string_view text) {
  return std::regex_replace(std::string(text), std::regex("\\|"), "\\|");
}

/// True where a source outside lib/config and the declarations reads the member: `.name(`, `->name(`, `.name->`.
bool read_by_program(const std::string& member) {
  const std::regex use("(\\.|->)" + member + "(\\(\\)|->)");
  for (const auto& file : test::files_below({"lib", "app"}, {".cpp", ".h"}))
    if (file.parent_path().filename() != "config" && std::regex_search(test::read_file(file), use)) return true;
  return false;
}

}  // namespace

TEST_CASE("docs/recipe-reference.md is what the program prints", "[docs]") {
  const bool current = test::read_file(test::repository() / "docs/recipe-reference.md") == config::recipe_reference();
  if (!current) FAIL("write it anew: automodel schema --markdown > docs/recipe-reference.md");
}

TEST_CASE("every field of ModelParallelConfig stands in docs/megatron.md with what follows from it", "[docs]") {
  std::map<std::string, std::vector<std::string>> rows;
  for (const auto& cells : test::table_rows(test::read_file(test::repository() / "docs/megatron.md")))
    if (cells.size() == 3) rows[cells[0]] = cells;
  const auto& fields = config::fields_of<config::ModelParallelConfig>();
  CHECK(fields.size() == rows.size());
  for (const auto& field : fields) {
    INFO("field " << field.key << " in docs/megatron.md");
    const auto row = rows.find("`" + std::string(field.key) + "`");
    if (row == rows.end()) {
      FAIL_CHECK("add its row");
      continue;
    }
    const auto& state = row->second[1];
    if (!field.ignored.empty()) {
      CHECK(state == "no effect");
      CHECK(row->second[2] == escaped(field.ignored));
      continue;
    }
    CHECK((state == "acts" || state == "refused" || state == "checked" || state == "not yet"));
    const bool read = read_by_program(std::string(field.key));
    if ((state == "acts" || state == "refused") && !read) FAIL_CHECK("nothing reads it, yet it is said to act");
    if (state != "acts" && state != "refused" && read) WARN("it is read by the program now: say how it acts");
  }
}

}  // namespace automodel
