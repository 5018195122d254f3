#include "tokenizer/text_cleaning.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tokenizer/lower_case.h"
#include "tokenizer/unicode.h"

namespace automodel::tokenizer {
namespace {

Pattern own_pattern(std::string_view text) {
  std::string problem;
  auto pattern = Pattern::make(text, problem, false);
  AUTOMODEL_CHECK(pattern.has_value(), problem);
  return std::move(*pattern);
}

/// Removes all matches; false if the text began with one.
bool remove(const Pattern& pattern, std::string& text, PatternMatcher& matcher) {
  std::string out;
  std::size_t done = 0;
  bool begins = true;
  while (done < text.size()) {
    const auto match = matcher.find(pattern, text, done);
    if (!match || match->begin == match->end) break;
    out.append(text, done, match->begin - done);
    begins = begins && match->begin > 0;
    done = match->end;
  }
  text = out.append(text, done);
  return begins;
}

class Lowercase final : public Normalizer::Step {
 public:
  bool apply(std::string& text, std::size_t, PatternMatcher&) const override {
    std::string out;
    append_lower_case(text, out);
    text = std::move(out);
    return true;
  }
};

class StripAccents final : public Normalizer::Step {
 public:
  bool apply(std::string& text, std::size_t, PatternMatcher& matcher) const override {
    return remove(marks_, text, matcher);
  }

 private:
  Pattern marks_ = own_pattern("\\p{M}+");
};

/// CJK ideographs: each counts as a word.
bool is_ideograph(char32_t point) {
  using Range = std::pair<char32_t, char32_t>;
  constexpr std::array kRanges = {Range{0x4E00, 0x9FFF},   Range{0x3400, 0x4DBF},   Range{0x20000, 0x2A6DF},
                                  Range{0x2A700, 0x2B73F}, Range{0x2B740, 0x2B81F}, Range{0x2B920, 0x2CEAF},
                                  Range{0xF900, 0xFAFF},   Range{0x2F800, 0x2FA1F}};
  return std::any_of(kRanges.begin(), kRanges.end(),
                     [&](const Range& range) { return point >= range.first && point <= range.second; });
}

class Bert final : public Normalizer::Step {
 public:
  Bert(bool clean, bool ideographs, bool accents, bool lower)
      : clean_(clean), ideographs_(ideographs), accents_(accents), lower_(lower) {}

  bool apply(std::string& text, std::size_t, PatternMatcher& matcher) const override {
    bool begins = true;
    if (clean_) {
      begins = remove(controls_, text, matcher);
      text = spaced(text);
    }
    if (ideographs_) text = apart(text);
    if (accents_) {
      std::string parts;
      append_nfd(text, parts);
      text = std::move(parts);
      begins = remove(marks_, text, matcher) && begins;
    }
    if (!lower_) return begins;
    std::string out;
    append_lower_case(text, out);
    text = std::move(out);
    return begins;
  }

 private:
  /// Turns every kind of space into ' '.
  static std::string spaced(const std::string& text) {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      const CodePoint point = code_point_at(text, at);
      if (is_space(point.value))
        out += ' ';
      else
        out.append(text, at, point.bytes);
      at += point.bytes;
    }
    return out;
  }
  static std::string apart(const std::string& text) {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      const CodePoint point = code_point_at(text, at);
      const bool alone = is_ideograph(point.value);
      if (alone) out += ' ';
      out.append(text, at, point.bytes);
      if (alone) out += ' ';
      at += point.bytes;
    }
    return out;
  }

  bool clean_, ideographs_, accents_, lower_;
  Pattern marks_ = own_pattern("\\p{Mn}+");
  Pattern controls_ = own_pattern("(?:(?![\\t\\n\\r])[\\p{Cc}\\p{Cf}\\p{Co}]|\\x{FFFD})+");
};

/// SentencePiece's compiled normalization rules: a double-array trie (Aoe 1989; in the layout of Darts-clone) over the
/// bytes to replace, followed by NUL-terminated replacements.
class CompiledTable {
 public:
  /// False if the bytes are not such a table.
  bool read(std::string_view bytes) {
    if (bytes.size() < 4) return false;
    const std::size_t size = unit_at(bytes, 0);
    if (size % 4 != 0 || size == 0 || size > bytes.size() - 4) return false;
    for (std::size_t at = 4; at < 4 + size; at += 4) units_.push_back(unit_at(bytes, at));
    texts_ = bytes.substr(4 + size);
    return true;
  }

