// Translates Oniguruma's syntax (its Ruby dialect) to PCRE2's.
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tokenizer/pattern.h"
#include "tokenizer/unicode_tables.h"

namespace automodel::tokenizer {
namespace {

constexpr std::string_view kSpaces =
    R"(\t-\r\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kHexadecimal = "0-9a-fA-F";

/// A general category, as the contents of a bracket expression.
std::string category_set(std::string_view name) {
  for (const auto& row : newer_ranges())
    if (row.category == name) return fmt::format("\\p{{{}}}{}", name, row.ranges);
  return fmt::format("\\p{{{}}}", name);
}

/// What \s, \h, \d and \w match, as the contents of a bracket expression; empty for other letters. Word characters are
/// alphabetic characters (including the circled letters, which are symbols), marks, numbers and connectors.
std::string set_of(char letter) {
  switch (letter) {
    case 's': return std::string(kSpaces);
    case 'h': return std::string(kHexadecimal);
    case 'd': return category_set("Nd");
    case 'w':
      return category_set("L") + category_set("M") + category_set("N") +
             R"(\p{Pc}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";
    default: return "";
  }
}

class Translation {
 public:
  Translation(std::string_view in, std::string& problem) : in_(in), problem_(problem) {}

  std::string run() {
    while (at_ < in_.size() && problem_.empty()) item();
    return problem_.empty() ? std::move(out_) : std::string();
  }

 private:
  /// Translates one atom, or a symbol between atoms.
  void item() {
    const char c = in_[at_];
    switch (c) {
      case '(': groups_.push_back(out_.size()); return copy(1);
      case ')':
        if (!groups_.empty()) {
          atom_ = groups_.back();
          groups_.pop_back();
        }
        return copy(1);
      case '[': atom_ = out_.size(); return bracket();
      case '{': return interval();
      case '\\': atom_ = out_.size(); return escape(false);
      case '*':
      case '+':
      case '?':
      case '|': return copy(1);
      default: atom_ = out_.size(); return copy(1 + continuation());
    }
  }

  /// Number of continuation bytes of the code point at at_.
  std::size_t continuation() const {
    std::size_t count = 0;
    while (at_ + 1 + count < in_.size() && (static_cast<unsigned char>(in_[at_ + 1 + count]) & 0xC0) == 0x80) ++count;
    return count;
  }
  void copy(std::size_t count) {
    out_.append(in_.substr(at_, count));
    at_ += count;
  }

  /// {n,m}: a following + repeats it (rather than making it possessive), and {,m} starts at 0.
  void interval() {
    const std::size_t close = in_.find('}', at_);
    const std::string_view inside =
        close == std::string_view::npos ? std::string_view() : in_.substr(at_ + 1, close - at_ - 1);
    const bool counts =
        !inside.empty() && inside.find_first_not_of("0123456789,") == std::string_view::npos && inside != ",";
    if (!counts) {
      atom_ = out_.size();
      return copy(1);
    }
    at_ = close + 1;
    const std::string text = fmt::format("{{{}{}}}", inside.front() == ',' ? "0" : "", inside);
    const bool plus = at_ < in_.size() && in_[at_] == '+';
    const bool optional = at_ < in_.size() && in_[at_] == '?' && inside.find(',') == std::string_view::npos;
    if (plus || optional) {
      out_.insert(atom_, "(?:");
      out_ += text + ")";
      copy(1);
    } else {
      out_ += text;
    }
  }

  /// Translates a backslash escape.
  void escape(bool in_bracket) {
    if (at_ + 1 >= in_.size()) return fail("the pattern ends in a backslash");
    const char c = in_[at_ + 1];
    if (c == 'p' || c == 'P') return category(in_bracket);
    const std::string set = set_of(static_cast<char>(c | 32));
    if (set.empty()) return copy(2);
    at_ += 2;
    add(set, c < 'a', in_bracket);
  }

  /// The characters of a set, or all others.
  void add(const std::string& set, bool negated, bool in_bracket) {
    if (!in_bracket)
      out_ += fmt::format("[{}{}]", negated ? "^" : "", set);
    else if (negated)
      complements_.push_back(set);
    else
      out_ += set;
  }

  void category(bool in_bracket) {
    const std::size_t close = in_.find('}', at_);
    if (at_ + 2 >= in_.size() || in_[at_ + 2] != '{' || close == std::string_view::npos)
      return fail("\\p needs a name in braces");
    std::string_view name = in_.substr(at_ + 3, close - at_ - 3);
    bool negated = in_[at_ + 1] == 'P';
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    at_ = close + 1;
    add(category_set(name), negated, in_bracket);
  }

  /// Complements of sets cannot stand within PCRE2's brackets, where \S, \W and \P are those of its own Unicode:
  /// [a\S] becomes (?:[a]|[^s]) and [^a\S] becomes (?:(?![a])[s]), with s for the set that \s matches.
  void bracket() {
    const std::size_t begin = out_.size();
    complements_.clear();
    const bool negated = in_.substr(at_).starts_with("[^");
    copy(negated ? 2 : 1);
    items();
    if (complements_.empty() || !problem_.empty()) return;
    const std::string inside = out_.substr(begin + (negated ? 2 : 1), out_.size() - begin - (negated ? 3 : 2));
    out_.resize(begin);
    out_ += "(?:";
    if (!inside.empty()) out_ += negated ? "(?![" + inside + "])" : "[" + inside + "]|";
    for (std::size_t i = 0; i + 1 < complements_.size(); ++i)
      out_ += negated ? "(?=[" + complements_[i] + "])" : "[^" + complements_[i] + "]|";
    out_ += (negated ? "[" : "[^") + complements_.back() + "])";
  }

  /// The rest of a bracket expression.
  void items() {
    if (at_ < in_.size() && in_[at_] == ']') {
      out_ += '\\';
      copy(1);
    }
    while (at_ < in_.size() && problem_.empty()) {
      const char c = in_[at_];
      if (c == '\\') {
        escape(true);
      } else if (in_.substr(at_).starts_with("[:")) {
        const std::size_t close = in_.find(":]", at_);
        if (close == std::string_view::npos) return fail("[: without :]");
        copy(close + 2 - at_);
      } else if (c == '[') {
        return fail("brackets within brackets are not supported");
      } else if (in_.substr(at_).starts_with("&&")) {
        return fail("&& within brackets is not supported");
      } else {
        copy(1);
        if (c == ']') return;
      }
    }
    if (problem_.empty()) fail("a bracket is not closed");
  }

  void fail(std::string reason) { problem_ = std::move(reason); }

  std::string_view in_;
  std::string& problem_;
  std::string out_;
  std::size_t at_ = 0;
  std::size_t atom_ = 0;                  ///< offset in out_ of the atom that a quantifier would apply to
  std::vector<std::size_t> groups_;       ///< offsets in out_ of the open groups
  std::vector<std::string> complements_;  ///< sets whose complements are in the bracket expression
};

}  // namespace

std::string to_pcre2(std::string_view pattern, std::string& problem) {
  problem.clear();
  return Translation(pattern, problem).run();
}

}  // namespace automodel::tokenizer
