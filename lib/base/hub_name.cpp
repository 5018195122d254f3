#include "base/hub_name.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "base/shell_word.h"

namespace automodel {
namespace {

/// Letters, digits, '-', '_' and '.', not beginning with a dot: what owners and repositories are called.
bool is_part(std::string_view text) {
  return !text.empty() && text.front() != '.' && std::ranges::all_of(text, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
  });
}

}  // namespace

std::string download_advice(std::string_view name, const std::optional<std::string>& revision, HubKind kind) {
  const auto slash = name.find('/');
  if (slash == name.npos || !is_part(name.substr(0, slash)) || !is_part(name.substr(slash + 1))) return "";
  return fmt::format(": 'hf download {}{}{}' does that", kind == HubKind::kDataset ? "--repo-type dataset " : "", name,
                     revision ? " --revision " + shell_quoted(*revision) : "");
}

}  // namespace automodel
