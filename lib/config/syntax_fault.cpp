#include "config/syntax_fault.h"

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

/// Where the line with this number (from 0) begins.
std::size_t begin_of_line(std::string_view text, int line) {
  std::size_t at = 0;
  for (; line > 0 && at != std::string_view::npos; --line) at = text.find('\n', at) + 1;
  return at;
}

/// Behind the tags and anchors that stand at `at`.
std::size_t behind_properties(std::string_view text, std::size_t at) {
  while (at < text.size() && (text[at] == '&' || text[at] == '!')) {
    at = std::min(text.find_first_of(" \t\r\n", at), text.size());
    at = std::min(text.find_first_not_of(" \t\r\n", at), text.size());
  }
  return at;
}

/// The quote that closes the one at `open`; text.size() if there is none.
std::size_t closing_quote(std::string_view text, std::size_t open) {
  const char quote = text[open];
  for (std::size_t i = open + 1; i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\')
      ++i;
    else if (text[i] != quote)
      continue;
    else if (quote == '\'' && i + 1 < text.size() && text[i + 1] == quote)
      ++i;
    else
      return i;
  }
  return text.size();
}

/// "lr" of the line "lr:5e-3": a key whose colon no blank follows; empty for any other line. "C:/x" and "http://x" are
/// values.
std::string_view unparted_key(std::string_view content) {
  const auto begin = content.find_first_not_of("- ");
  if (begin == std::string_view::npos) return {};
  const auto end = content.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.", begin);
  if (end == std::string_view::npos || end == begin || content[end] != ':' || end + 1 >= content.size()) return {};
  const char next = content[end + 1];
  return next == ' ' || next == '/' || next == '\\' || next == ':' ? std::string_view()
                                                                   : content.substr(begin, end - begin);
}

std::optional<SyntaxFault> find_indentation_fault(std::string_view text) {
  std::vector<std::size_t> open;  // indentations of the enclosing blocks
  std::string before;
  SyntaxFault no_colon;  // of the line before, if it is a single word
  int depth = 0;         // bracket nesting
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
      return SyntaxFault{number, static_cast<int>(indent) + 1, "this line is indented with a tab",
                         "YAML allows only spaces there"};
    if (depth <= 0) {
      while (!open.empty() && open.back() > indent) open.pop_back();
      const auto fault = [&](std::string message, std::string help) {
        return SyntaxFault{number, static_cast<int>(indent) + 1, std::move(message), std::move(help)};
      };
      if (open.empty() || open.back() < indent) {
        if (!open.empty() && !may_deepen && no_colon.line > 0) return no_colon;
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
    no_colon = {};
    if (key == indent && content.find_first_of(" :\"'[{", indent) == std::string_view::npos)
      no_colon = {number, static_cast<int>(content.size()) + 1, fmt::format("'{}' has no colon", before),
                  fmt::format("write '{}:'; the lines below are indented as its keys", before)};
  }
  return std::nullopt;
}

}  // namespace

std::optional<SyntaxFault> find_quote_fault(std::string_view text, int line, int column, int broken) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // a byte order mark, which the parser does not count
  const auto begin = begin_of_line(text, line);
  const auto open = behind_properties(text, begin + static_cast<std::size_t>(column));
  if (open >= text.size() || (text[open] != '"' && text[open] != '\'')) return std::nullopt;
  const auto close = closing_quote(text, open);
  const auto number = [&](std::size_t at) {
    return 1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
  };
  SyntaxFault out{.line = number(open)};
  const auto newline = text.substr(0, open).rfind('\n');
  out.column = static_cast<int>(open - (newline == std::string_view::npos ? 0 : newline + 1)) + 1;
  if (close == text.size()) {
    out.message = "the quote that opens here is not closed";
    out.help = fmt::format("write {} where the value ends", text[open]);
    return out;
  }
  const int last = number(close);
  if (broken == 0 || last == out.line || broken < out.line || broken > last + 1) return std::nullopt;
  out.message = fmt::format("the quote that opens here is closed on line {} only", last);
  out.help = fmt::format("write {} where the value ends", text[open]);
  return out;
}

std::optional<SyntaxFault> find_line_fault(std::string_view text, int broken) {
  const auto indentation = find_indentation_fault(text);
  if (indentation && indentation->line < broken - 1) return indentation;
  for (int line = std::max(1, broken - 1); line <= broken; ++line) {
    const auto begin = begin_of_line(text, line - 1);
    const auto content = content_of(text.substr(begin, text.find('\n', begin) - begin));
    const auto key = unparted_key(content);
    if (key.empty()) continue;
    const auto column = static_cast<std::size_t>(key.data() - content.data()) + key.size();
    return SyntaxFault{line, static_cast<int>(column) + 1, fmt::format("no blank follows the colon of '{}'", key),
                       fmt::format("write '{}: {}'", key, content.substr(column + 1))};
  }
  return indentation && indentation->line <= broken ? indentation : std::nullopt;
}

}  // namespace automodel::config
