// Normal forms C and D.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "tokenizer/unicode.h"
#include "tokenizer/unicode_tables.h"

namespace automodel::tokenizer {
namespace {

// Hangul syllables are composed arithmetically (Unicode standard, section 3.12).
constexpr char32_t kSyllable = 0xAC00, kLead = 0x1100, kVowel = 0x1161, kTail = 0x11A7;
constexpr char32_t kVowels = 21, kTails = 28, kLeads = 19, kSyllables = kLeads * kVowels * kTails;

std::uint8_t combining_class(char32_t point) {
  if (point < 0x300) return 0;
  const auto table = combining_classes();
  const auto row = std::upper_bound(table.begin(), table.end(), point,
                                    [](char32_t p, const CombiningClass& r) { return p < r.first; });
  return row != table.begin() && point <= (row - 1)->last ? (row - 1)->value : 0;
}

void decompose(char32_t point, std::u32string& out) {
  if (point < 0xC0) {
    out += point;
    return;
  }
  if (point >= kSyllable && point < kSyllable + kSyllables) {
    const char32_t index = point - kSyllable;
    out.push_back(kLead + index / (kVowels * kTails));
    out.push_back(kVowel + index % (kVowels * kTails) / kTails);
    if (index % kTails != 0) out.push_back(kTail + index % kTails);
    return;
  }
  const auto table = decompositions();
  const auto row = std::lower_bound(table.begin(), table.end(), point,
                                    [](const Decomposition& r, char32_t p) { return r.point < p; });
  if (row == table.end() || row->point != point) {
    out += point;
    return;
  }
  decompose(row->first, out);
  if (row->second != 0) decompose(row->second, out);
}

/// 0 if the two do not compose.
char32_t compose(char32_t first, char32_t second) {
  if (first >= kLead && first < kLead + kLeads && second >= kVowel && second < kVowel + kVowels)
    return kSyllable + ((first - kLead) * kVowels + second - kVowel) * kTails;
  if (first >= kSyllable && first < kSyllable + kSyllables && (first - kSyllable) % kTails == 0 && second > kTail &&
      second < kTail + kTails)
    return first + second - kTail;
  const auto table = compositions();
  const auto row =
      std::lower_bound(table.begin(), table.end(), std::pair(first, second),
                       [](const Composition& r, const auto& pair) { return std::pair(r.first, r.second) < pair; });
  return row != table.end() && row->first == first && row->second == second ? row->composed : 0;
}

std::u32string decomposed(std::string_view text) {
  std::u32string out;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    at += point.bytes;
    decompose(point.value, out);
  }
  // Canonical ordering: stable sort of the marks between starters, by combining class.
  for (std::size_t begin = 0; begin < out.size();) {
    if (combining_class(out[begin]) == 0) {
      ++begin;
      continue;
    }
    std::size_t end = begin;
    while (end < out.size() && combining_class(out[end]) != 0) ++end;
    std::stable_sort(out.begin() + static_cast<std::ptrdiff_t>(begin), out.begin() + static_cast<std::ptrdiff_t>(end),
                     [](char32_t a, char32_t b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
  return out;
}

void recompose(std::u32string& text) {
  std::size_t starter = text.size(), end = 0;
  int last_class = 0;  // class of the preceding character if it was not composed; 0 if there is none
  for (const char32_t point : std::u32string(text)) {
    const int own = combining_class(point);
    const bool reachable = starter < end && (end == starter + 1 || (last_class != 0 && last_class < own));
    const char32_t both = reachable ? compose(text[starter], point) : 0;
    if (both != 0) {
      text[starter] = both;
      continue;
    }
    if (own == 0) starter = end;
    last_class = own;
    text[end++] = point;
  }
  text.resize(end);
}

void append(const std::u32string& points, std::string& out) {
  for (const char32_t point : points) append_utf8(point, out);
}

/// Number of leading bytes that no normal form changes or combines with what follows.
std::size_t plain_prefix(std::string_view text) {
  std::size_t at = 0;
  // Everything below U+00C0 is its own normal form; below U+0300 nothing combines with what precedes it.
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0xC3) ++at;
  if (at == text.size()) return at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at > 0 ? last_code_point(text.substr(0, at)) : 0;  // the last one may combine with a mark
}

}  // namespace

void append_nfc(std::string_view text, std::string& out) {
  const std::size_t plain = plain_prefix(text);
  out.append(text.substr(0, plain));
  if (plain == text.size()) return;
  auto points = decomposed(text.substr(plain));
  recompose(points);
  append(points, out);
}

void append_nfd(std::string_view text, std::string& out) {
  const std::size_t plain = plain_prefix(text);
  out.append(text.substr(0, plain));
  if (plain < text.size()) append(decomposed(text.substr(plain)), out);
}

}  // namespace automodel::tokenizer
