// Regular expressions of tokenizer.json on PCRE2.
//
// Hugging Face's `tokenizers` runs them on Oniguruma. What differs is translated before compiling: `{1,3}+` repeats
// (it is possessive in PCRE2), `\s` leaves out U+180E, `\h` is a hexadecimal digit, `^` and `$` match at every line,
// and categories hold the characters that came after PCRE2's version of Unicode.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace automodel::tokenizer {

/// The PCRE2 spelling of an Oniguruma pattern. Empty after setting `problem` where there is none.
std::string to_pcre2(std::string_view pattern, std::string& problem);

class PatternMatcher;

/// A compiled pattern; may be used from several threads.
class Pattern {
 public:
  /// Null after setting `problem`. `translate` false: the pattern is PCRE2's own.
  static std::optional<Pattern> make(std::string_view pattern, std::string& problem, bool translate = true);
  Pattern(Pattern&&) noexcept = default;
  Pattern& operator=(Pattern&&) noexcept = default;

 private:
  friend class PatternMatcher;
  struct Free {
    void operator()(void* code) const;
  };
  explicit Pattern(void* code) : code_(code) {}
  std::unique_ptr<void, Free> code_;
};

struct Match {
  std::size_t begin;
  std::size_t end;
};

/// The memory of a search; one a thread.
class PatternMatcher {
 public:
  PatternMatcher();
  /// The first match at or after `from`, in valid UTF-8. Throws Error where the pattern takes too long on the text.
  std::optional<Match> find(const Pattern& pattern, std::string_view text, std::size_t from);

 private:
  struct FreeData {
    void operator()(void* data) const;
  };
  struct FreeContext {
    void operator()(void* context) const;
  };
  struct FreeStack {
    void operator()(void* stack) const;
  };
  std::unique_ptr<void, FreeData> data_;
  std::unique_ptr<void, FreeContext> context_;
  std::unique_ptr<void, FreeStack> stack_;
};

}  // namespace automodel::tokenizer
