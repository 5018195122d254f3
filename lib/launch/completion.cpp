#include "launch/completion.h"

#include <map>
#include <set>

#include <fmt/format.h>

namespace automodel::launch {
namespace {

using Commands = std::vector<CompletedCommand>;

/// `text` as a single-quoted string, valid in all three shells.
std::string quoted(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return "'" + out + "'";
}

std::string joined(const std::vector<std::string>& words, const std::string& between) {
  std::string out;
  for (const auto& word : words) out += (out.empty() ? "" : between) + word;
  return out;
}

std::string names_of(const Commands& commands, const std::string& between) {
  std::vector<std::string> names;
  for (const auto& command : commands) names.push_back(command.name);
  return joined(names, between);
}

std::string with_recipe(const Commands& commands, const std::string& between) {
  std::vector<std::string> names;
  for (const auto& command : commands)
    if (command.takes_recipe) names.push_back(command.name);
  return joined(names, between);
}

/// One case per positional argument or option with a fixed set of values.
std::string bash_values(const Commands& commands) {
  std::string out;
  for (const auto& command : commands)
    for (const auto& option : command.options)
      if (!option.values.empty())
        out += fmt::format("    {}:{}) values={} ;;\n", command.name, option.name, quoted(joined(option.values, " ")));
  return out;
}

/// One case per set of values: "    a.b|c.d) SET ;;", for bash and zsh.
std::string key_cases(const std::vector<CompletedKey>& keys, const std::string& before, const std::string& after) {
  std::map<std::string, std::string> patterns;
  for (const auto& key : keys) {
    auto& pattern = patterns[joined(key.values, " ")];
    pattern += (pattern.empty() ? "" : "|") + key.name;
  }
  std::string out;
  for (const auto& [values, pattern] : patterns)
    out += fmt::format("      {}) {}{}{} ;;\n", pattern, before, after.empty() ? quoted(values) : values, after);
  return out;
}

std::string bash_options(const Commands& commands) {
  std::string out;
  for (const auto& command : commands) {
    std::vector<std::string> names;
    for (const auto& option : command.options)
      if (!option.name.empty()) names.push_back(option.name);
    out += fmt::format("    {}) options={} ;;\n", command.name, quoted(joined(names, " ")));
  }
  return out;
}

std::string bash(const Commands& commands, const std::vector<std::string>& keys,
                 const std::vector<CompletedKey>& key_values) {
  return fmt::format(
      R"(# bash completion of automodel: source it, or store it as automodel in bash-completion's folder.
_automodel_keys={keys}
# PREFIX ENDING: adds the keys that go on from $word, each up to its next dot.
_automodel_offer() {{
  local key rest part last=''
  for key in $_automodel_keys; do
    [[ $1$key == "$word"* ]] || continue
    rest="$1$key"
    rest="${{rest#"$word"}}"
    if [[ $rest == *.* ]]; then part="$word${{rest%%.*}}."; else part="$1$key$2"; fi
    [ "$part" = "$last" ] || COMPREPLY+=("$part")
    last="$part"
  done
  [[ " ${{COMPREPLY[*]}} " != *'. '* ]] || compopt -o nospace 2>/dev/null
}}
_automodel() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" command="${{COMP_WORDS[1]}}"
  local options='' values='' key='' given=''
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W '{commands} --help --version' -- "$word"))
    [[ $word == -* ]] || {{ compopt -o filenames 2>/dev/null; COMPREPLY+=($(compgen -f -X '!*.y*ml' -- "$word")); }}
    return
  fi
  case "$command" in
    *.yaml|*.yml) command=train ;;
  esac
  case "$command" in
{options}  esac
  case "$command:$before" in
{values}  esac
  if [ -z "$values" ] && [[ $word != -* ]] && [ "$COMP_CWORD" -eq 2 ]; then
    case "$command:" in
{values}    esac
  fi
  # A value stands after its key: as a word, or behind '=', which bash may make a word of its own.
  if [ "$before" = '=' ]; then
    key="${{COMP_WORDS[COMP_CWORD-2]}}"
  elif [ "$word" = '=' ]; then
    key="$before" word=''
  elif [[ $word == *=* ]]; then
    key="${{word%%=*}}" given="${{word%%=*}}=" word="${{word#*=}}"
  elif [[ $before == --* ]]; then
    key="$before"
  fi
  case " {recipe} " in
    *" $command "*)
      case "${{key#--}}" in
{key_values}      esac ;;
  esac
  if [ -n "$values" ]; then
    COMPREPLY=($(compgen -P "$given" -W "$values" -- "$word"))
  elif [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$word"))
    case " {recipe} " in
      *" $command "*) _automodel_offer -- '' ;;
    esac
  else
    case " {recipe} " in
      *" $command "*)
        [ -z "$word" ] || _automodel_offer '' '='
        if [ "${{#COMPREPLY[@]}}" -gt 0 ]; then compopt -o nospace 2>/dev/null; return; fi
        compopt -o filenames 2>/dev/null
        COMPREPLY=($(compgen -d -- "$word") $(compgen -f -X '!*.y*ml' -- "$word")) ;;
      *) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$word")) ;;
    esac
  fi
}}
complete -F _automodel automodel
)",
      fmt::arg("keys", quoted(joined(keys, " "))), fmt::arg("commands", names_of(commands, " ")),
      fmt::arg("options", bash_options(commands)), fmt::arg("values", bash_values(commands)),
      fmt::arg("recipe", with_recipe(commands, " ")), fmt::arg("key_values", key_cases(key_values, "values=", "")));
}

