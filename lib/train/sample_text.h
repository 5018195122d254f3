// How a sample of generated text is shown.
#pragma once

#include <string>
#include <string_view>

namespace automodel::train {

/// The text up to the end of its last whole sentence (a period, exclamation or question mark, with closing quotes and
/// brackets, before a blank or the end). A period after a short title ("Mr.") ends no sentence. If it has none: all of
/// it or, if it was `cut` at a number of tokens, its whole words and " ...".
std::string up_to_sentence(std::string_view text, bool cut);

}  // namespace automodel::train
