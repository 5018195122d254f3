#include "base/diagnostic.h"

#include <fmt/format.h>

namespace automodel {

std::string to_text(const Diagnostic& diagnostic, std::string_view severity) {
  std::string out = diagnostic.where.file;
  if (diagnostic.where.line > 0) out += fmt::format(":{}:{}", diagnostic.where.line, diagnostic.where.column);
  if (!out.empty()) out += ": ";
  out += fmt::format("{}[{}]: {}", severity, diagnostic.id, diagnostic.message);
  if (!diagnostic.help.empty()) out += "\n    help: " + diagnostic.help;
  return out;
}

std::string to_text(const Diagnostics& diagnostics, std::string_view severity) {
  std::string out;
  for (const auto& diagnostic : diagnostics) out += to_text(diagnostic, severity) + "\n";
  return out;
}

std::string source_excerpt(std::string_view text, int line, int column) {
  std::size_t begin = 0;
  for (int i = 1; i < line; ++i) {
    begin = text.find('\n', begin);
    if (begin == std::string_view::npos) return "";
    ++begin;
  }
  if (line < 1 || begin >= text.size()) return "";
  auto row = text.substr(begin, text.find('\n', begin) - begin);
  if (row.size() > 160) row = row.substr(0, 160);
  const auto caret = static_cast<std::size_t>(column > 0 ? column - 1 : 0);
  return fmt::format("    {}\n    {}^\n", row, std::string(std::min(caret, row.size()), ' '));
}

}  // namespace automodel
