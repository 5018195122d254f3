#include "config/word_advice.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/spelling.h"

namespace automodel::config {
namespace {

std::string_view last_part(std::string_view name) {
  return name.substr(name.rfind('.') + 1);
}
std::string_view package_of(std::string_view name) {
  return name.substr(0, name.size() - last_part(name).size());
}

}  // namespace

std::string word_advice(const std::string& given, const std::vector<std::string_view>& names) {
  const auto dotted = [](std::string_view name) { return name.find('.') != std::string_view::npos; };
  if (given == "gpu" && std::ranges::find(names, "cuda") != names.end()) return "did you mean 'cuda'?";
  const auto word = last_part(given);
  const std::size_t reach = word.size() < 6 ? 0 : 1;
  std::vector<std::string_view> plain;
  for (const auto name : names)
    if (!dotted(name)) plain.push_back(name);
  const bool components = plain.size() < names.size() && !plain.empty();
  if (!dotted(given)) {
    // A class without its package and method: NeMoAutoModelForSequenceClassification.
    for (const auto name : names)
      if (given.size() > 5 && name.find("." + given + ".") != std::string_view::npos)
        return fmt::format("did you mean '{}'?", name);
    // Short component names can be unrelated yet within a small edit distance, such as muon and lion.
    const auto close = nearest(given, names);
    const bool meant = !components || (!close.empty() && edit_distance(given, close) <= reach + 1);
    return meant ? suggestion(given, names) : "there are " + join(plain);
  }
  for (const auto name : names) {
    const auto limit = reach + (package_of(given) == package_of(name) ? 1 : 0);
    if (edit_distance(word, last_part(name), limit) <= limit)
      // A class of the same name in another package may take other keys, so list what is available as well.
      return fmt::format("did you mean '{}'?{}{}", name, plain.empty() ? "" : " there are ", join(plain));
  }
  return plain.empty() ? suggestion(given, names) : "there are " + join(plain);
}

std::string colon_advice(std::string_view text) {
  const auto colon = text.find(':');
  if (colon == std::string_view::npos || colon + 1 >= text.size()) return "";
  return fmt::format("a key and its value need a blank between them: '{}: {}'", text.substr(0, colon),
                     text.substr(colon + 1));
}

}  // namespace automodel::config
