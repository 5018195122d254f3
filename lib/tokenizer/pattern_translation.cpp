// Translates Oniguruma's syntax (its Ruby dialect) to PCRE2's.
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tokenizer/pattern.h"
#include "tokenizer/unicode_tables.h"

namespace automodel::tokenizer {
namespace {

constexpr std::string_view kSpaces =
    R"(\t-\r\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kHexadecimal = "0-9a-fA-F";

/// A general category or a script, as the contents of a bracket expression; empty for other names, such as Alphabetic,
/// for which PCRE2 has the characters of an older Unicode.
std::string category_set(std::string_view name) {
  for (const auto& row : newer_ranges())
    if (row.category == name) return fmt::format("\\p{{{}}}{}", name, row.ranges);
  if (name.size() <= 2) return fmt::format("\\p{{{}}}", name);
  // PCRE2 reads the name of a script with its extensions: \p{Han} would have the ideographic full stop.
  std::string problem;
  const std::string script = fmt::format("\\p{{sc:{}}}", name);
  if (!Pattern::make(script, problem, false)) return "";
  return name == "Han" ? script + R"(\x{2b739}\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})" : script;
}

/// What \s, \h, \d and \w match, as the contents of a bracket expression; empty for other letters. Word characters are
/// alphabetic characters (including the circled letters, which are symbols), marks, decimal digits and connectors;
/// outside brackets, where Oniguruma asks its table of Latin 1, also superscript digits and fractions.
std::string set_of(char letter, bool in_bracket) {
  switch (letter) {
    case 's': return std::string(kSpaces);
    case 'h': return std::string(kHexadecimal);
    case 'd': return category_set("Nd");
    case 'w':
      return category_set("L") + category_set("M") + category_set("Nd") + category_set("Nl") +
             R"(\p{Pc}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})" +
             (in_bracket ? "" : R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})");
    default: return "";
  }
}

/// What [:name:] matches, as the contents of a bracket expression; empty for other names. Oniguruma's punctuation has
/// all symbols, PCRE2's only those of ASCII.
std::string set_of_name(std::string_view name) {
  if (name == "space") return set_of('s', true);
  if (name == "xdigit") return set_of('h', true);
  if (name == "digit") return set_of('d', true);
  if (name == "word") return set_of('w', true);
  if (name == "punct") return category_set("P") + category_set("S");
  return "";
}

class Translation {
  static constexpr int kDeepest = 20;

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
      case '[':
        atom_ = out_.size();
        ++at_;
        out_ += bracket();
        return;
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
    if ((c == 'b' || c == 'B') && !in_bracket) return boundary(c == 'B');
    const std::string set = set_of(static_cast<char>(c | 32), in_bracket);
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

  /// Between a word character and another: PCRE2's words have no marks and no circled letters.
  void boundary(bool negated) {
    at_ += 2;
    const std::string word = "[" + set_of('w', false) + "]";
    out_ += fmt::format("(?:(?<={0})(?{1}{0})|(?<!{0})(?{2}{0}))", word, negated ? '=' : '!', negated ? '!' : '=');
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
    const std::string set = category_set(name);
    if (set.empty()) return fail(fmt::format("\\p{{{}}} is not supported", name));
    add(set, negated, in_bracket);
  }

  /// A bracket expression from behind its '['. PCRE2 has no brackets within brackets and no &&, which become
  /// alternatives and lookaheads: [a&&[^b]] is (?:(?=[a])[^b]).
  std::string bracket() {
    if (++depth_ > kDeepest) {
      fail("brackets lie too deep in each other");
      return "";
    }
    const bool negated = in_.substr(at_).starts_with('^');
    at_ += negated ? 1 : 0;
    std::string around = std::exchange(out_, {});
    std::vector<std::string> complements = std::exchange(complements_, {}), inner, all;
    const auto end_union = [&] {
      if (!out_.empty() || !complements_.empty()) inner.push_back(plain_set(false));
      all.push_back(inner.empty() ? "(?!)" : fmt::format("(?:{})", fmt::join(inner, "|")));
      out_.clear();
      complements_.clear();
      inner.clear();
    };
    if (in_.substr(at_).starts_with(']')) {
      out_ += '\\';
      copy(1);
    }
    bool closed = false;
    while (at_ < in_.size() && problem_.empty() && !closed) {
      const std::string_view rest = in_.substr(at_);
      if (rest[0] == '\\') {
        escape(true);
      } else if (rest.starts_with("[:")) {
        named_set();
      } else if (rest[0] == '[') {
        ++at_;
        inner.push_back(bracket());
      } else if (rest.starts_with("&&")) {
        at_ += 2;
        end_union();
      } else if (rest[0] == ']') {
        ++at_;
        closed = true;
      } else {
        copy(1);
      }
    }
    if (!closed && problem_.empty()) fail("a bracket is not closed");
    std::string own;
    if (all.empty() && inner.empty()) {
      own = plain_set(negated);
    } else {
      end_union();
      std::string both;
      for (std::size_t i = 0; i + 1 < all.size(); ++i) both += "(?=" + all[i] + ")";
      both += all.back();
      own = negated ? "(?:(?!" + both + ")(?s:.))" : "(?:" + both + ")";
    }
    out_ = std::move(around);
    complements_ = std::move(complements);
    --depth_;
    return own;
  }

  /// [:name:] or [:^name:]
  void named_set() {
    const std::size_t close = in_.find(":]", at_);
    if (close == std::string_view::npos) return fail("[: without :]");
    std::string_view name = in_.substr(at_ + 2, close - at_ - 2);
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    const std::string set = set_of_name(name);
    if (set.empty()) return fail(fmt::format("[:{}:] is not supported", name));
    at_ = close + 2;
    add(set, negated, true);
  }

  /// A set of the items in out_ and of the complements of sets. These cannot stand within PCRE2's brackets, where \S,
  /// \W and \P are those of its own Unicode: [a\S] becomes (?:[a]|[^s]) and [^a\S] becomes (?:(?![a])[s]), with s for
  /// the set that \s matches.
  std::string plain_set(bool negated) const {
    if (complements_.empty()) return fmt::format("[{}{}]", negated ? "^" : "", out_);
    std::string own = "(?:";
    if (!out_.empty()) own += negated ? "(?![" + out_ + "])" : "[" + out_ + "]|";
    for (std::size_t i = 0; i + 1 < complements_.size(); ++i)
      own += negated ? "(?=[" + complements_[i] + "])" : "[^" + complements_[i] + "]|";
    return own + (negated ? "[" : "[^") + complements_.back() + "])";
  }

  void fail(std::string reason) { problem_ = std::move(reason); }

  std::string_view in_;
  std::string& problem_;
  std::string out_;
  std::size_t at_ = 0;
  std::size_t atom_ = 0;                  ///< offset in out_ of the atom that a quantifier would apply to
  std::vector<std::size_t> groups_;       ///< offsets in out_ of the open groups
  int depth_ = 0;                         ///< of brackets
  std::vector<std::string> complements_;  ///< sets whose complements are in the bracket expression
};

}  // namespace

std::string to_pcre2(std::string_view pattern, std::string& problem) {
  problem.clear();
  return Translation(pattern, problem).run();
}

}  // namespace automodel::tokenizer
