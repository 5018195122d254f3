#include "report.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>

#include <fmt/format.h>
#include <unistd.h>

#include "base/terminal.h"
#include "base/utf8.h"
#include "from_option.h"
#include "report/plan_json.h"

namespace automodel::app {

int code(ExitCode exit) {
  return static_cast<int>(exit);
}
void out(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
}
void say(const std::string& text) {
  out(for_terminal(text, STDOUT_FILENO));
}
void err(const std::string& text) {
  std::fflush(stdout);  // in a file that has both, problems follow what was printed before them
  const auto shown = for_terminal(text, STDERR_FILENO);
  std::fwrite(shown.data(), 1, shown.size(), stderr);
}

void show(const Diagnostic& problem, const config::LoadedRecipe& recipe, std::string_view severity) {
  const std::string text = to_text(problem, severity);
  const auto line_end = text.find('\n');
  const auto excerpt =
      problem.where.file == recipe.path ? source_excerpt(recipe.text, problem.where.line, problem.where.column) : "";
  err(text.substr(0, line_end) + "\n");
  std::fwrite(excerpt.data(), 1, excerpt.size(), stderr);  // the caret stands under its column in an unbroken line
  if (line_end != std::string::npos) err(text.substr(line_end + 1) + "\n");
}

int refuse(const Diagnostics& problems, const config::LoadedRecipe& recipe, bool json, const std::string& from) {
  const int exit = code(exit_code(problems));
  if (json) {
    out(report::errors_to_json(problems, from) + "\n");
    return exit;
  }
  constexpr std::size_t kMostShown = 100;  // each excerpt goes through the text again
  for (const auto& problem : std::span(problems).first(std::min(problems.size(), kMostShown)))
    show(problem, recipe, "error");
  err(fmt::format("{} problem{} in {}{}\n", problems.size(), problems.size() == 1 ? "" : "s", printable(recipe.path),
                  problems.size() > kMostShown ? fmt::format(", of which {} are shown", kMostShown) : ""));
  return exit;
}

Error wrong_words(std::string message, std::string help) {
  return Error(Diagnostic{"usage"}.says(std::move(message)).hint(std::move(help)).at({"command line", 0, 0}));
}

config::LoadedRecipe load(const Options& options) {
  auto loaded = config::load_recipe(options.recipe, options.overrides, config::process_environment());
  loaded.problems = name_trainer(loaded);
  return loaded;
}

void write_file(const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  const bool opened = file.is_open();
  file << text << std::flush;
  if (file) return;
  const int reason = errno;
  file.close();
  std::error_code ignored;
  if (opened && std::filesystem::is_regular_file(path, ignored)) std::filesystem::remove(path, ignored);
  throw Error(Diagnostic{"cannot-write"}
                  .says("'{}' cannot be written: {}", path, std::strerror(reason))
                  .hint(reason == ENOSPC || reason == EDQUOT ? "free space on this disk, or choose another folder"
                                                             : "choose a folder that exists and can be written to")
                  .at({"command line", 0, 0}));
}

}  // namespace automodel::app
