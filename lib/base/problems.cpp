#include "base/problems.h"

namespace automodel {

const Origins::Origin* Origins::find(const std::string& path) const {
  const auto found = origins_.find(path);
  return found == origins_.end() ? nullptr : &found->second;
}

const std::string& Origins::as_given(const std::string& path) const {
  const auto found = other_names_.find(path);
  return found == other_names_.end() ? path : found->second;
}

SourceLocation Origins::nearest(std::string path) const {
  while (!path.empty()) {
    if (const auto* origin = find(path)) return origin->where;
    const auto dot = path.rfind('.');
    path.resize(dot == std::string::npos ? 0 : dot);
  }
  return {file_, 1, 1};
}

std::string join_path(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : path + "." + std::string(key);
}

void Problems::place_all(Diagnostics& list, Diagnostics all, const std::string& prefix) {
  for (auto& problem : all) {
    problem.key = origins_->as_given(problem.key.empty() ? prefix : join_path(prefix, problem.key));
    if (problem.where.file.empty()) problem.where = origins_->nearest(problem.key);
    list.push_back(std::move(problem));
  }
}

void locate(Diagnostics& problems, const Origins& origins) {
  for (auto& problem : problems)
    if (problem.where.file.empty()) problem.where = origins.nearest(problem.key);
}

}  // namespace automodel
