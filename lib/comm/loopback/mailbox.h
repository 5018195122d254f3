// Messages between threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/transport.h"

namespace automodel::comm {

/// A posted piece; its owner keeps it until it has seen its completion.
struct Letter {
  Piece piece = {};
  std::int64_t other_bytes = -1;  ///< size of the matching piece; valid once `over` is set
  std::atomic<bool> over = false;
};

/// One direction between two members of a group. Whichever side posts second copies the bytes, under the lock, so that
/// a withdrawn letter is never touched.
class Mailbox {
 public:
  void post(Letter& letter);
  void withdraw(Letter& letter);

 private:
  std::mutex mutex_;
  std::deque<Letter*> sends_;     ///< unmatched, in posting order
  std::deque<Letter*> receives_;  ///< unmatched, in posting order
};

/// The mailboxes of one group.
class PostOffice {
 public:
  explicit PostOffice(int members) : members_(static_cast<std::size_t>(members)), boxes_(members_ * members_) {}
  Mailbox& box(int from, int to) {
    return boxes_[static_cast<std::size_t>(from) * members_ + static_cast<std::size_t>(to)];
  }

 private:
  std::size_t members_;
  std::vector<Mailbox> boxes_;
};

}  // namespace automodel::comm