  /// The replacement for the shortest prefix of `text` that has one.
  std::optional<std::string_view> find(std::string_view text) const {
    std::size_t node = offset(units_[0]);
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte == 0) break;
      node ^= byte;
      if (node >= units_.size() || (units_[node] & (0x80000000u | 0xFFu)) != byte) return std::nullopt;
      const std::uint32_t unit = units_[node];
      node ^= offset(unit);
      if ((unit >> 8 & 1u) == 0) continue;
      if (node >= units_.size()) return std::nullopt;
      const std::size_t begin = units_[node] & 0x7FFFFFFFu;
      if (begin > texts_.size()) return std::nullopt;
      const auto rest = std::string_view(texts_).substr(begin);
      const auto found = rest.substr(0, rest.find('\0'));
      return valid_prefix(found) == found.size() ? std::optional(found) : std::nullopt;
    }
    return std::nullopt;
  }

 private:
  static std::uint32_t unit_at(std::string_view bytes, std::size_t at) {
    std::uint32_t out = 0;
    for (std::size_t i = 4; i-- > 0;) out = out << 8 | static_cast<unsigned char>(bytes[at + i]);
    return out;
  }
  static std::size_t offset(std::uint32_t unit) { return std::size_t{unit >> 10} << ((unit & 1u << 9) >> 6); }

  std::vector<std::uint32_t> units_;
  std::string texts_;
};

class Precompiled final : public Normalizer::Step {
 public:
  explicit Precompiled(CompiledTable table) : table_(std::move(table)) {}

  bool apply(std::string& text, std::size_t most, PatternMatcher& matcher) const override {
    constexpr std::size_t kLongest = 5;  // in bytes; longer grapheme clusters are looked up code point by code point
    std::string out;
    bool begins = true;
    for (std::size_t at = 0; at < text.size();) {
      const auto cluster = matcher.find(clusters_, text, at);
      const std::size_t end = cluster && cluster->end > at ? cluster->end : at + code_point_at(text, at).bytes;
      const auto whole = std::string_view(text).substr(at, end - at);
      const auto known = whole.size() <= kLongest ? table_.find(whole) : std::nullopt;
      if (known) add(*known, most, out);
      for (std::size_t i = at; !known && i < end;) {
        const auto character = std::string_view(text).substr(i, code_point_at(text, i).bytes);
        add(table_.find(character).value_or(character), most, out);
        i += character.size();
        if (i == character.size()) begins = !out.empty();
      }
      if (at == 0 && known) begins = !known->empty();
      at = end;
    }
    text = std::move(out);
    return begins;
  }

 private:
  static void add(std::string_view part, std::size_t most, std::string& out) {
    check_normalized(out.size() + part.size(), most);
    out += part;
  }

  CompiledTable table_;
  Pattern clusters_ = own_pattern("\\X");
};

/// Decodes base64; nothing if the text is invalid.
std::optional<std::string> from_base64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<std::int8_t, 256> value{};
  value.fill(-1);
  for (std::size_t i = 0; i < kDigits.size(); ++i)
    value[static_cast<unsigned char>(kDigits[i])] = static_cast<std::int8_t>(i);
  std::string out;
  std::uint32_t bits = 0;
  int count = 0;
  while (text.ends_with('=')) text.remove_suffix(1);
  for (const char c : text) {
    const int digit = value[static_cast<unsigned char>(c)];
    if (digit < 0) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    if (count += 6; count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count & 0xFFu);
  }
  return out;
}

}  // namespace

std::unique_ptr<const Normalizer::Step> read_cleaning(const JsonPart& part) {
  const std::string type = part.type();
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  if (type == "BertNormalizer") {
    const bool lower = part.flag("lowercase", true);
    return std::make_unique<Bert>(part.flag("clean_text", true), part.flag("handle_chinese_chars", true),
                                  part.flag("strip_accents", lower), lower);
  }
  if (type != "Precompiled") return nullptr;
  CompiledTable table;
  const auto bytes = from_base64(part.text("precompiled_charsmap"));
  if (bytes && table.read(*bytes)) return std::make_unique<Precompiled>(std::move(table));
  part.at("precompiled_charsmap").fail("it is not a table compiled by SentencePiece");
  return nullptr;
}

}  // namespace automodel::tokenizer
