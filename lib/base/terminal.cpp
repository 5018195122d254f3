#include "base/terminal.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>

#include <sys/ioctl.h>
#include <unistd.h>

#include "base/text_table.h"

namespace automodel {
namespace {

constexpr std::string_view kReset = "\033[0m";
struct Mark {
  std::string_view start;
  char end;  ///< the mark goes up to and including this character
  std::string_view colour;
};
constexpr std::array kMarks = {Mark{"error[", ']', "\033[1;31m"}, Mark{"warning[", ']', "\033[1;33m"},
                               Mark{"help:", ':', "\033[36m"}};

/// Where continuation lines begin.
std::size_t hang_of(std::string_view line, std::size_t columns) {
  const auto indent = std::min(line.find_first_not_of(' '), line.size());
  std::size_t hang = indent + (indent < 8 ? 4 : 0);
  for (auto gap = line.find("  ", indent); gap < columns / 2; gap = line.find("  ", gap)) {
    gap = std::min(line.find_first_not_of(' ', gap), line.size());
    if (gap <= columns / 2) hang = gap;
  }
  return hang;
}

/// Whether a line is a row of a table, whose cells may have blanks: it has three gaps or more between them.
bool is_row(std::string_view line) {
  int gaps = 0;
  for (std::size_t at = line.find_first_not_of(' '); at < line.size(); ++gaps) {
    at = line.find("  ", at);
    at = line.find_first_not_of(' ', std::min(at, line.size()));
  }
  return gaps > 3;
}

/// Whether the blank at `at` stands between a number and a word as short as a unit: "5.00 ms", "3.35 B".
bool is_before_unit(std::string_view line, std::size_t at) {
  const auto is = [&](std::size_t i, auto&& kind) {
    return i < line.size() && kind(static_cast<unsigned char>(line[i])) != 0;
  };
  std::size_t letters = 0;
  while (is(at + 1 + letters, [](int c) { return std::isalpha(c); })) ++letters;
  return at > 0 && letters > 0 && letters <= 3 && is(at - 1, [](int c) { return std::isdigit(c); });
}

void fold_line(std::string_view line, std::size_t columns, std::string& out) {
  const auto hang = hang_of(line, columns);
  const bool row = is_row(line);
  const auto breaks = [&](std::size_t i) {
    return line[i] == ' ' && (row ? line.substr(i).starts_with("  ") : !is_before_unit(line, i));
  };
  std::size_t before = 0;  // characters already in this output line
  while (before + display_width(std::string(line)) > columns) {
    // The last blank within the width or, if a word is wider than that, the first one after it.
    std::size_t cut = std::string_view::npos, width = before;
    const auto first = before == 0 ? std::max(hang, line.find_first_not_of(' ')) : 0;
    for (std::size_t i = 0; i < line.size(); ++i) {
      if (i > first && breaks(i) && line[i - 1] != ' ' && (width <= columns || cut == std::string_view::npos)) cut = i;
      if (width > columns && cut != std::string_view::npos) break;
      if ((static_cast<unsigned char>(line[i]) & 0xC0U) != 0x80U) ++width;
    }
    if (cut == std::string_view::npos) break;
    out += line.substr(0, cut);
    line.remove_prefix(cut);
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    if (line.empty()) return;
    out += "\n" + std::string(hang, ' ');
    before = hang;
  }
  out += line;
}

}  // namespace

int terminal_columns(int file) {
  winsize size{};
  return isatty(file) == 1 && ioctl(file, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

bool knows_sequences() {
  const char* kind = std::getenv("TERM");
  return kind != nullptr && *kind != '\0' && std::string_view(kind) != "dumb";
}
bool takes_sequences(int file) {
  return isatty(file) == 1 && knows_sequences();
}

std::string folded(std::string_view text, int columns) {
  if (columns <= 0) return std::string(text);
  std::string out;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    fold_line(text.substr(0, end), static_cast<std::size_t>(columns), out);
    if (end < text.size()) out += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::string coloured(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    auto line = text.substr(0, std::min(text.find('\n'), text.size() - 1) + 1);
    text.remove_prefix(line.size());
    // At the start of the line or after the place, "FILE:1:2: "; what is said may quote another diagnostic.
    std::size_t at = std::min(line.find_first_not_of(' '), line.size());
    for (; at < line.size(); at = std::min(line.find(": ", at), line.size() - 2) + 2) {
      const auto rest = line.substr(at);
      const auto mark = std::ranges::find_if(kMarks, [&](const Mark& each) { return rest.starts_with(each.start); });
      if (mark == kMarks.end()) continue;
      const auto length = std::min(rest.find(mark->end), rest.size() - 1) + 1;
      out.append(line.substr(0, at)).append(mark->colour).append(rest.substr(0, length)).append(kReset);
      line.remove_prefix(at + length);
      break;
    }
    out += line;
  }
  return out;
}

std::string for_terminal(std::string_view text, int file) {
  const int columns = terminal_columns(file);
  auto out = folded(text, columns);
  const char* none = std::getenv("NO_COLOR");
  return columns > 0 && takes_sequences(file) && (none == nullptr || *none == '\0') ? coloured(out) : out;
}

}  // namespace automodel
