// The short notation for lists of ranks in test/golden (see its README.md).
#pragma once

#include <string>
#include <vector>

namespace automodel::golden {

inline std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> out(1);
  for (const char c : text)
    if (c == separator)
      out.emplace_back();
    else
      out.back() += c;
  return out;
}

/// "3", "0,1,4" or "START/STRIDExCOUNT".
inline std::vector<int> sequence(const std::string& text) {
  std::vector<int> out;
  const auto slash = text.find('/');
  if (slash == std::string::npos) {
    for (const auto& word : split(text, ',')) out.push_back(std::stoi(word));
    return out;
  }
  const auto cross = text.find('x');
  const int start = std::stoi(text.substr(0, slash));
  const int stride = std::stoi(text.substr(slash + 1, cross - slash - 1));
  for (int i = 0; i < std::stoi(text.substr(cross + 1)); ++i) out.push_back(start + i * stride);
  return out;
}

/// "MEMBERS@STARTS" if every group has the same pattern, else "GROUP|GROUP|...".
inline std::vector<std::vector<int>> groups(const std::string& text) {
  std::vector<std::vector<int>> out;
  const auto at = text.find('@');
  if (at == std::string::npos) {
    for (const auto& word : split(text, '|')) out.push_back(sequence(word));
    return out;
  }
  const auto members = sequence(text.substr(0, at));
  for (const int start : sequence(text.substr(at + 1))) {
    out.push_back(members);
    for (int& rank : out.back()) rank += start;
  }
  return out;
}

}  // namespace automodel::golden
