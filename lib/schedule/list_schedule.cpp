#include "schedule/list_schedule.h"

#include <algorithm>
#include <functional>
#include <queue>

#include "base/error.h"

namespace automodel::schedule {
namespace {

class ListScheduling {
 public:
  ListScheduling(const ListRule& rule, const Workload& work)
      : rule_(rule),
        work_(work),
        heads_(heads_of(work)),
        stages_(work.stages()),
        done_(3 * static_cast<std::size_t>(stages_), 0),
        known_(2 * static_cast<std::size_t>(stages_), 0),
        ready_(known_.size() * static_cast<std::size_t>(work.microbatches), 0),
        held_(static_cast<std::size_t>(work.ranks()), 0),
        free_at_(held_.size(), 0),
        order_(held_.size()) {
    for (int rank = 0; rank < work.ranks(); ++rank) {
      interval_ = std::max(interval_, work.work(rank) / work.microbatches);
      order_[static_cast<std::size_t>(rank)].reserve(3 * work.placement.stages_of(rank).size() *
                                                     static_cast<std::size_t>(work.microbatches));
      events_.emplace(0, static_cast<std::size_t>(rank));
    }
    known_[0] = work.microbatches;
    for (int mb = 0; mb < work.microbatches; ++mb) ready_[slot(0, mb)] = interval_ * rule.pace / 4 * mb;
  }

  CompactOrder run() {
    while (!events_.empty()) {
      const auto [now, rank] = events_.top();
      events_.pop();
      if (free_at_[rank] <= now) act(rank, now);
    }
    for (const int done : done_) AUTOMODEL_CHECK(done == work_.microbatches, "list scheduling stopped before its end");
    return std::move(order_);
  }

 private:
  static constexpr int kNothing = -1;
  /// What a rank sees at one moment.
  struct View {
    int best = kNothing;  // the most urgent step that can start
    Units urgency = 0;
    Units next = kNoLimit;        // when the next F or I is known to be ready
    Units next_other = kNoLimit;  // the same, but no forward of the rank's first stage
    bool full = false;            // a forward is ready that memory does not admit
  };

  std::size_t slot(int step, int microbatch) const {
    return static_cast<std::size_t>(step) * static_cast<std::size_t>(work_.microbatches) +
           static_cast<std::size_t>(microbatch);
  }
  int done(int step) const { return done_[static_cast<std::size_t>(step)]; }
  bool is_known(int step) const {
    return done(step) < work_.microbatches && known_[static_cast<std::size_t>(step)] > done(step);
  }

  /// Whether the rank can hold another activation of the stage and still finish its microbatches in turn. Those with
  /// all forwards done here give their memory back whatever happens. What later ones hold must leave room for the
  /// first of them to pass the rank's other stages; then there is room for the next ones, too.
  bool admits(std::size_t rank, const std::vector<Stage>& stages, Stage stage) const {
    const Units room = work_.room(static_cast<int>(rank));
    if (held_[rank] + work_.activation[stage.at()] > room) return false;
    const auto forwards = [&](Stage each) { return done(each.value) + (each == stage ? 1 : 0); };
    int first = work_.microbatches;
    for (const Stage each : stages) first = std::min(first, forwards(each));
    Units needed = 0;
    for (const Stage each : stages) needed += work_.activation[each.at()] * std::max(forwards(each) - first, 1);
    return needed <= room;
  }

  View look(std::size_t rank, const std::vector<Stage>& stages, Units now) const {
    View view;
    const auto consider = [&](int step, Units urgency, bool first_forward) {
      const Units at = ready_[slot(step, done(step))];
      if (at > now) {
        view.next = std::min(view.next, at);
        if (!first_forward) view.next_other = std::min(view.next_other, at);
      } else if (view.best == kNothing || urgency < view.urgency) {
        view.best = step;
        view.urgency = urgency;
      }
    };
    for (const Stage stage : stages) {
      const int forward = stage.value;
      if (is_known(forward)) {
        if (admits(rank, stages, stage))
          consider(forward, interval_ * done(forward) + heads_.forward[stage.at()] * (rule_.deep_forwards ? -3 : 1),
                   stage == stages.front());
        else
          view.full = view.full || ready_[slot(forward, done(forward))] <= now;
      }
      const int backward = stages_ + stage.value;
      if (!is_known(backward) || done(forward) <= done(backward)) continue;
      const Units due = rule_.backward_due < 0 ? -kNoLimit / 2 + heads_.backward_input[stage.at()]
                                               : heads_.backward_input[stage.at()] * rule_.backward_due / 2;
      consider(backward, interval_ * done(backward) + due, false);
    }
    return view;
  }

