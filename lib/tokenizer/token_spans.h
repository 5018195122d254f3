// Which part of a text each of its tokens stands for.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/template_tree.h"
#include "tokenizer/tokenizer.h"

namespace automodel::tokenizer {

/// A span of bytes for each id that `text` was encoded to, without the tokens around it. As with Hugging Face's
/// offsets, a token that holds part of a character's bytes stands for all of it, and spaces at a token's ends are left
/// out where the tokenizer says so. Found by laying what tokens stand for along the text; where the tokenizer has
/// changed the text, a token has the nearest place that fits.
std::vector<TextSpan> token_spans(const Tokenizer& tokenizer, std::string_view text, std::span<const Id> ids);

}  // namespace automodel::tokenizer
