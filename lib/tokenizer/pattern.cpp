#include "tokenizer/pattern.h"

#include <array>
#include <cstdint>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include "base/error.h"

namespace automodel::tokenizer {
namespace {

// A pattern that needs more than this on one text is broken rather than slow.
constexpr std::uint32_t kMatchLimit = 10'000'000;
constexpr std::uint32_t kHeapLimit = 256 << 10;  // KiB
constexpr std::size_t kStackStart = 32 << 10;
constexpr std::size_t kStackMost = 8 << 20;

pcre2_code* code_of(void* code) {
  return static_cast<pcre2_code*>(code);
}
pcre2_match_data* data_of(void* data) {
  return static_cast<pcre2_match_data*>(data);
}
pcre2_match_context* context_of(void* context) {
  return static_cast<pcre2_match_context*>(context);
}

std::string message_of(int error) {
  std::array<unsigned char, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

void Pattern::Free::operator()(void* code) const {
  pcre2_code_free(code_of(code));
}
void PatternMatcher::FreeData::operator()(void* data) const {
  pcre2_match_data_free(data_of(data));
}
void PatternMatcher::FreeContext::operator()(void* context) const {
  pcre2_match_context_free(context_of(context));
}
void PatternMatcher::FreeStack::operator()(void* stack) const {
  pcre2_jit_stack_free(static_cast<pcre2_jit_stack*>(stack));
}

std::optional<Pattern> Pattern::make(std::string_view pattern, std::string& problem, bool translate) {
  const std::string text = translate ? to_pcre2(pattern, problem) : std::string(pattern);
  if (text.empty() && !pattern.empty()) return std::nullopt;
  int error = 0;
  std::size_t offset = 0;
  auto* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (code == nullptr) {
    problem = message_of(error);
    return std::nullopt;
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without a JIT, matching is merely slower
  return Pattern(code);
}

PatternMatcher::PatternMatcher()
    : data_(pcre2_match_data_create(1, nullptr)),
      context_(pcre2_match_context_create(nullptr)),
      stack_(pcre2_jit_stack_create(kStackStart, kStackMost, nullptr)) {
  pcre2_set_match_limit(context_of(context_.get()), kMatchLimit);
  pcre2_set_heap_limit(context_of(context_.get()), kHeapLimit);
  pcre2_jit_stack_assign(context_of(context_.get()), nullptr, stack_.get());
}

std::optional<Match> PatternMatcher::find(const Pattern& pattern, std::string_view text, std::size_t from) {
  const auto match = [&](std::uint32_t options) {
    return pcre2_match(code_of(pattern.code_.get()), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                       PCRE2_NO_UTF_CHECK | options, data_of(data_.get()), context_of(context_.get()));
  };
  int result = match(0);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = match(PCRE2_NO_JIT);  // slower, but uses the heap
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (result < 0)
    throw Error(
        Diagnostic{"bad-tokenizer"}
            .says("a pattern of the tokenizer gives up on a text of {} bytes: {}", text.size(), message_of(result))
            .hint("the text may repeat one character a million times; split it"));
  const std::size_t* places = pcre2_get_ovector_pointer(data_of(data_.get()));
  return Match{places[0], places[1] < places[0] ? places[0] : places[1]};
}

}  // namespace automodel::tokenizer