  /// Lets a free rank start one step, or registers when to look again.
  void act(std::size_t rank, Units now) {
    const auto& stages = work_.placement.stages_of(static_cast<int>(rank));
    const View view = look(rank, stages, now);
    if (view.best != kNothing) {
      const int first = stages.front().value;
      const bool yields = rule_.give_way && view.best == first &&
                          view.next_other - now < work_.forward[static_cast<std::size_t>(first)];
      return yields ? events_.emplace(view.next_other, rank), void() : start(view.best, rank, now);
    }
    const int weight = next_weight(stages);
    const bool waits =
        weight != kNothing && view.next < kNoLimit && !view.full &&
        2 * (view.next - now) < rule_.patience * work_.backward_weight[static_cast<std::size_t>(weight - 2 * stages_)];
    if (weight != kNothing && !waits) return start(weight, rank, now);
    if (view.next < kNoLimit) events_.emplace(view.next, rank);
  }

  int next_weight(const std::vector<Stage>& stages) const {
    int best = kNothing;
    Units earliest = 0;
    for (const Stage stage : stages) {
      const int step = 2 * stages_ + stage.value;
      if (done(step) == done(stages_ + stage.value)) continue;
      const Units order = interval_ * done(step) + heads_.backward_input[stage.at()];
      if (best != kNothing && order >= earliest) continue;
      best = step;
      earliest = order;
    }
    return best;
  }

  void start(int step, std::size_t rank, Units now) {
    const auto s = static_cast<std::size_t>(step % stages_);
    const int microbatch = done_[static_cast<std::size_t>(step)]++;
    order_[rank].push_back(static_cast<Step>(step));
    const bool last = step % stages_ + 1 == stages_;
    if (step < stages_) {
      held_[rank] += work_.activation[s];
      free_at_[rank] = now + work_.forward[s];
      arrive(last ? stages_ + step : step + 1, microbatch, free_at_[rank] + (last ? 0 : work_.message[s]));
    } else if (step < 2 * stages_) {
      held_[rank] -= work_.activation[s] - work_.kept[s];
      free_at_[rank] = now + work_.backward_input[s];
      if (s > 0) arrive(step - 1, microbatch, free_at_[rank] + work_.message[s - 1]);
    } else {
      held_[rank] -= work_.kept[s];
      free_at_[rank] = now + work_.backward_weight[s];
    }
    events_.emplace(free_at_[rank], rank);
  }
  /// From now on, the step's rank knows when the data will be there, and may wait for it.
  void arrive(int step, int microbatch, Units at) {
    ready_[slot(step, microbatch)] = at;
    known_[static_cast<std::size_t>(step)] = microbatch + 1;
    events_.emplace(at, static_cast<std::size_t>(work_.placement.rank_of(Stage{step % stages_})));
  }

  using Event = std::pair<Units, std::size_t>;  // when a rank may have something to do
  const ListRule& rule_;
  const Workload& work_;
  Heads heads_;
  int stages_;
  Units interval_ = 0;                 // the heaviest rank's work per microbatch
  std::vector<int> done_;              // by step: microbatches started
  std::vector<int> known_;             // by F or I: microbatches whose data has a time
  std::vector<Units> ready_;           // by F or I and microbatch
  std::vector<Units> held_, free_at_;  // by rank
  CompactOrder order_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

}  // namespace

CompactOrder list_schedule(const ListRule& rule, const Workload& workload) {
  return ListScheduling(rule, workload).run();
}

}  // namespace automodel::schedule
