#include "train/sample_text.h"

#include <cctype>

namespace automodel::train {
namespace {

constexpr std::string_view kEnds = ".!?", kCloses = "\"')]", kBlanks = " \t\r\n";

/// Whether the period at `at` follows a capitalised word of at most three letters: Mr, Mrs, Dr, St.
bool after_title(std::string_view text, std::size_t at) {
  std::size_t begin = at;
  while (begin > 0 && std::isalpha(static_cast<unsigned char>(text[begin - 1])) != 0) --begin;
  return text[at] == '.' && at > begin && at - begin <= 3 && std::isupper(static_cast<unsigned char>(text[begin])) != 0;
}

}  // namespace

std::string up_to_sentence(std::string_view text, bool cut) {
  for (auto at = text.find_last_of(kEnds); at != text.npos;
       at = at == 0 ? text.npos : text.find_last_of(kEnds, at - 1)) {
    auto end = at + 1;
    while (end < text.size() && kCloses.find(text[end]) != kCloses.npos) ++end;
    if (end < text.size() && kBlanks.find(text[end]) == kBlanks.npos) continue;
    if (!after_title(text, at)) return std::string(text.substr(0, end));
  }
  const auto word = text.find_last_not_of(kBlanks, text.find_last_of(kBlanks));
  return cut && text.find_last_of(kBlanks) != text.npos && word != text.npos
             ? std::string(text.substr(0, word + 1)) + " ..."
             : std::string(text);
}

}  // namespace automodel::train
