#include "tokenizer/token_spans.h"

#include <algorithm>

namespace automodel::tokenizer {
namespace {

/// How far past the end of the last token the next one is searched for.
constexpr std::size_t kReach = 64;

bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

/// The bytes that `surface` covers, at `at` or shortly after.
TextSpan place(std::string_view text, std::size_t at, std::string_view surface) {
  const std::string_view rest = text.substr(at);
  if (rest.starts_with(surface)) return {at, at + surface.size()};
  // A space that the tokenizer prepended to the text.
  if (surface.starts_with(' ') && rest.starts_with(surface.substr(1))) return {at, at + surface.size() - 1};
  const std::size_t found = rest.substr(0, kReach + surface.size()).find(surface);
  if (found == std::string_view::npos || surface.empty()) return {at, at};
  return {at + found, at + found + surface.size()};
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
    at = span.end;
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
