#include "base/diagnostic.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/utf8.h"

namespace automodel {

ExitCode exit_code(const Diagnostics& problems) {
  const auto common = problems.empty() ? ExitCode::kBadInput : problems.front().exit();
  const bool agree = std::ranges::all_of(problems, [&](const Diagnostic& each) { return each.exit() == common; });
  return agree ? common : ExitCode::kBadInput;
}

std::string to_text(const Diagnostic& diagnostic, std::string_view severity) {
  std::string out = printable(diagnostic.where.file);
  if (diagnostic.where.line > 0) out += fmt::format(":{}:{}", diagnostic.where.line, diagnostic.where.column);
  if (!out.empty()) out += ": ";
  out += fmt::format("{}[{}]: {}", severity, diagnostic.id.name(), printable(diagnostic.message));
  const bool report = diagnostic.id == ProblemId("hang");
  if (!diagnostic.help.empty()) out += "\n    help: " + (report ? diagnostic.help : printable(diagnostic.help));
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
  const auto width = [](std::string_view shown) {
    return std::ranges::count_if(shown, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
  };
  const auto before = printable(row.substr(0, caret));
  return fmt::format("    {}\n    {}^\n", printable(row.substr(0, kShown)),
                     std::string(static_cast<std::size_t>(width(before)), ' '));
}

}  // namespace automodel
