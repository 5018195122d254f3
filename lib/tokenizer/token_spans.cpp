#include "tokenizer/token_spans.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "tokenizer/unicode.h"

namespace automodel::tokenizer {
namespace {

bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

/// How many bytes of `text` are `surface`, whose spaces may be SentencePiece's marks; nothing if it begins otherwise.
std::optional<std::size_t> match(std::string_view text, std::string_view surface) {
  std::size_t at = 0;
  for (const char c : surface) {
    const std::string_view rest = text.substr(at);
    if (rest.starts_with(c))
      ++at;
    else if (c == ' ' && rest.starts_with(kSpaceMark))
      at += kSpaceMark.size();
    else
      return std::nullopt;
  }
  return at;
}

/// The bytes that `surface` covers, at `at` or behind the white space there, which a tokenizer may drop; moves `at`
/// behind them. What the text does not have there, an unknown character or a changed one, would shift all later spans.
TextSpan place(std::string_view text, std::size_t& at, std::string_view surface) {
  for (std::size_t from = at;;) {
    const std::string_view rest = text.substr(from);
    if (const auto length = match(rest, surface)) {
      at = from + *length;
      return {from, at};
    }
    if (rest.empty()) break;
    const CodePoint next = code_point_at(text, from);
    // A space that the tokenizer put before the text stands on the first character.
    if (from == at && surface.starts_with(' '))
      if (const auto length = match(rest, surface.substr(1))) {
        at += *length;
        return {from, std::max(at, from + next.bytes)};
      }
    if (!is_space(next.value)) break;
    from += next.bytes;
  }
  throw Error(Diagnostic{"bad-tokenizer"}
                  .says("the place of the token '{}' in a text, which {{% generation %}} needs, cannot be told: byte "
                        "{} of the text is something else",
                        surface, at)
                  .hint("the tokenizer does not know a character or changes the text, and the chat template marks with "
                        "{% generation %} what is trained on; take one without"));
}

/// A normalized text, and the original bytes that each of its bytes comes from.
struct Normalized {
  std::string text;
  std::vector<TextSpan> from;

  void add(std::string_view part, TextSpan origin, bool same) {
    for (std::size_t i = 0; i < part.size(); ++i)
      from.push_back(same ? TextSpan{origin.begin + i, origin.begin + i + 1} : origin);
    text += part;
  }
};

/// Normalizes in chunks that normal forms cannot reach across (before every ASCII character); a chunk that
/// changes is split as finely as possible such that the normalized parts still concatenate to the normalized chunk.
Normalized normalize(const Tokenizer& tokenizer, std::string_view text) {
  Normalized out;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at + 1;
    while (end < text.size() && static_cast<unsigned char>(text[end]) >= 0x80) ++end;
    const std::string_view chunk = text.substr(at, end - at);
    const std::string whole = tokenizer.normalized(chunk);
    if (whole == chunk) {
      out.add(chunk, {at, end}, true);
      at = end;
      continue;
    }
    std::size_t part = 1;
    for (; part < chunk.size(); ++part) {
      if (continues_character(chunk[part])) continue;
      if (tokenizer.normalized(chunk.substr(0, part)) + tokenizer.normalized(chunk.substr(part)) == whole) break;
    }
    const std::string own = tokenizer.normalized(chunk.substr(0, part));
    out.add(own, {at, at + part}, own == chunk.substr(0, part));
    check_normalized(out.text.size(), most_normalized(text.size()));
    at += part;
  }
  return out;
}

std::vector<TextSpan> spans_of(const Tokenizer& tokenizer, std::string_view text, std::span<const Id> ids) {
  std::vector<TextSpan> out;
  out.reserve(ids.size());
  std::size_t at = 0;
  for (const Id id : ids) {
    TextSpan span = place(text, at, tokenizer.surface(id));
    if (!tokenizer.keeps_spaces()) {
      while (span.begin < span.end && text[span.begin] == ' ') ++span.begin;
      while (span.end > span.begin && text[span.end - 1] == ' ') --span.end;
    }
    if (span.begin < span.end) {
      while (span.begin > 0 && continues_character(text[span.begin])) --span.begin;
      while (span.end < text.size() && continues_character(text[span.end])) ++span.end;
    }
    out.push_back(span);
  }
  return out;
}

}  // namespace

std::vector<TextSpan> token_spans(const Tokenizer& tokenizer, std::string_view text, std::span<const Id> ids) {
  if (tokenizer.normalized(text) == text) return spans_of(tokenizer, text, ids);
  const Normalized changed = normalize(tokenizer, text);
  auto out = spans_of(tokenizer, changed.text, ids);
  for (auto& span : out) {
    const std::size_t begin = span.begin, end = span.end;
    span.begin = begin < changed.from.size() ? changed.from[begin].begin : text.size();
    span.end = end > begin ? changed.from[end - 1].end : span.begin;
  }
  return out;
}

}  // namespace automodel::tokenizer
