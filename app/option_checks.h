// Checks of option values. A failed check says what is wrong and, on a second line, what to write instead.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace automodel::app {

/// A whole number; shown as "N" by the help.
CLI::Validator whole_number(int least = 1, int most = 1 << 24);
CLI::Validator number_between(double least, double most);
/// One of `words`, which the help and the shell completion list.
CLI::Validator one_of(std::vector<std::string> words);

/// The words that `one_of` allows for an option; empty for other options.
std::vector<std::string> words_of(const CLI::Option& option);

/// "did you mean '--x'?" for the option of `command` that `name` (without dashes) resembles; empty if there is none, or
/// one of `others` is nearer.
std::string suggest_option(const CLI::App& command, const std::string& name,
                           const std::vector<std::string>& others = {});

}  // namespace automodel::app
