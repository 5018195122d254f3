#include "launch/completion.h"

#include <fmt/format.h>

namespace automodel::launch {
namespace {

std::string joined(const std::vector<std::string>& words, const std::string& prefix, const std::string& suffix) {
  std::string out;
  for (const auto& word : words) out += (out.empty() ? "" : " ") + prefix + word + suffix;
  return out;
}

constexpr const char* kOptions =
    "--help --json --world-size --gpus-per-node --dry-run --actions --timeline --trace --nproc-per-node";

std::string bash(const std::vector<std::string>& commands, const std::vector<std::string>& keys) {
  return fmt::format(
      "_automodel() {{\n"
      "  local word=\"${{COMP_WORDS[COMP_CWORD]}}\"\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W \"{}\" -- \"$word\"))\n"
      "  elif [[ \"$word\" == --* ]]; then\n"
      "    COMPREPLY=($(compgen -W \"{} {}\" -- \"$word\"))\n"
      "  else\n"
      "    COMPREPLY=($(compgen -f -- \"$word\") $(compgen -W \"{}\" -- \"$word\"))\n"
      "  fi\n"
      "}}\n"
      "complete -o nospace -F _automodel automodel\n",
      joined(commands, "", ""), kOptions, joined(keys, "--", ""), joined(keys, "", "="));
}

std::string zsh(const std::vector<std::string>& commands, const std::vector<std::string>& keys) {
  return fmt::format(
      "#compdef automodel\n"
      "_automodel() {{\n"
      "  if (( CURRENT == 2 )); then\n"
      "    compadd -- {}\n"
      "  elif [[ \"$words[CURRENT]\" == --* ]]; then\n"
      "    compadd -- {} {}\n"
      "  else\n"
      "    _files\n"
      "    compadd -S '' -- {}\n"
      "  fi\n"
      "}}\n"
      "compdef _automodel automodel\n",
      joined(commands, "", ""), kOptions, joined(keys, "--", ""), joined(keys, "", "="));
}

std::string fish(const std::vector<std::string>& commands, const std::vector<std::string>& keys) {
  std::string out =
      fmt::format("complete -c automodel -n __fish_use_subcommand -f -a '{}'\n", joined(commands, "", ""));
  for (const auto* option :
       {"json", "world-size", "gpus-per-node", "dry-run", "actions", "timeline", "trace", "nproc-per-node"})
    out += fmt::format("complete -c automodel -l {}\n", option);
  for (const auto& key : keys) out += fmt::format("complete -c automodel -n 'not __fish_use_subcommand' -l {}\n", key);
  return out;
}

}  // namespace

std::string completion_script(const std::string& shell, const std::vector<std::string>& commands,
                              const std::vector<std::string>& keys) {
  if (shell == "zsh") return zsh(commands, keys);
  if (shell == "fish") return fish(commands, keys);
  return bash(commands, keys);
}

}  // namespace automodel::launch
