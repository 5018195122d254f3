// Which part of a text each of its tokens covers.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/template_tree.h"
#include "tokenizer/tokenizer.h"

namespace automodel::tokenizer {

/// One byte span per id that `text` was encoded to, without the special tokens around it. As with Hugging Face's
/// offsets, a token with part of a character's bytes covers the whole character, and spaces at a token's ends are
/// excluded if the tokenizer says so. Spans are found by aligning the tokens' surface forms with the text. Throws Error
/// (`bad-tokenizer`) where that fails: an unknown token, or a change of the text other than a byte-level tokenizer's
/// normal form, of spaces or at the text's beginning.
std::vector<TextSpan> token_spans(const Tokenizer& tokenizer, std::string_view text, std::span<const Id> ids);

}  // namespace automodel::tokenizer
