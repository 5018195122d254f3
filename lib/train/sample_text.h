// How a sample of generated text is shown.
#pragma once

#include <string_view>

namespace automodel::train {

/// The text up to the end of its last whole sentence (a period, exclamation or question mark, with closing quotes and
/// brackets, before a blank or the end); all of it if it has none. A period after a short title ("Mr.") ends no
/// sentence.
std::string_view up_to_sentence(std::string_view text);

}  // namespace automodel::train
