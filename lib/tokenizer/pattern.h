// Regular expressions of tokenizer.json, on PCRE2.
//
// Hugging Face's `tokenizers` runs them on Oniguruma. Differences are translated before compiling: `{1,3}+` is a
// repeated interval (possessive in PCRE2), `\s` excludes U+180E, `\h` is a hexadecimal digit, `^` and `$` match at
// every line, and categories include the characters added since PCRE2's version of Unicode.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace automodel::tokenizer {

/// The word characters of Unicode Technical Standard 18, annex C, as the contents of brackets: Oniguruma's and joiners.
/// The parts of `tokenizers` that do not run on Oniguruma read \w so.
inline constexpr std::string_view kWordSet = R"(\w\x{200C}\x{200D})";

/// Translates an Oniguruma pattern to PCRE2. Empty after setting `problem` if that is not possible.
std::string to_pcre2(std::string_view pattern, std::string& problem);

class PatternMatcher;

/// A compiled pattern. Thread-safe.
class Pattern {
 public:
  /// Null after setting `problem`. `translate` false: the pattern is already in PCRE2 syntax.
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

/// Scratch memory for matching; one per thread.
class PatternMatcher {
 public:
  PatternMatcher();
  /// The first match at or after `from`; `text` must be valid UTF-8. Throws Error if the pattern exceeds its match
  /// limits.
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
