#include "config/word_advice.h"

#include <fmt/format.h>

#include "base/spelling.h"

namespace automodel::config {
namespace {

std::string_view last_part(std::string_view name) {
  return name.substr(name.rfind('.') + 1);
}

}  // namespace

std::string word_advice(const std::string& given, const std::vector<std::string_view>& names) {
  if (given.find('.') == std::string::npos) return suggestion(given, names);
  const auto word = last_part(given);
  const std::size_t reach = word.size() < 6 ? 0 : 1;
  for (const auto name : names)
    if (edit_distance(word, last_part(name), reach) <= reach) return fmt::format("did you mean '{}'?", name);
  std::vector<std::string_view> plain;
  for (const auto name : names)
    if (name.find('.') == std::string_view::npos) plain.push_back(name);
  return plain.empty() ? suggestion(given, names) : "there are " + join(plain);
}

}  // namespace automodel::config
