#include "config/environment.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include <fmt/format.h>

#include "config/limits.h"
#include "config/scalar.h"

namespace automodel::config {
namespace {

bool starts_name(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_';
}
bool continues_name(char c) {
  return starts_name(c) || std::isdigit(static_cast<unsigned char>(c)) != 0;
}

/// Length of the dotted name at the start of `text` (a.b.c, without a trailing dot); 0 if there is none.
std::size_t name_length(std::string_view text) {
  std::size_t end = 0;
  while (end < text.size() && starts_name(text[end])) {
    while (end < text.size() && continues_name(text[end])) ++end;
    if (end + 1 >= text.size() || text[end] != '.' || !starts_name(text[end + 1])) break;
    ++end;
  }
  return end;
}

/// One pass over a text as it was written: values are not searched for references again.
class Interpolation {
 public:
  Interpolation(const Environment& environment, const SourceLocation& where, Diagnostics& problems)
      : environment_(environment), where_(where), problems_(problems) {}

  std::string run(std::string_view text) {
    std::string out;
    bool closes = true;  // whether a '}' follows: the search for one that fails is the last
    for (std::size_t i = 0; i < text.size();) {
      const bool braced = closes && text.substr(i).starts_with("${");
      const std::size_t close = braced ? text.find('}', i) : std::string_view::npos;
      if (close != std::string_view::npos) {
        out += braced_value(text.substr(i, close - i + 1));
        i = close + 1;
        continue;
      }
      if (braced) closes = false;
      const std::size_t length = text[i] == '$' ? name_length(text.substr(i + 1)) : 0;
      if (length == 0)
        out += text[i++];
      else
        out += look_up(std::string(text.substr(i + 1, length)), text.substr(i, length + 1));
      if (length > 0) i += length + 1;
    }
    return out;
  }

 private:
  /// `reference` is ${...}; a default may hold $VAR.
  std::string braced_value(std::string_view reference) {
    auto inside = reference.substr(2, reference.size() - 3);
    if (trimmed(inside).starts_with("oc.env:")) inside = trimmed(inside).substr(7);
    const auto comma = inside.find(',');
    const std::string name(trimmed(inside.substr(0, comma)));
    if (inside.find("${") != std::string_view::npos)
      problems_.add("environment")
          .says("'{}' nests one reference in another", reference)
          .hint("a default is plain text: ${VAR,default}")
          .at(where_);
    if (name.empty() || name_length(name) != name.size())
      return fmt::format("${{{}}}", run(reference.substr(2, reference.size() - 3)));
    if (comma == std::string_view::npos) return look_up(name, reference);
    if (const auto value = environment_(name)) return *value;
    return run(trimmed(inside.substr(comma + 1)));
  }

  std::string look_up(const std::string& name, std::string_view reference) {
    if (const auto value = environment_(name)) return *value;
    problems_.add("environment")
        .says("environment variable '{}' is not set (required by '{}')", name, reference)
        .hint("set it, or give a default: ${{{},default}}", name)
        .at(where_);
    return {};
  }

  const Environment& environment_;
  const SourceLocation& where_;
  Diagnostics& problems_;
};

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
  };
}

std::string interpolate(std::string_view text, const Environment& environment, const SourceLocation& where,
                        Diagnostics& problems) {
  if (text.find('$') == std::string_view::npos) return std::string(text);
  return Interpolation(environment, where, problems).run(text);
}

namespace {

/// `left` bytes may still be written.
void fill_in(Node& node, const Environment& environment, std::size_t& left, Diagnostics& problems) {
  if (node.kind == Node::Kind::kScalar && node.text.find('$') != std::string::npos && left > 0) {
    node.text = interpolate(node.text, environment, node.where, problems);
    if (node.text.size() >= left)
      problems.add("environment")
          .says("the values of variables make more than {} bytes", kMaxExpanded)
          .hint("name fewer or shorter ones")
          .at(node.where);
    left -= std::min(left, node.text.size());
  }
  for (auto& item : node.items) fill_in(item, environment, left, problems);
  for (auto& entry : node.entries) fill_in(entry.value, environment, left, problems);
}

}  // namespace

void interpolate(Node& node, const Environment& environment, Diagnostics& problems,
                 bool (*skips)(std::string_view key)) {
  std::size_t left = kMaxExpanded;
  if (skips == nullptr || node.kind != Node::Kind::kMap) return fill_in(node, environment, left, problems);
  for (auto& entry : node.entries)
    if (!skips(entry.key)) fill_in(entry.value, environment, left, problems);
}

}  // namespace automodel::config
