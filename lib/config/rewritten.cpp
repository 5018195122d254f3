#include "config/rewritten.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "config/node.h"

namespace automodel::config {
namespace {

std::string_view take_line(std::string_view& text) {
  const auto line = text.substr(0, std::min(text.find('\n'), text.size() - 1) + 1);
  text.remove_prefix(line.size());
  return line;
}

/// The key that begins at the start of a line; empty if none does.
std::string key_of(std::string_view line) {
  const bool quoted = line.starts_with('"') || line.starts_with('\'');
  if (!quoted && std::isalpha(static_cast<unsigned char>(line.front())) == 0 && line.front() != '_') return "";
  const auto colon = line.find(':');
  if (colon == std::string_view::npos) return "";
  std::string key(line.substr(0, colon));
  std::erase_if(key, [](char c) { return c == '"' || c == '\'' || c == ' '; });
  return key;
}

/// A line after a section's last one: blank, or a comment about what follows.
bool is_between(std::string_view line) {
  return line.front() == '#' || line.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

Value section(const std::string& key, const Value& value) {
  return Value::Map{{key, value}};
}

/// Appends `lines`, a section and what is between it and the next one, with the section as `value` has it.
void add_section(std::string& out, const std::string& key, std::string_view lines, const Value& before,
                 const Value& value) {
  const Value* now = value.find(key);
  if (const Value* old = before.find(key); old != nullptr && now != nullptr && *old == *now) {
    out += lines;
    return;
  }
  if (now != nullptr) out += to_yaml(section(key, *now));
  std::string after;
  while (!lines.empty()) {
    const auto line = take_line(lines);
    after = is_between(line) ? after.append(line) : "";
  }
  out += after;
}

}  // namespace

std::string rewritten(std::string_view text, const Value& value) {
  Diagnostics ignored;
  const Value before = to_value(parse_yaml(text, "", ignored));
  std::string out, key, lines;
  std::set<std::string> seen;
  const auto finish = [&] {
    key.empty() ? void(out += lines) : add_section(out, key, lines, before, value);
    lines.clear();
  };
  for (std::string_view rest = text; !rest.empty();) {
    const auto line = take_line(rest);
    if (auto next = key_of(line); !next.empty()) {
      finish();
      seen.insert(key = next);
    }
    lines += line;
  }
  if (!lines.empty() && lines.back() != '\n') lines += '\n';
  finish();
  if (const auto* map = value.map())
    for (const auto& [name, item] : *map)
      if (!seen.contains(name)) out += to_yaml(section(name, item));
  return ignored.empty() && to_value(parse_yaml(out, "", ignored)) == value && ignored.empty() ? out : to_yaml(value);
}

}  // namespace automodel::config
