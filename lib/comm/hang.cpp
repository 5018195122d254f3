#include "comm/hang.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/bytes.h"

namespace automodel::comm {
namespace {

/// Limits on the ranks queried for one report and on its time: a report must not hang itself.
constexpr std::size_t kMostAsked = 32;
constexpr std::chrono::seconds kMostTime{10};

std::string rank_text(int rank, const std::string& host) {
  return host.empty() ? fmt::format("rank {}", rank) : fmt::format("rank {} (host {})", rank, host);
}

std::string line_text(int rank, const Answer& answer) {
  const std::string who = rank_text(rank, answer.host);
  const Doing& doing = answer.doing;
  switch (answer.kind) {
    case Answer::Kind::kGone: return who + " does not answer: process gone";
    case Answer::Kind::kUnreachable: return who + " does not answer: host unreachable";
    case Answer::Kind::kSilent: return who + " does not answer: the process is stopped or its host overloaded";
    case Answer::Kind::kUnknown: return who + " cannot be asked";
    case Answer::Kind::kDoing: break;
  }
  if (!doing.waiting) return fmt::format("{}, {}, is not waiting for anyone", who, place_text(doing));
  return fmt::format("{}, {}, waits for rank {} in {} of group '{}' for {}", who, place_text(doing), doing.peer,
                     doing.verb, doing.group, format_seconds(doing.wait_seconds));
}

/// How well a finding explains a hang: a dead rank explains more than a busy one, and both more than a cycle.
enum class Weight { kNone, kUnknown, kCycle, kBusy, kSilent, kUnreachable, kGone };

struct Cause {
  Weight weight = Weight::kNone;
  std::string text = {};
};

class Walk {
 public:
  Walk(int me, Doing mine, Prober& prober) : prober_(prober) {
    asked_.emplace(me, Answer{Answer::Kind::kDoing, std::move(mine), ""});
    order_.push_back(me);
  }

  /// The cause at the end of the chain of waits that starts with `previous` waiting for `rank`.
  Cause follow(int previous, int rank) {
    std::vector<int> chain{previous};
    while (true) {
      if (const auto again = std::ranges::find(chain, rank); again != chain.end()) return cycle({again, chain.end()});
      chain.push_back(rank);
      const Answer* answer = ask(rank);
      if (answer == nullptr) return {};
      if (answer->kind != Answer::Kind::kDoing) return {weight_of(answer->kind), line_text(rank, *answer)};
      if (!answer->doing.waiting || answer->doing.peer < 0)
        return {Weight::kBusy, fmt::format("{} never came: {}", rank_text(rank, answer->host),
                                           place_text(answer->doing) + ", not waiting for anyone")};
      rank = answer->doing.peer;
    }
  }

  std::string lines() const {
    std::string out;
    for (const int rank : order_) out += (out.empty() ? "" : "\n          ") + line_text(rank, asked_.at(rank));
    return out;
  }

 private:
  static Weight weight_of(Answer::Kind kind) {
    switch (kind) {
      case Answer::Kind::kGone: return Weight::kGone;
      case Answer::Kind::kUnreachable: return Weight::kUnreachable;
      case Answer::Kind::kSilent: return Weight::kSilent;
      case Answer::Kind::kDoing: return Weight::kBusy;
      case Answer::Kind::kUnknown: break;
    }
    return Weight::kUnknown;
  }

  static Cause cycle(const std::vector<int>& ranks) {
    std::string text = "ranks ";
    for (std::size_t i = 0; i < ranks.size(); ++i)
      text += fmt::format("{}{}", i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
    return {Weight::kCycle, text + " wait for each other"};
  }

  /// A rank's answer, asked for once; null if the report's limits are reached.
  const Answer* ask(int rank) {
    if (const auto known = asked_.find(rank); known != asked_.end()) return &known->second;
    if (asked_.size() > kMostAsked || std::chrono::steady_clock::now() - begin_ > kMostTime) return nullptr;
    order_.push_back(rank);
    return &asked_.emplace(rank, prober_.ask(rank)).first->second;
  }

  Prober& prober_;
  std::map<int, Answer> asked_;
  std::vector<int> order_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

HangError hang_report(int me, const Doing& mine, const std::vector<int>& peers, Prober& prober) {
  Walk walk(me, mine, prober);
  Cause cause;
  for (const int peer : peers) {
    Cause found = walk.follow(me, peer);
    if (found.weight > cause.weight) cause = std::move(found);
  }
  std::string whom = peers.size() == 1 ? fmt::format("rank {}", peers.front()) : fmt::format("{} ranks", peers.size());
  if (peers.size() > 1 && peers.size() <= 8) {
    whom = "ranks";
    for (const int peer : peers) whom += fmt::format("{} {}", peer == peers.front() ? "" : ",", peer);
  }
  Diagnostic problem{"hang"};
  problem.message = fmt::format("rank {}, {}, waited {} for {} in {} of group '{}'", me, place_text(mine),
                                format_seconds(mine.wait_seconds), whom, mine.verb, mine.group);
  if (!cause.text.empty()) problem.message += ": " + cause.text;
  problem.help = walk.lines();
  return HangError(std::move(problem));
}

}  // namespace automodel::comm
