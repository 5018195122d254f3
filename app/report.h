// What every command says and how: results to standard output, problems with the lines they are about, exit codes.
#pragma once

#include <string>

#include "base/error.h"
#include "config/recipe.h"
#include "options.h"

namespace automodel::app {

int code(ExitCode exit);
/// Standard output and standard error.
void out(const std::string& text);
void err(const std::string& text);
/// Problems as text with the lines they are about, or as JSON. Returns the exit code.
int refuse(const Diagnostics& problems, const config::LoadedRecipe& recipe, bool json,
           ExitCode exit = ExitCode::kBadInput);
/// What the command line itself does wrong.
Error wrong_words(std::string message, std::string help);
/// The recipe with its overrides; problems of both are in it.
config::LoadedRecipe load(const Options& options);
/// Throws Error where that cannot be.
void write_file(const std::string& path, const std::string& text);

}  // namespace automodel::app
