#include "config/environment.h"

#include <cctype>
#include <cstdlib>

#include <fmt/format.h>

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

/// One pass over a text that replaces references of one form.
class Interpolation {
 public:
  Interpolation(const Environment& environment, const SourceLocation& where, Diagnostics& problems)
      : environment_(environment), where_(where), problems_(problems) {}

  std::string braced(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t close = text.substr(i).starts_with("${") ? text.find('}', i) : std::string_view::npos;
      if (close == std::string_view::npos) {
        out += text[i++];
        continue;
      }
      auto inside = text.substr(i + 2, close - i - 2);
      const auto reference = text.substr(i, close - i + 1);
      if (trimmed(inside).starts_with("oc.env:")) inside = trimmed(inside).substr(7);
      const auto comma = inside.find(',');
      const std::string name(trimmed(inside.substr(0, comma)));
      if (inside.find("${") != std::string_view::npos)
        problems_.push_back({"environment", fmt::format("'{}' nests one reference in another", reference),
                             "a default is plain text: ${VAR,default}", where_, ""});
      if (name.empty() || name_length(name) != name.size())
        out += reference;
      else if (comma == std::string_view::npos)
        out += look_up(name, reference);
      else
        out += environment_(name).value_or(std::string(trimmed(inside.substr(comma + 1))));
      i = close + 1;
    }
    return out;
  }

  std::string dollar(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t length = text[i] == '$' ? name_length(text.substr(i + 1)) : 0;
      if (length == 0) {
        out += text[i++];
        continue;
      }
      out += look_up(std::string(text.substr(i + 1, length)), text.substr(i, length + 1));
      i += length + 1;
    }
    return out;
  }

 private:
  std::string look_up(const std::string& name, std::string_view reference) {
    if (const auto value = environment_(name)) return *value;
    problems_.push_back({"environment",
                         fmt::format("environment variable '{}' is not set (required by '{}')", name, reference),
                         fmt::format("set it, or give a default: ${{{},default}}", name), where_, ""});
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
  Interpolation pass(environment, where, problems);
  return pass.dollar(pass.braced(text));
}

void interpolate(Node& node, const Environment& environment, Diagnostics& problems) {
  if (node.kind == Node::Kind::kScalar) node.text = interpolate(node.text, environment, node.where, problems);
  for (auto& item : node.items) interpolate(item, environment, problems);
  for (auto& entry : node.entries) interpolate(entry.value, environment, problems);
}

}  // namespace automodel::config
