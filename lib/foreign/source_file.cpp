#include "foreign/source_file.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "base/file_text.h"
#include "base/utf8.h"
#include "config/limits.h"
#include "config/scalar.h"
#include "foreign/toml_tree.h"

namespace automodel::foreign {
namespace {

/// Without comments in front of it.
std::string_view first_line(std::string_view text) {
  for (;;) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    const auto line = text.substr(0, text.find('\n'));
    if (!line.starts_with('#')) return line;
    text.remove_prefix(line.size());
  }
}

bool is_script(const std::string& path, std::string_view text) {
  return text.starts_with("#!") || path.ends_with(".sh") || path.ends_with(".bash") || path.ends_with(".sbatch") ||
         path.ends_with(".slurm");
}

constexpr int kMaxSections = 16;               ///< of a dotted name; no trainer has more than three
constexpr std::size_t kMaxArguments = 10'000;  ///< of a file; each is looked up among those before

bool is_option(std::string_view word) {
  return word.size() > 1 && word[0] == '-' && !config::parse_number(word);
}

/// "--micro-batch-size" as "micro_batch_size".
std::string key_of(std::string_view option) {
  std::string name(option.substr(std::min(option.find_first_not_of('-'), option.size())));
  std::ranges::replace(name, '-', '_');
  return name;
}

/// Puts a value at a dotted path; what is deeper than any trainer's sections is a name with dots, which nobody knows.
void put(config::Node& root, std::string_view path, config::Node value) {
  config::Node* map = &root;
  const auto where = value.where;
  int depth = 0;
  for (auto dot = path.find('.'); dot != std::string_view::npos && depth < kMaxSections;
       dot = path.find('.'), ++depth) {
    const std::string name(path.substr(0, dot));
    auto* found = map->find(name);
    if (found == nullptr || found->value.kind != config::Node::Kind::kMap) {
      set_entry(*map, {name, where, {.kind = config::Node::Kind::kMap, .entries = {}, .where = where}});
      found = map->find(name);
    }
    map = &found->value;
    path.remove_prefix(dot + 1);
  }
  set_entry(*map, {std::string(path), where, std::move(value)});
}

}  // namespace

config::Node scalar_node(std::string text, const SourceLocation& where, bool quoted) {
  return {.kind = config::Node::Kind::kScalar,
          .text = text,
          .written = text,
          .quoted = quoted,
          .entries = {},
          .where = where};
}

void set_entry(config::Node& map, config::Node::Entry entry) {
  if (auto* found = map.find(entry.key))
    *found = std::move(entry);
  else
    map.entries.push_back(std::move(entry));
}

void add_arguments(config::Node& root, std::span<const std::string> words, const std::string& where) {
  for (std::size_t i = 0; i < words.size();) {
    const SourceLocation place{where, static_cast<int>(i) + 1, 1};
    const std::string_view word = words[i++];
    const auto equals = word.find('=');
    if (equals != std::string_view::npos && word.find_first_of(" \t") > equals) {
      put(root, key_of(word.substr(0, equals)), scalar_node(std::string(word.substr(equals + 1)), place));
      continue;
    }
    if (!is_option(word)) continue;  // a positional word: the program, a sub-command
    std::vector<config::Node> values;
    while (i < words.size() && !is_option(words[i])) values.push_back(scalar_node(words[i++], place));
    if (values.empty()) values.push_back(scalar_node("true", place));
    put(root, key_of(word),
        values.size() == 1
            ? std::move(values[0])
            : config::Node{
                  .kind = config::Node::Kind::kList, .items = std::move(values), .entries = {}, .where = place});
  }
}

bool holds_arguments(std::string_view text) {
  const auto line = first_line(text);
  if (line.starts_with("--")) return !line.starts_with("---");
  const auto command = line.substr(0, line.find_first_of(" \t"));
  return line.find(" --") != std::string_view::npos && command.find_first_of("#:={[\"'") == std::string_view::npos;
}

std::vector<std::string> words_of(std::string_view text, std::string_view separators, std::size_t most) {
  std::vector<std::string> out;
  while (!text.empty() && out.size() <= most) {
    const auto end = std::min(text.find_first_of(separators), text.size());
    if (end > 0) out.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::vector<std::string> argument_lines(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty() && out.size() <= kMaxArguments) {
    const auto end = std::min(text.find('\n'), text.size());
    const auto line = config::trimmed(text.substr(0, end));
    const auto space = line.find_first_of(" \t");
    if (!line.starts_with('#') && line.find(" --") != std::string_view::npos) {  // the whole command, as echo prints it
      std::ranges::move(words_of(line, " \t", kMaxArguments - out.size()), std::back_inserter(out));
    } else if (line.starts_with("--") && space != std::string_view::npos &&
               line.substr(0, space).find('=') == std::string_view::npos) {
      out.emplace_back(line.substr(0, space));
      out.emplace_back(config::trimmed(line.substr(space)));
    } else if (!line.empty() && line[0] != '#') {
      out.emplace_back(line);
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

SourceFile read_source(const std::string& format, const std::string& path, Diagnostics& problems) {
  SourceFile out{.format = format, .path = path};
  auto file = file_text(path, config::kMaxRecipe);
  if (!file.problem.empty()) {
    problems.add("missing-file")
        .says("'{}' cannot be read: {}", printable(path), file.problem)
        .hint("'--from FORMAT FILE' takes the trainer's configuration file")
        .at({"command line", 0, 0});
    return out;
  }
  out.text = std::move(file.text);
  if (is_script(path, out.text)) {
    problems.add("from-format")
        .says("this is a shell script: what it passes depends on running it, which is not done here")
        .hint(
            "put 'echo' before its torchrun (or python, srun), run it, write the arguments one per line to FILE, and "
            "give --from {} FILE; or put them after '--'",
            format)
        .at({path, 1, 1});
    return out;
  }
  if (path.ends_with(".py")) {
    problems.add("from-format")
        .says("this is Python: it is not executed here")
        .hint(
            "torchtitan: write the configuration as JSON: python -c 'import json; from "
            "torchtitan.models.llama3.config_registry import llama3_8b as f; print(json.dumps(f().to_dict(), "
            "default=str))'")
        .at({path, 1, 1});
    return out;
  }
  if (holds_arguments(out.text)) {
    out.is_arguments = true;
    const auto words = argument_lines(out.text);
    if (words.size() > kMaxArguments)
      problems.add("from-format")
          .says("the file has more than {} arguments", kMaxArguments)
          .hint("'--from {} FILE' takes the trainer's arguments, one per line", format)
          .at({path, static_cast<int>(kMaxArguments), 1});
    else
      add_arguments(out.root, words, path);
  } else if (path.ends_with(".toml") || (format == "torchtitan" && !first_line(out.text).starts_with('{'))) {
    out.root = parse_toml(out.text, path, problems);
  } else {
    out.root = config::parse_yaml(out.text, path, problems);
  }
  if (problems.empty() && out.root.kind != config::Node::Kind::kMap)
    problems.add("from-format")
        .says("the file is not a mapping of keys to values")
        .hint("'--from {} FILE' takes the trainer's configuration file", format)
        .at({path, 1, 1});
  return out;
}

}  // namespace automodel::foreign
