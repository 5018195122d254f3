// What README.md shows is what the program does.
#include <sstream>

#include <catch2/catch.hpp>

#include "cli/program.h"
#include "docs/pages.h"

namespace automodel {
namespace {

/// The lines of an indented block, from the first line that holds `begin` on, without the indentation.
std::string block(const std::string& page, const std::string& begin) {
  std::string out;
  std::istringstream lines(page.substr(page.find("    " + begin)));
  for (std::string line; std::getline(lines, line) && line.starts_with("    ");) out += line.substr(4) + "\n";
  return out;
}

std::set<std::string> words_of(const std::string& text, const char* pattern) {
  const std::regex expression(pattern);
  std::set<std::string> out;
  for (std::sregex_iterator it(text.begin(), text.end(), expression), end; it != end; ++it) out.insert((*it)[1]);
  return out;
}

}  // namespace

TEST_CASE("README.md has a row for every command, and no others", "[docs]") {
  const test::TemporaryFolder folder;
  const std::string help = test::run_program(folder, "--help").out;
  const auto commands = words_of(help.substr(help.find("Subcommands:")), "\n  ([a-z][a-z0-9]*) ");
  CHECK(commands.size() >= 5);
  std::string rows;
  for (const auto& row : test::first_column(test::read_file(test::repository() / "README.md"))) rows += row + "\n";
  const auto documented = words_of(rows, "automodel ([a-z][a-z0-9]*)");
  for (const auto& command : commands)
    if (!documented.contains(command)) FAIL_CHECK("automodel " << command << " has no row in README.md");
  for (const auto& command : documented)
    if (!commands.contains(command)) FAIL_CHECK("README.md has automodel " << command << ", which does not exist");
}

TEST_CASE("the recipe in README.md can be planned", "[docs]") {
  const test::TemporaryFolder folder;
  folder.write("r.yaml", block(test::read_file(test::repository() / "README.md"), "model: "));
  folder.write("corpus/a.txt", std::string(4096, 'a'));
  const auto outcome = test::run_program(folder, "plan r.yaml --world-size 8");
  INFO(outcome.err);
  CHECK(outcome.code == 0);
  CHECK(outcome.out.find("mesh      8 ranks: pp 2, dp_shard 4, fsdp2") != std::string::npos);
}

TEST_CASE("the error message in README.md is what the program prints", "[docs]") {
  const test::TemporaryFolder folder;
  folder.write("recipes/quickstart.yaml", test::read_file(test::repository() / "recipes/quickstart.yaml"));
  const auto page = test::read_file(test::repository() / "README.md");
  CHECK(test::run_program(folder, "plan recipes/quickstart.yaml --distributed.pp_sise 4").err ==
        block(page, "command line (--distributed.pp_sise 4)"));
  const auto plan = test::run_program(folder, "plan recipes/quickstart.yaml").out;
  if (plan != block(page, "plan of recipes/quickstart.yaml")) WARN("README.md shows another plan of the quickstart");
}

}  // namespace automodel
