#include "comm/loopback/loopback.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "base/host_name.h"
#include "base/terminal.h"
#include "comm/hang.h"
#include "comm/loopback/mailbox.h"
#include "comm/monitor.h"

namespace automodel::comm {
namespace {

/// State shared by the ranks of one job.
class Job : public Prober {
 public:
  explicit Job(int size) : activities_(static_cast<std::size_t>(size)) {}

  /// The post office of a group; members that create the same group for the n-th time get the same one.
  std::shared_ptr<PostOffice> office(const std::string& key, int members) {
    const std::lock_guard lock(mutex_);
    auto& office = offices_[key];
    if (!office) office = std::make_shared<PostOffice>(members);
    return office;
  }

  bool ended() const { return ended_.load(std::memory_order_acquire); }
  void end(const JobOutcome& outcome) {
    const std::lock_guard lock(mutex_);
    if (ended()) return;
    outcome_ = outcome;
    ended_.store(true, std::memory_order_release);
  }
  JobOutcome outcome() {
    const std::lock_guard lock(mutex_);
    return outcome_;
  }

  /// From now on, questions about `rank` are answered from `activity`; null ends that.
  void show(int rank, const Activity* activity) {
    const std::lock_guard lock(mutex_);
    activities_[static_cast<std::size_t>(rank)] = activity;
  }
  Answer ask(int rank) override {
    const std::lock_guard lock(mutex_);
    const Activity* activity = activities_[static_cast<std::size_t>(rank)];
    if (activity == nullptr) return {Answer::Kind::kGone, {}, ""};
    return {Answer::Kind::kDoing, activity->now(), ""};
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<PostOffice>> offices_;
  std::vector<const Activity*> activities_;
  JobOutcome outcome_;
  std::atomic<bool> ended_ = false;
};

class LoopbackTransport : public Transport {
 public:
  LoopbackTransport(std::shared_ptr<Job> job, std::shared_ptr<PostOffice> office, int rank)
      : job_(std::move(job)), office_(std::move(office)), rank_(rank) {}

  Ticket post(const Piece& piece) override {
    auto* letter = new Letter{piece};
    box(piece).post(*letter);
    return {reinterpret_cast<std::uint64_t>(letter), false};
  }

  bool finished(Ticket& ticket, const Piece& piece) override {
    Letter* letter = letter_of(ticket);
    if (!letter->over.load(std::memory_order_acquire)) {
      if (job_->ended()) throw JobEnded();
      return false;
    }
    const std::int64_t other_bytes = letter->other_bytes;
    ticket.done = true;
    delete letter;
    AUTOMODEL_CHECK(other_bytes == piece.bytes,
                    fmt::format("message of {} bytes met a receive of {}", piece.outgoing ? piece.bytes : other_bytes,
                                piece.outgoing ? other_bytes : piece.bytes));
    return true;
  }

  bool cancel(Ticket& ticket, const Piece& piece) noexcept override {
    Letter* letter = letter_of(ticket);
    box(piece).withdraw(*letter);
    ticket.done = true;
    delete letter;
    return true;
  }

  int max_tag() const override { return std::numeric_limits<int>::max(); }

 private:
  static Letter* letter_of(const Ticket& ticket) { return reinterpret_cast<Letter*>(ticket.handle); }
  Mailbox& box(const Piece& piece) {
    return piece.outgoing ? office_->box(rank_, piece.peer) : office_->box(piece.peer, rank_);
  }

  std::shared_ptr<Job> job_;
  std::shared_ptr<PostOffice> office_;
  int rank_;
};

class LoopbackWorld : public World {
 public:
  LoopbackWorld(std::shared_ptr<Job> job, int rank, int size, bool alone, const WorldOptions& options)
      : job_(std::move(job)), alone_(alone) {
    begin({rank, size, rank, size, automodel::host_name()}, options,
          std::make_shared<LoopbackTransport>(job_, job_->office("control", size), rank));
    use_device(options.device, {});
    engine().set_prober(job_.get());
    job_->show(rank, &activity());
  }
  ~LoopbackWorld() override {
    leave_device();
    job_->show(rank(), nullptr);
  }

  [[noreturn]] void abort(ExitCode code, const std::string& text, int culprit,
                          const std::function<void()>& before_end) override {
    job_->end({code, culprit, text});
    if (alone_) std::fputs(for_terminal(last_words(text, culprit), STDERR_FILENO).c_str(), stderr);
    if (before_end) before_end();
    if (!alone_) throw JobEnded();
    std::_Exit(static_cast<int>(code));
  }

 protected:
  std::shared_ptr<Transport> connect(const std::vector<int>& ranks, const std::string& name) override {
    std::string key = fmt::format("group {}", name);
    for (const int member : ranks) key += fmt::format(",{}", member);
    key += fmt::format(" #{}", made_[key]++);
    int place = 0;
    while (ranks[static_cast<std::size_t>(place)] != rank()) ++place;
    return std::make_shared<LoopbackTransport>(job_, job_->office(key, static_cast<int>(ranks.size())), place);
  }

 private:
  std::shared_ptr<Job> job_;
  bool alone_;
  std::map<std::string, int> made_;
};

}  // namespace

JobOutcome run_ranks(int ranks, const std::function<void(World&)>& body, WorldOptions options) {
  const auto job = std::make_shared<Job>(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        LoopbackWorld world(job, rank, ranks, false, options);
        run_guarded(world, body);
      } catch (const JobEnded&) {
        // The job already has its outcome.
      } catch (const Error& error) {
        job->end({error.code(), rank, error.what()});  // the world could not be created
      }
    });
  for (auto& thread : threads) thread.join();
  return job->outcome();
}

std::unique_ptr<World> open_loopback(const WorldOptions& options) {
  return std::make_unique<LoopbackWorld>(std::make_shared<Job>(1), 0, 1, true, options);
}

}  // namespace automodel::comm
