// What all commands share: results on standard output, problems with the recipe lines they concern, exit codes.
#pragma once

#include <string>

#include "base/error.h"
#include "config/recipe.h"
#include "options.h"

namespace automodel::app {

int code(ExitCode exit);
/// To standard output, as it is: for programs, and for text to copy.
void out(const std::string& text);
/// To standard output, for people: folded at the width of a terminal.
void say(const std::string& text);
/// To standard error, folded and coloured at a terminal.
void err(const std::string& text);
/// Prints a problem and the line of the recipe that it concerns.
void show(const Diagnostic& problem, const config::LoadedRecipe& recipe, std::string_view severity);
/// Prints problems as text with the lines they concern, or as JSON. Returns their exit code. `from`: the member of that
/// name, of `plan --from`.
int refuse(const Diagnostics& problems, const config::LoadedRecipe& recipe, bool json, const std::string& from = "");
/// The Error for a wrong command line.
Error wrong_words(std::string message, std::string help);
/// Loads the recipe with its overrides; the result includes the problems of both.
config::LoadedRecipe load(const Options& options);
/// Throws Error on failure.
void write_file(const std::string& path, const std::string& text);

}  // namespace automodel::app