/// "name:what it does", as _describe expects; `name` must not contain colons.
std::string zsh_described(const std::string& name, const std::string& doc) {
  return quoted(name + ":" + doc);
}

std::string zsh(const Commands& commands, const std::vector<std::string>& keys,
                const std::vector<CompletedKey>& key_values) {
  std::string names, options, values;
  for (const auto& command : commands) {
    names += "    " + zsh_described(command.name, command.doc) + "\n";
    std::string list;
    for (const auto& option : command.options) {
      if (!option.name.empty()) list += " " + zsh_described(option.name, option.doc);
      if (!option.values.empty())
        values +=
            fmt::format("    {}:{}) compadd -- {}; return ;;\n", command.name, option.name, joined(option.values, " "));
    }
    options += fmt::format("    {}) options=({}) ;;\n", command.name, list);
  }
  return fmt::format(
      R"(#compdef automodel
# zsh completion of automodel: store it as _automodel in a folder of $fpath, or `source <(automodel completion zsh)`.
# PREFIX TYPED ENDING: adds the keys that go on from what is typed, each up to its next dot.
_automodel_offer() {{
  local -aU open whole
  local key rest
  for key in ${{(M)keys:#${{(b)2}}*}}; do
    rest=${{key#${{(b)2}}}}
    if [[ $rest == *.* ]]; then open+=("$1$2${{rest%%.*}}."); else whole+=("$1$key"); fi
  done
  (( $#open )) && compadd -S '' -- $open
  (( $#whole )) && compadd -S "$3" -- $whole
}}
_automodel() {{
  local -a commands options keys
  local command=$words[2]
  commands=(
{names}  )
  keys=({keys})
  if (( CURRENT == 2 )); then
    _describe -t commands command commands
    _files -g '*.y(|a)ml(-.)'
    return
  fi
  [[ $command == *.y(|a)ml ]] && command=train
  case $command in
{options}  esac
  case $command:$words[CURRENT-1] in
{values}  esac
  if (( CURRENT == 3 )) && [[ $words[CURRENT] != -* ]]; then
    case $command: in
{values}    esac
  fi
  local key=''
  if [[ $words[CURRENT] == *=* ]]; then
    key=${{words[CURRENT]%%=*}}
  elif [[ $words[CURRENT-1] == --* ]]; then
    key=$words[CURRENT-1]
  fi
  if [[ -n $key && " {recipe} " == *" $command "* ]]; then
    [[ $words[CURRENT] == *=* ]] && compset -P '*='
    case ${{key#--}} in
{key_values}    esac
  fi
  if [[ $words[CURRENT] == -* ]]; then
    _describe -o -t options option options
    [[ " {recipe} " == *" $command "* && $words[CURRENT] == --* ]] && _automodel_offer -- "${{words[CURRENT]#--}}" ' '
  elif [[ " {recipe} " == *" $command "* ]]; then
    _files -g '*.y(|a)ml(-.)'
    [[ -n $words[CURRENT] ]] && _automodel_offer '' "$words[CURRENT]" '='
  else
    _files
  fi
}}
if [[ $funcstack[1] == _automodel ]]; then _automodel "$@"; else compdef _automodel automodel; fi
)",
      fmt::arg("names", names), fmt::arg("keys", joined(keys, " ")), fmt::arg("options", options),
      fmt::arg("values", values), fmt::arg("recipe", with_recipe(commands, " ")),
      fmt::arg("key_values", key_cases(key_values, "compadd -- ", "; return")));
}

std::string fish(const Commands& commands, const std::vector<std::string>& keys,
                 const std::vector<CompletedKey>& key_values) {
  std::string out =
      "# fish completion of automodel: store it as ~/.config/fish/completions/automodel.fish\n"
      "complete -c automodel -f\n"
      "complete -c automodel -n __fish_use_subcommand -k -a '(__fish_complete_suffix .yaml)'\n";
  for (const auto& command : commands) {
    out +=
        fmt::format("complete -c automodel -n __fish_use_subcommand -a {} -d {}\n", command.name, quoted(command.doc));
    const std::string here = fmt::format("complete -c automodel -n '__fish_seen_subcommand_from {}'", command.name);
    for (const auto& option : command.options) {
      const std::string values = option.values.empty() ? "" : " -a " + quoted(joined(option.values, " "));
      if (option.name.empty())
        out += values.empty() ? "" : here + values + "\n";
      else
        out += fmt::format("{} -l {}{}{} -d {}\n", here, option.name.substr(2),
                           !option.takes_value     ? ""
                           : option.values.empty() ? " -r -F"
                                                   : " -x",
                           values, quoted(option.doc));
    }
  }
  std::set<std::string> without_value;
  for (const auto& command : commands)
    for (const auto& option : command.options)
      if (!option.takes_value && !option.name.empty()) without_value.insert(option.name);
  const auto flags = joined({without_value.begin(), without_value.end()}, " ");
  std::map<std::string, std::string> keys_with;
  for (const auto& key : key_values) keys_with[joined(key.values, " ")] += " " + key.name;
  std::string cases;
  for (const auto& [values, names] : keys_with)
    cases += fmt::format("    case{}\n      set values {}\n", names, values);
  out += fmt::format(
      R"(set -g __automodel_keys {keys}
# The values of the key before, or recipes and the keys that go on from what is typed, each up to its next dot.
function __automodel_offer
  set -l word (commandline -ct)
  set -l before (commandline -opc)[-1]
  set -l key ''
  set -l given ''
  set -l values
  if string match -q -- '*=*' $word
    set key (string split -m 1 = -- $word)[1]
    set given $key=
  else if string match -q -- '--*' $before
    contains -- $before {flags}; or set key $before
  end
  switch (string replace -r '^--' '' -- $key)
{cases}  end
  if test -n "$key" -a (string sub -l 2 -- "$word") != --; or test -n "$given"
    test (count $values) -eq 0; or printf '%s\n' $given$values
    return
  end
  set -l dashes ''
  set -l ending =
  string match -q -- '--*' $word; and set dashes --; and set ending ''
  string match -q -- '-*' $word; or __fish_complete_suffix .yaml
  test -n "$word"; or return
  set -l typed (string escape --style=regex -- (string replace -r '^--' '' -- $word))
  for each in (string match -r -- "^$typed"'[^.]*\.?' $__automodel_keys | sort -u)
    string match -q -- '*.' $each; and echo $dashes$each; or echo $dashes$each$ending
  end
end
complete -c automodel -n '__fish_seen_subcommand_from {recipe}' -k -a '(__automodel_offer)'
)",
      fmt::arg("keys", joined(keys, " ")), fmt::arg("cases", cases), fmt::arg("flags", flags),
      fmt::arg("recipe", with_recipe(commands, " ")));
  return out;
}

}  // namespace

std::string completion_script(const std::string& shell, const std::vector<CompletedCommand>& commands,
                              const std::vector<std::string>& keys, const std::vector<CompletedKey>& values) {
  if (shell == "zsh") return zsh(commands, keys, values);
  if (shell == "fish") return fish(commands, keys, values);
  return bash(commands, keys, values);
}

}  // namespace automodel::launch
