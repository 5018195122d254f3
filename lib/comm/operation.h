// A collective or an exchange represented as data (rounds of messages with a little arithmetic between them), and its
// execution.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/transport.h"

namespace automodel::comm {

/// Messages posted together; `finish` runs once all of them are complete.
struct Round {
  std::vector<Piece> pieces = {};
  std::function<void()> finish = {};
};

/// What an operation does: `chunks` independent parts, up to `lanes` of them in flight at a time, each a sequence of
/// rounds. `rounds` makes the rounds of a chunk when its turn comes; a lane handles one chunk at a time, so it can own
/// a scratch buffer. All members of a group must make programs with the same chunks, rounds and tags.
struct Program {
  std::int64_t chunks = 1;
  int lanes = 1;
  std::function<std::vector<Round>(std::int64_t chunk, int lane)> rounds = {};
};

/// How reports name an operation.
struct OperationLabel {
  std::string_view verb = {};  ///< must have static storage
  std::string group = {};
  std::vector<int> ranks = {};  ///< world ranks of the group
};

/// A piece that an operation is still waiting for.
struct Pending {
  int peer = 0;  ///< world rank
  bool outgoing = false;
  int tag = 0;
};

/// One operation in flight. Everything except finished() and the error accessors is called under the engine's lock.
class Operation {
 public:
  /// `keep`: tensors and buffers that the program refers to, kept alive as long as the transport may access them.
  Operation(OperationLabel label, std::shared_ptr<Transport> transport, Program program, std::vector<at::Tensor> keep);
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// Posts the first rounds.
  void start();
  /// Advances as far as possible without blocking; true if it made progress. An error ends the operation and is kept
  /// for error().
  bool advance() noexcept;
  /// Up to `most` incomplete messages; none if querying them ended the operation.
  std::vector<Pending> pending(std::size_t most) noexcept;

  /// Callable from any thread; once it returns true, everything that finish functions wrote is visible.
  bool finished() const { return finished_.load(std::memory_order_acquire); }
  /// The error that ended a finished operation, or null.
  std::exception_ptr error() const { return error_; }
  /// The same, marking it as seen: for rethrowing it to a waiter.
  std::exception_ptr take_error() {
    error_taken_ = true;
    return error_;
  }
  bool error_taken() const { return error_taken_; }
  const OperationLabel& label() const { return label_; }

 private:
  struct Lane {
    std::vector<Round> rounds = {};
    std::size_t round = 0;
    std::vector<Ticket> tickets = {};  ///< for the current round's pieces
    std::size_t first_open = 0;        ///< all pieces before this one are complete
    bool idle = true;
  };
  void next_chunk(Lane& lane, int index);
  void post_round(Lane& lane);
  bool round_over(Lane& lane);
  bool advance_lane(Lane& lane, int index);
  void end();
  void fail() noexcept;
  void collect(std::vector<Pending>& out, std::size_t most);

  OperationLabel label_;
  std::shared_ptr<Transport> transport_;
  Program program_;
  std::vector<at::Tensor> keep_;
  std::vector<Lane> lanes_;
  std::int64_t next_chunk_ = 0;
  std::exception_ptr error_;
  std::atomic<bool> error_taken_ = false;
  std::atomic<bool> finished_ = false;
};

}  // namespace automodel::comm
