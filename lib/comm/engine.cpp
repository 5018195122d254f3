#include "comm/engine.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "comm/waiting.h"

namespace automodel::comm {
namespace {

/// Per thread: a rank is a thread, and waits of helper threads do not count as the rank's.
thread_local std::chrono::steady_clock::duration waited_here{0};

using Clock = std::chrono::steady_clock;

/// The engine thread's polling interval: quick while an operation of several rounds is underway, otherwise doubled up
/// to the slow one. Where all cores compute, each look interrupts a computation (for 20 us in a virtual machine), and
/// most looks are in vain: a rank that needs a message waits for it, and polls itself.
constexpr std::chrono::microseconds kQuickPace{100};
constexpr std::chrono::microseconds kSlowPace{2000};
/// The number of looks without an outstanding operation before the thread sleeps until woken.
constexpr int kIdleLooks = 10;
/// Maximum number of peers to query on behalf of one operation.
constexpr std::size_t kMostPeers = 64;

class Counted {
 public:
  explicit Counted(std::atomic<int>& count) : count_(count) { ++count_; }
  ~Counted() { --count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<int>& count_;
};

/// "all_reduce", "exchange (receive, tag 5)".
std::string wait_text(const Operation& operation, const Pending& pending) {
  const std::string_view verb = operation.label().verb;
  if (verb != "exchange") return std::string(verb);
  return fmt::format("{} ({}, tag {})", verb, pending.outgoing ? "send" : "receive", pending.tag);
}

}  // namespace

double seconds_waited() {
  return std::chrono::duration<double>(waited_here).count();
}

Engine::Engine(EngineOptions options) : options_(options), deadline_(options.deadline) {
  if (options_.thread) thread_ = std::thread([this] { run_thread(); });
}

Engine::~Engine() {
  stop_ = true;
  {
    const std::lock_guard lock(sleep_mutex_);
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Engine::start(const std::shared_ptr<Operation>& operation) {
  {
    const std::lock_guard lock(mutex_);
    operation->start();
    operation->advance();
    if (operation->finished()) return;
    active_.push_back(operation);
    outstanding_ = static_cast<int>(active_.size());
  }
  wake();
}

bool Engine::poll() {
  ++polls_;
  return advance();
}

bool Engine::advance() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock.owns_lock() && advance_all();
}

bool Engine::advance_all() {
  bool moved = false;
  underway_ = false;
  for (const auto& operation : active_) {
    const bool advanced = operation->advance();
    moved |= advanced;
    underway_ = underway_ || (advanced && !operation->finished());
    if (operation->finished() && operation->error()) failed_.push_back(operation);
  }
  std::erase_if(active_, [](const auto& operation) { return operation->finished(); });
  outstanding_ = static_cast<int>(active_.size());
  return moved;
}

void Engine::wait(Operation& operation) {
  if (!operation.finished()) {
    const Counted waiting(waiters_);
    const auto begin = Clock::now();
    Backoff backoff(options_.crowded);
    while (true) {
      if (poll()) backoff.restart();
      if (operation.finished() || backoff.long_wait()) break;
      backoff.pause();
    }
    if (!operation.finished()) wait_long(operation, backoff);
    waited_here += Clock::now() - begin;
  }
  wake();
  if (operation.error()) std::rethrow_exception(operation.take_error());
}

void Engine::wait_long(Operation& operation, Backoff& backoff) {
  const auto deadline = this->deadline();
  const auto pace = std::min<Clock::duration>(std::chrono::milliseconds(20), deadline / 4);
  const auto begin = Clock::now();
  auto next_look = begin;
  for (; !operation.finished(); backoff.pause()) {
    if (poll()) backoff.restart();
    const auto now = Clock::now();
    if (now < next_look) continue;
    next_look = now + pace;
    std::vector<Pending> pending;
    {
      const std::lock_guard lock(mutex_);
      pending = operation.pending(kMostPeers);
    }
    if (pending.empty()) continue;
    activity_.begin_wait(wait_text(operation, pending.front()), operation.label().group, pending.front().peer);
    // Do not end_wait() first: to ranks that ask, a rank that gives up still counts as waiting.
    if (now - begin > deadline) throw_hang(pending);
  }
  activity_.end_wait();
}

HangError Engine::hang_error(const std::vector<int>& peers) {
  struct Nobody : Prober {
    Answer ask(int) override { return {}; }
  } nobody;
  Prober* prober = prober_;
  return hang_report(options_.rank, activity_.now(), peers, prober != nullptr ? *prober : nobody);
}

void Engine::throw_hang(const std::vector<Pending>& pending) {
  std::vector<int> peers;
  for (const Pending& piece : pending)
    if (std::ranges::find(peers, piece.peer) == peers.end()) peers.push_back(piece.peer);
  throw hang_error(peers);
}

void Engine::wait_for_all() {
  while (true) {
    std::shared_ptr<Operation> next;
    {
      const std::lock_guard lock(mutex_);
      advance_all();
      if (active_.empty()) {
        for (const auto& failed : failed_)
          if (!failed->error_taken()) std::rethrow_exception(failed->take_error());
        return;
      }
      next = active_.front();
    }
    wait(*next);
  }
}

std::unique_lock<std::recursive_mutex> Engine::exclusive_or_give_up() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  for (int i = 0; i < 1000 && !lock.owns_lock(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    lock.try_lock();
  }
  return lock;
}

void Engine::wake() {
  if (!asleep_ || outstanding_ == 0) return;
  const std::lock_guard lock(sleep_mutex_);
  wake_.notify_all();
}

void Engine::run_thread() {
  auto pace = kQuickPace;
  int idle_looks = 0;
  unsigned seen = 0;
  while (!stop_) {
    const bool busy = outstanding_ > 0 && waiters_ == 0;
    idle_looks = busy ? 0 : idle_looks + 1;
    if (idle_looks >= kIdleLooks) {
      std::unique_lock lock(sleep_mutex_);
      asleep_ = true;
      wake_.wait(lock, [this] { return stop_ || (outstanding_ > 0 && waiters_ == 0); });
      asleep_ = false;
      idle_looks = 0;
      pace = kQuickPace;
      continue;
    }
    const unsigned polls = polls_;
    const bool polled = std::exchange(seen, polls) != polls;  // by the rank itself, between its actions
    if (busy && !polled) advance();
    pace = busy && underway_ ? kQuickPace : std::min(2 * pace, kSlowPace);
    std::this_thread::sleep_for(pace);
  }
}

}  // namespace automodel::comm
