// How a group's bytes travel: what `mpi` and `loopback` implement and collectives build on.
#pragma once

#include <cstddef>
#include <cstdint>

namespace automodel::comm {

/// One message, or one part of a large one.
struct Piece {
  bool outgoing = false;
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
  int peer = 0;  ///< rank within the group
  int tag = 0;
};

/// Messages longer than this are split into several pieces with the same tag; keeps counts within MPI's int.
inline constexpr std::int64_t kLargestPiece = std::int64_t{256} << 20;

/// A posted piece, as the transport identifies it.
struct Ticket {
  std::uint64_t handle = 0;
  bool done = false;
};

/// Non-blocking messages between the members of one group. Not thread-safe: Engine serializes all calls. Between a pair
/// of ranks, pieces with equal tags match in posting order.
class Transport {
 public:
  virtual ~Transport() = default;
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  virtual Ticket post(const Piece& piece) = 0;
  /// Whether the piece is complete; if so, sets ticket.done, after which this must not be called again for it. Also
  /// progresses all other operations of the process, as far as the transport needs that. Throws Error if the transport
  /// failed, InternalError if the other side's piece has a different size.
  virtual bool finished(Ticket& ticket, const Piece& piece) = 0;
  /// Abandons an incomplete piece. False if the transport may still access its memory.
  virtual bool cancel(Ticket& ticket, const Piece& piece) noexcept = 0;
  virtual int max_tag() const = 0;
};

}  // namespace automodel::comm
