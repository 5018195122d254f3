#include "config/indentation.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace automodel::config {
namespace {

/// `line` without its comment and trailing blanks.
std::string_view content_of(std::string_view line) {
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote != 0)
      quote = c == quote ? 0 : quote;
    else if (c == '"' || c == '\'')
      quote = c;
    else if (c == '#' && (i == 0 || line[i - 1] == ' '))
      line = line.substr(0, i);
  }
  const auto end = line.find_last_not_of(" \t\r");
  return end == std::string_view::npos ? std::string_view() : line.substr(0, end + 1);
}

int brackets(std::string_view content) {
  int depth = 0;
  for (const char c : content) depth += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
  return depth;
}

bool opens_block(std::string_view content) {
  return content.ends_with(':') || content.ends_with('-') || content.ends_with('|') || content.ends_with('>') ||
         content.ends_with("|-") || content.ends_with(">-");
}

}  // namespace

std::optional<IndentationFault> find_indentation_fault(std::string_view text) {
  std::vector<std::size_t> open;  // indentations of the enclosing blocks
  std::string before;
  int depth = 0;  // bracket nesting
  std::size_t literal = std::string_view::npos;
  bool may_deepen = true;
  for (int number = 1; !text.empty(); ++number) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const auto content = content_of(line);
    const auto indent = content.find_first_not_of(' ');
    if (content.find_first_not_of(" \t") == std::string_view::npos) continue;
    if (literal != std::string_view::npos && indent > literal) continue;  // text of a block scalar
    literal = std::string_view::npos;
    if (depth <= 0 && content[indent] == '\t')
      return IndentationFault{number, static_cast<int>(indent) + 1, "this line is indented with a tab",
                              "YAML allows only spaces there"};
    if (depth <= 0) {
      while (!open.empty() && open.back() > indent) open.pop_back();
      const auto fault = [&](std::string message, std::string help) {
        return IndentationFault{number, static_cast<int>(indent) + 1, std::move(message), std::move(help)};
      };
      if (open.empty() || open.back() < indent) {
        if (!open.empty() && !may_deepen)
          return fault(fmt::format("this line is indented by {} and belongs to no key", indent),
                       fmt::format("'{}' above it has a value already; indent this line by {}", before, open.back()));
        open.push_back(indent);
      }
      // The keys of a list item are indented to the column after its dash.
      for (auto at = indent; content.substr(at).starts_with("- ");) {
        at = content.find_first_not_of(' ', at + 1);
        if (at == std::string_view::npos) break;
        open.push_back(at);
      }
    }
    depth += brackets(content);
    may_deepen = opens_block(content);
    if (content.ends_with('|') || content.ends_with('>') || content.ends_with("|-") || content.ends_with(">-"))
      literal = indent;
    const auto key = content.find_first_not_of("- ", indent);
    before = key == std::string_view::npos ? "-" : std::string(content.substr(key, content.find(':', key) - key));
  }
  return std::nullopt;
}

}  // namespace automodel::config
