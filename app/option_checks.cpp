#include "option_checks.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/spelling.h"

namespace automodel::app {
namespace {

template <class Number>
std::string check_range(const std::string& value, const char* kind, Number least, Number most) {
  Number parsed{};
  const char* last = value.data() + value.size();
  const auto [end, error] = std::from_chars(value.data(), last, parsed);
  if (error == std::errc() && end == last && parsed >= least && parsed <= most) return "";
  return fmt::format("'{}' is not {} from {} to {}", value, kind, least, most);
}

}  // namespace

CLI::Validator whole_number(int least, int most) {
  return {[=](std::string& value) { return check_range(value, "a whole number", least, most); }, "COUNT"};
}

CLI::Validator number_between(double least, double most) {
  return {[=](std::string& value) { return check_range(value, "a number", least, most); }, "NUMBER"};
}

CLI::Validator one_of(std::vector<std::string> words) {
  auto type = fmt::format("{{{}}}", fmt::join(words, ","));
  return {[words = std::move(words)](std::string& value) {
            if (std::ranges::find(words, value) != words.end()) return std::string();
            return fmt::format("'{}' is not one of {}\n{}", value, fmt::join(words, ", "),
                               suggestion(value, {words.begin(), words.end()}));
          },
          std::move(type)};
}

std::vector<std::string> words_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();  // "TEXT:{a,b}"
  const auto open = type.find('{');
  if (open == std::string::npos) return {};
  return CLI::detail::split(type.substr(open + 1, type.find('}') - open - 1), ',');
}

std::string suggest_option(const CLI::App& command, const std::string& name, const std::vector<std::string>& others) {
  std::vector<std::string> options;
  for (const auto* option : command.get_options())
    for (const auto& each : option->get_lnames()) options.push_back(each);
  std::vector<std::string_view> all(options.begin(), options.end());
  all.insert(all.end(), others.begin(), others.end());
  const auto near = nearest(name, all);
  return std::ranges::find(options, near) == options.end() ? "" : fmt::format("did you mean '--{}'?", near);
}

}  // namespace automodel::app
