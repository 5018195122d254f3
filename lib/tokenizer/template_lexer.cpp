#include "tokenizer/template_lexer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include <fmt/format.h>

#include "tokenizer/template_value.h"
#include "tokenizer/unicode.h"

namespace automodel::tokenizer {
namespace {

using Kind = TemplateToken::Kind;
/// Longest first.
constexpr std::array<std::string_view, 29> kSigns = {"**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/",
                                                     "%",  "~",  "(",  ")",  "[",  "]",  "{", "}", ",", ":",
                                                     ".",  "|",  "=",  "<",  ">",  ";",  "!", "&", "^"};

bool is_name_start(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// Normalizes line ends to
///  and drops one at the end, as Jinja does.
std::string prepared(std::string_view source) {
  std::string out;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(prepared(source)) {}

  std::vector<TemplateToken> run() {
    while (at_ < text_.size()) {
      const std::size_t tag = next_tag();
      take_text(tag);
      if (tag == std::string::npos) break;
      take_tag();
    }
    add(Kind::kEnd, "");
    return std::move(out_);
  }

 private:
  std::size_t next_tag() const {
    for (std::size_t at = text_.find('{', at_); at != std::string::npos; at = text_.find('{', at + 1))
      if (at + 1 < text_.size() && std::string_view("{%#").find(text_[at + 1]) != std::string_view::npos) return at;
    return std::string::npos;
  }

  /// Emits the text before a tag, minus the white space that the tag strips.
  void take_text(std::size_t tag) {
    std::string text = text_.substr(at_, tag == std::string::npos ? tag : tag - at_);
    const int line = line_;
    line_ += static_cast<int>(std::count(text.begin(), text.end(), '\n'));
    if (tag != std::string::npos) {
      const char sign = tag + 2 < text_.size() ? text_[tag + 2] : ' ';
      if (sign == '-') {
        while (!text.empty()) {
          const std::size_t last = last_code_point(text);
          if (!is_python_space(code_point_at(text, last).value)) break;
          text.erase(last);
        }
      } else if (sign != '+' && text_[tag + 1] != '{') {
        // Strip blanks before a block tag that starts its line.
        const std::size_t line_end = text.rfind('\n');
        const std::size_t begin = line_end == std::string::npos ? 0 : line_end + 1;
        const bool line_starts = line_end != std::string::npos || at_line_start_;
        std::size_t end = begin;
        while (end < text.size() && is_python_space(code_point_at(text, end).value))
          end += code_point_at(text, end).bytes;
        if (line_starts && end == text.size()) text.erase(begin);
      }
    }
    if (!text.empty()) out_.push_back({Kind::kText, std::move(text), line});
    at_ = tag == std::string::npos ? text_.size() : tag;
  }

  void take_tag() {
    const char kind = text_[at_ + 1];
    at_ += 2;
    if (at_ < text_.size() && (text_[at_] == '-' || text_[at_] == '+')) ++at_;
    if (kind == '#') {
      const std::size_t end = text_.find("#}", at_);
      if (end == std::string::npos) throw TemplateError("a comment does not end", line_);
      line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                           text_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
      const char sign = text_[end - 1];
      at_ = end + 2;
      return after_tag(true, end >= 1 ? sign : ' ');
    }
    const bool block = kind == '%';
    add(block ? Kind::kBlockBegin : Kind::kOutputBegin, "");
    words(block);
  }

  void words(bool block) {
    const std::string_view close = block ? "%}" : "}}";
    int depth = 0;  // open brackets: a }} may first close a dictionary
    for (;;) {
      skip_spaces();
      if (at_ >= text_.size()) throw TemplateError("a tag does not end", line_);
      const std::string_view rest = std::string_view(text_).substr(at_);
      const bool sign = rest[0] == '-' || rest[0] == '+';
      if (depth == 0 && rest.substr(sign ? 1 : 0).starts_with(close)) {
        add(block ? Kind::kBlockEnd : Kind::kOutputEnd, "");
        at_ += close.size() + (sign ? 1 : 0);
        return after_tag(block, sign ? rest[0] : ' ');
      }
      if (std::string_view("([{").find(rest[0]) != std::string_view::npos) ++depth;
      if (std::string_view(")]}").find(rest[0]) != std::string_view::npos) --depth;
      if (depth < 0) throw TemplateError(fmt::format("'{}' closes nothing", rest[0]), line_);
      word(rest);
    }
  }

  void word(std::string_view rest) {
    if (rest[0] == '"' || rest[0] == '\'') return string();
    std::size_t length = 0;
    if (is_digit(rest[0])) {
      while (length < rest.size() && (is_digit(rest[length]) || rest[length] == '_')) ++length;
      Kind kind = Kind::kInteger;
      if (length + 1 < rest.size() && rest[length] == '.' && is_digit(rest[length + 1])) {
        kind = Kind::kFloat;
        for (++length; length < rest.size() && is_digit(rest[length]);) ++length;
      }
      add(kind, std::string(rest.substr(0, length)));
    } else if (is_name_start(rest[0])) {
      while (length < rest.size() && (is_name_start(rest[length]) || is_digit(rest[length]))) ++length;
      add(Kind::kName, std::string(rest.substr(0, length)));
    } else {
      const auto* sign = std::find_if(kSigns.begin(), kSigns.end(), [&](auto s) { return rest.starts_with(s); });
      if (sign == kSigns.end()) throw TemplateError(fmt::format("'{}' is not understood", rest[0]), line_);
      length = sign->size();
      add(Kind::kSign, std::string(*sign));
    }
    at_ += length;
  }

  void string() {
    const char quote = text_[at_++];
    const int line = line_;
    std::string out;
    for (;; ++at_) {
      if (at_ >= text_.size()) throw TemplateError("a string does not end", line);
      const char c = text_[at_];
      if (c == quote) break;
      if (c == '\n') ++line_;
      if (c == '\\' && at_ + 1 < text_.size())
        escape(out);
      else
        out += c;
    }
    ++at_;
    out_.push_back({Kind::kString, std::move(out), line});
  }

  /// Python's escapes. Leaves at_ on the last character of the escape.
  void escape(std::string& out) {
    constexpr std::string_view kFrom = "ntrbfva0\\'\"\n", kTo("\n\t\r\b\f\v\a\0\\'\"", 11);
    const char c = text_[++at_];
    if (c == '\n') return;  // line continuation
    if (const std::size_t known = kFrom.find(c); known != std::string_view::npos) {
      out += kTo[known];
      return;
    }
    const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    char32_t value = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      const char d = at_ + 1 + i < text_.size() ? text_[at_ + 1 + i] : ' ';
      if (std::isxdigit(static_cast<unsigned char>(d)) == 0) throw TemplateError("a broken escape in a string", line_);
      value = value * 16 + static_cast<char32_t>(is_digit(d) ? d - '0' : (d | 32) - 'a' + 10);
    }
    if (digits == 0) {
      out += '\\';
      out += c;
      return;
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) throw TemplateError("no such character", line_);
    append_utf8(value, out);
    at_ += digits;
  }

  /// Skips white space after a tag as its - or + sign and trim_blocks demand.
  void after_tag(bool block, char sign) {
    const std::size_t begin = at_;
    if (sign == '-')
      skip_spaces();
    else if (block && sign != '+' && at_ < text_.size() && text_[at_] == '\n')
      skip_line();
    at_line_start_ = at_ > begin && text_[at_ - 1] == '\n';
  }
  void skip_line() {
    ++line_;
    ++at_;
  }
  void skip_spaces() {
    while (at_ < text_.size()) {
      const CodePoint point = code_point_at(text_, at_);
      if (!is_python_space(point.value)) break;
      if (point.value == '\n') ++line_;
      at_ += point.bytes;
    }
  }
  void add(Kind kind, std::string text) { out_.push_back({kind, std::move(text), line_}); }

  std::string text_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;
  std::vector<TemplateToken> out_;
};

}  // namespace

std::vector<TemplateToken> lex_template(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace automodel::tokenizer
