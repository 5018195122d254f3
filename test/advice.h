// The values that the help text of a diagnostic suggests.
#pragma once

#include <cctype>
#include <cstdint>
#include <string>
#include <vector>

namespace automodel {

struct AdvisedValue {
  std::string key = {};  ///< "ranks" for "N ranks"
  std::string value = {};
  std::int64_t number() const { return std::stoll(value); }
};

/// Every "key: value" of `help` and, as key "ranks", every "N ranks".
inline std::vector<AdvisedValue> advised_values(const std::string& help) {
  const auto word = [&](std::size_t at) {
    const char c = at < help.size() ? help[at] : ' ';
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  std::vector<AdvisedValue> out;
  for (std::size_t at = help.find(": "); at != std::string::npos; at = help.find(": ", at + 1)) {
    std::size_t begin = at;
    while (begin > 0 && word(begin - 1)) --begin;
    std::size_t end = at + 2;
    while (word(end)) ++end;
    out.push_back({help.substr(begin, at - begin), help.substr(at + 2, end - at - 2)});
  }
  for (std::size_t at = help.find(" rank"); at != std::string::npos; at = help.find(" rank", at + 1)) {
    std::size_t begin = at;
    while (begin > 0 && std::isdigit(static_cast<unsigned char>(help[begin - 1])) != 0) --begin;
    if (begin < at) out.push_back({"ranks", help.substr(begin, at - begin)});
  }
  return out;
}

}  // namespace automodel
