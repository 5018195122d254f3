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
  // Of a long line, the part around the column.
  constexpr std::size_t kShown = 160, kBefore = 120;
  auto caret = std::min(static_cast<std::size_t>(column > 0 ? column - 1 : 0), row.size());
  if (caret >= kShown) {
    row.remove_prefix(caret - kBefore);
    caret = kBefore;
  }
  return fmt::format("    {}\n    {}^\n", row.substr(0, kShown), std::string(caret, ' '));
}

}  // namespace automodel
