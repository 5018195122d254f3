// The file of another trainer as a tree of keys: YAML, JSON (read as YAML, of which it is a part), TOML, or a list of
// arguments. Shell scripts and Python are refused with advice; nothing is ever executed.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/node.h"
#include "foreign/findings.h"

namespace automodel::foreign {

struct SourceFile {
  std::string format = {};  ///< as given with --from
  std::string path = {};
  std::string text = {};
  config::Node root = {.kind = config::Node::Kind::kMap, .entries = {}};
  bool is_arguments = false;  ///< a list of command-line arguments
};

/// Reads at most config::kMaxRecipe bytes. Problems: missing-file, yaml-syntax, from-format.
SourceFile read_source(const std::string& format, const std::string& path, Diagnostics& problems);

/// Adds arguments (--a.b VALUE..., --flag, a.b=VALUE) to a tree; later ones win. Dashes of names become underscores,
/// and dots of names lead into sections. `where` names the source of the words; lines count from 1.
void add_arguments(config::Node& root, std::span<const std::string> words, const std::string& where);

/// The parts between any of the characters `separators`, without empty ones; of more than `most`, the first `most` + 1.
std::vector<std::string> words_of(std::string_view text, std::string_view separators,
                                  std::size_t most = std::string_view::npos);
/// Whether the first line is an option, or a command with options as echo prints it.
bool holds_arguments(std::string_view text);
/// The words of a file with one argument or command per line, up to a little over 10,000: more are no trainer's
/// arguments.
std::vector<std::string> argument_lines(std::string_view text);

/// Sets `key` of a mapping, in place of an earlier value.
void set_entry(config::Node& map, config::Node::Entry entry);
/// A scalar node.
config::Node scalar_node(std::string text, const SourceLocation& where, bool quoted = false);

}  // namespace automodel::foreign
