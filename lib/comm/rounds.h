// Collectives as rounds of messages: which rank sends which bytes to whom, and when sums are computed.
//
// Each element is summed in one place, over all ranks' values at once and in rank order. This makes sums independent of
// timing, of chunking and of the transport. (MPI guarantees none of this: it only recommends that a repeated call give
// the same result, and the ring and tree algorithms that implementations choose by size add in an order that depends on
// an element's position.) The price is n - 1 messages per rank for a reduction instead of log n; the bytes are the same
// as for a ring, and there is one rounding instead of log n or n - 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <c10/core/ScalarType.h>

#include "comm/communicator.h"
#include "comm/operation.h"
#include "comm/scratch.h"

namespace automodel::comm {

/// A rank's position in its group.
struct Seat {
  int rank = 0;
  int size = 1;
};

/// Tags for a group's collectives, the same sequence on every member: each round of each chunk gets its own tag, so
/// that rounds of operations that overtake each other cannot be confused.
class TagSequence {
 public:
  /// Cycles through tags first ... last.
  TagSequence(int first, int last) : first_(first), count_(std::int64_t{last} - first + 1) {}
  /// Reserves `count` tags and returns their position; the k-th of them is at(position, k).
  std::int64_t reserve(std::int64_t count) {
    const std::int64_t position = next_;
    next_ = (next_ + count) % count_;
    return position;
  }
  int at(std::int64_t position, std::int64_t k) const { return static_cast<int>(first_ + (position + k) % count_); }

 private:
  std::int64_t first_;
  std::int64_t count_;
  std::int64_t next_ = 0;
};

/// What to reduce, and how.
struct Reduction {
  c10::ScalarType dtype = c10::ScalarType::Float;
  ReduceOp op = ReduceOp::kSum;
};

/// Sizes in bytes, tuned between ranks of one host (bench/comm_bench.cpp). Results do not depend on them.
struct RoundLimits {
  /// The largest message that is sent to every rank directly in one step; larger ones are split among the ranks.
  std::int64_t whole = 32 << 10;
  /// Chunk size of reductions: one chunk is summed while another is in transit.
  std::int64_t chunk = 1 << 20;
  /// Number of chunks in flight.
  int lanes = 2;
  /// Group size from which small messages travel in log n steps.
  int log_steps_from = 9;
};

/// Builds a group's programs. Pointers refer to host memory that must outlive the program.
class RoundMaker {
 public:
  RoundMaker(Seat seat, TagSequence tags, std::shared_ptr<ScratchPool> scratch, RoundLimits limits = {});

  Program all_reduce(std::byte* data, std::int64_t count, Reduction reduction);
  Program all_gather(std::byte* out, const std::byte* in, std::int64_t shard_bytes);
  Program reduce_scatter(std::byte* out, const std::byte* in, std::int64_t shard_count, Reduction reduction);
  Program all_to_all(std::byte* out, const std::byte* in, std::span<const std::int64_t> out_bytes,
                     std::span<const std::int64_t> in_bytes);
  Program broadcast(std::byte* data, std::int64_t bytes, int root);
  Program barrier();

 private:
  Program all_reduce_whole(std::byte* data, std::int64_t count, Reduction reduction);
  Program all_reduce_chunked(std::byte* data, std::int64_t count, Reduction reduction);
  /// Rounds after which block r of `blocks` is that of rank (this + r) % size, given block 0; one round per bit of the
  /// group size (the concatenation algorithm of Bruck et al., "Efficient algorithms for all-to-all communications",
  /// 1997).
  std::vector<Round> gather_in_log_steps(std::byte* blocks, std::int64_t block_bytes, std::int64_t first_tag) const;
  int log_steps() const;
  /// Whether `bytes` to each other rank are little enough to be sent in one step.
  bool small(std::int64_t bytes) const { return bytes * (seat_.size - 1) <= limits_.whole; }

  Seat seat_;
  TagSequence tags_;
  std::shared_ptr<ScratchPool> scratch_;
  RoundLimits limits_;
};

/// Adds a message, split at kLargestPiece; an empty message is sent too, so that both sides always agree.
void add_message(std::vector<Piece>& pieces, const Piece& message);

}  // namespace automodel::comm
