// A bounded list of problems, since bad input can be wrong in a million cells.
#pragma once

#include <cstddef>
#include <string>

#include <fmt/format.h>

#include "base/diagnostic.h"
#include "schedule/csv.h"
#include "schedule/origin.h"

namespace automodel::schedule {

class ProblemList {
 public:
  explicit ProblemList(const Origin& origin) : origin_(origin) {}

  /// A problem in one cell; rank and step are prepended to the message.
  void cell(ProblemId id, std::size_t rank, std::size_t step, const std::string& message, std::string help) {
    if (!full())
      add(id, fmt::format("rank {}, step {}: {}", rank, step, message), std::move(help), origin_.cell(rank, step));
  }
  void row(ProblemId id, std::size_t rank, const std::string& message, std::string help) {
    if (!full()) add(id, fmt::format("rank {}: {}", rank, message), std::move(help), origin_.row(rank));
  }
  void whole(ProblemId id, std::string message, std::string help) {
    if (!full()) add(id, std::move(message), std::move(help), origin_.whole());
  }
  bool empty() const { return problems_.empty(); }
  const Origin& origin() const { return origin_; }
  Diagnostics take() {
    if (dropped_ > 0)
      problems_.push_back({problems_.back().id, fmt::format("{} more problems", dropped_), "", origin_.whole()});
    return std::move(problems_);
  }

 private:
  bool full() {
    if (problems_.size() < kMostProblems) return false;
    ++dropped_;
    return true;
  }
  void add(ProblemId id, std::string message, std::string help, SourceLocation where) {
    problems_.add(id).says(std::move(message)).hint(std::move(help)).at(std::move(where));
  }

  const Origin& origin_;
  Diagnostics problems_ = {};
  std::size_t dropped_ = 0;
};

}  // namespace automodel::schedule
