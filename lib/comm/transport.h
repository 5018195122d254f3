// How the bytes of one group travel: what `mpi` and `loopback` implement and the collectives are built on.
#pragma once

#include <cstddef>
#include <cstdint>

namespace automodel::comm {

/// One message, or one part of a large one.
struct Piece {
  bool outgoing = false;
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
  int peer = 0;  ///< rank inside the group
  int tag = 0;
};

/// Bytes of a message beyond which it is cut into several of the same tag; keeps counts within MPI's int.
inline constexpr std::int64_t kLargestPiece = std::int64_t{256} << 20;

/// A posted piece, in terms of the transport.
struct Ticket {
  std::uint64_t handle = 0;
  bool done = false;
};

/// Non-blocking messages between the members of one group. Not safe for use from several threads at once: Engine sees
/// to that. Between a pair of ranks, pieces of equal tag match in the order of posting.
class Transport {
 public:
  virtual ~Transport() = default;
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  virtual Ticket post(const Piece& piece) = 0;
  /// Whether the piece is over; sets ticket.done when it is, and may not be asked again then. Lets all operations of
  /// the process advance as far as the transport needs that. Throws Error where the transport failed, InternalError
  /// where the other side's piece has another size.
  virtual bool finished(Ticket& ticket, const Piece& piece) = 0;
  /// Gives up a piece that is not over. False where the transport may still touch its memory.
  virtual bool cancel(Ticket& ticket, const Piece& piece) noexcept = 0;
  virtual int max_tag() const = 0;
};

}  // namespace automodel::comm
