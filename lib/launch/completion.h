// Shell completion: commands, options and recipe keys.
#pragma once

#include <string>
#include <vector>

namespace automodel::launch {

/// Code for bash, zsh or fish. Keys complete after "--" and, with their '=', as plain words.
std::string completion_script(const std::string& shell, const std::vector<std::string>& commands,
                              const std::vector<std::string>& keys);

}  // namespace automodel::launch
