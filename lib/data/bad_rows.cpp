#include "data/bad_rows.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"

namespace automodel::data {
namespace {

constexpr std::size_t kReported = 10;

}  // namespace

void BadRows::add(Diagnostic problem) {
  ++count_;
  if (first_.size() < kReported) first_.push_back(std::move(problem));
}

bool BadRows::finish(Diagnostics& problems) {
  if (count_ == 0) return true;
  const std::int64_t others = count_ - static_cast<std::int64_t>(first_.size());
  if (count_ > allowed_) {
    const bool same = count_ > 1 && count_ == rows_ && std::ranges::all_of(first_, [&](const Diagnostic& each) {
                        return each.id == first_[0].id && each.message == first_[0].message;
                      });
    if (same) {
      first_[0].message = fmt::format("none of {} rows can be used: {}", count_, first_[0].message);
      if (first_[0].id == "bad-row") first_[0].help = "the rows are of another kind than the section says";
      first_.erase(first_.begin() + 1, first_.end());
    }
    std::string said;  // consecutive problems with the same help print it once
    for (auto& problem : first_) {
      if (problem.help == said)
        problem.help.clear();
      else
        said = problem.help;
      problems.push_back(std::move(problem));
    }
    if ((others > 0 && !same) || allowed_ > 0)
      problems.add("bad-row", key_)
          .says(others > 0 ? fmt::format("{} further rows have problems", others)
                           : fmt::format("{} rows have problems", count_))
          .hint(allowed_ > 0 ? fmt::format("max_bad_rows allows {}", allowed_)
                             : "the first ones are listed above; max_bad_rows leaves some out");
    return false;
  }
  if (!quiet_) {
    for (const auto& problem : first_) log::warning(problem);
    if (others > 0) log::warning(fmt::format("{}: {} further rows are left out", key_, others));
  }
  return true;
}

std::string BadRows::summary() const {
  return count_ == 0 ? "" : fmt::format(", {} bad row{} left out", count_, count_ == 1 ? "" : "s");
}

}  // namespace automodel::data
