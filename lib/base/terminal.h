// Text for people at a terminal: lines that fit its width, diagnostics in colour.
#pragma once

#include <string>
#include <string_view>

namespace automodel {

/// Columns of the terminal behind a file descriptor; 0 if there is none, or one without a size: mpirun gives its ranks
/// such terminals, and what they write may go to a file.
int terminal_columns(int file);
/// Whether the user's terminal knows control sequences (TERM), and whether this descriptor is such a terminal.
bool knows_sequences();
bool takes_sequences(int file);

/// Lines longer than `columns` are broken at blanks and go on below their last column of text: what follows two or more
/// blanks in the left half of the line, or else the indent (and four characters, if it is small). Words stay whole, so
/// that paths and commands can be copied, and so do the cells of a table and a number with its unit. 0 columns change
/// nothing.
std::string folded(std::string_view text, int columns);

/// "error[ID]", "warning[ID]" and "help:" at the start of what a diagnostic's line says, in red, yellow and cyan.
std::string coloured(std::string_view text);

/// What to write to `file`: `text` itself or, at a terminal, folded and coloured (not if NO_COLOR is set,
/// no-color.org).
std::string for_terminal(std::string_view text, int file);

}  // namespace automodel
