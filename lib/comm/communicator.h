// A group of ranks and its collective operations.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

namespace automodel::comm {

enum class ReduceOp : std::uint8_t { kSum, kMax, kMin };

/// "sum", "max", "min".
std::string_view name_of(ReduceOp op);

/// An operation in flight. It progresses whether or not anyone waits: dropping a Work neither cancels nor blocks (a
/// send can be posted and forgotten), and its tensors are kept alive until it completes. Received data may be read only
/// after wait() has returned.
class Work {
 public:
  virtual ~Work() = default;
  /// Returns when the operation is complete on this rank. Throws HangError if that takes longer than the world's
  /// deadline, Error if the transport fails, InternalError if ranks disagree about sizes. For GPU tensors with the
  /// `nccl` backend the *current stream* waits, not the host; a watcher thread then enforces the deadline.
  virtual void wait() = 0;
  /// Whether wait() would return immediately. Progresses this rank's operations; never blocks.
  virtual bool done() = 0;
};
using WorkPtr = std::unique_ptr<Work>;

/// What a group carries for GPU tensors; each kind takes resources (with NCCL: communicators and streams). A group with
/// neither is for host tensors only.
struct Traffic {
  bool collectives = true;
  bool all_to_all = true;  ///< part of the collectives
  bool messages = true;    ///< exchange()
  bool ring = false;       ///< only between neighbouring positions, of which the last and the first are two
  bool any() const { return collectives || messages; }
};
inline constexpr Traffic kHostTensors = {false, false, false};

/// One message of an exchange. `peer` is another rank of the group; `tag` is 0 ... max_tag(). A message matches the
/// receive with the same pair of ranks and tag; equal tags match in posting order.
struct Transfer {
  at::Tensor tensor = {};
  int peer = 0;
  int tag = 0;
};

/// A group of ranks. All members call the same collectives in the same order; exchanges may come in any order that
/// their tags allow. Several operations may be outstanding, and may be waited for in any order and from any thread.
/// Tensors are contiguous; both sides of a message have the same number of bytes.
///
/// Sums over host tensors are accumulated in group rank order, in float for the 16-bit types, and rounded once. They
/// are therefore bitwise identical on every rank, in every run, for any way of splitting the data into messages, and
/// whether computed by all_reduce or by reduce_scatter plus all_gather.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// This rank's index in ranks().
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  /// The members' world ranks, in group order.
  const std::vector<int>& ranks() const { return ranks_; }
  const std::string& name() const { return name_; }
  /// The largest tag that a Transfer may have.
  virtual int max_tag() const = 0;
  /// From now on, operations of any other kind are defects, on every device and backend. A group for host tensors only
  /// allows all kinds.
  void limit_to(Traffic traffic) { traffic_ = traffic; }

  /// `inout` becomes `op` over all members' `inout`. Supports floating-point types (f64, f32, bf16, f16), int64, int32,
  /// uint8, and bool (whose sum is "or"). Max and min propagate NaN.
  WorkPtr all_reduce(const at::Tensor& inout, ReduceOp op);
  /// `out` becomes the concatenation of all members' `in`; out.numel() == size() * in.numel(). `in` may be this rank's
  /// own part of `out`. Any dtype.
  WorkPtr all_gather(const at::Tensor& out, const at::Tensor& in);
  /// `out` becomes this rank's part of `op` over all members' `in`; in.numel() == size() * out.numel(). `out` may be
  /// this rank's own part of `in`.
  WorkPtr reduce_scatter(const at::Tensor& out, const at::Tensor& in, ReduceOp op);
  /// Sends in_rows[p] rows (of dimension 0) of `in` to each member p, in order, and receives out_rows[p] rows from it
  /// into `out`. `in` and `out` must not overlap.
  WorkPtr all_to_all(const at::Tensor& out, const at::Tensor& in, std::span<const std::int64_t> out_rows,
                     std::span<const std::int64_t> in_rows);
  /// `inout` becomes that of member `root`.
  WorkPtr broadcast(const at::Tensor& inout, int root);
  /// Performs all these messages concurrently, in both directions.
  WorkPtr exchange(std::vector<Transfer> sends, std::vector<Transfer> receives);
  /// Complete once every member has called it.
  WorkPtr barrier();

 protected:
  Communicator(std::vector<int> ranks, int rank, std::string name);

  // Implemented by backends; arguments have been checked.
  virtual WorkPtr start_all_reduce(const at::Tensor& inout, ReduceOp op) = 0;
  virtual WorkPtr start_all_gather(const at::Tensor& out, const at::Tensor& in) = 0;
  virtual WorkPtr start_reduce_scatter(const at::Tensor& out, const at::Tensor& in, ReduceOp op) = 0;
  virtual WorkPtr start_all_to_all(const at::Tensor& out, const at::Tensor& in, std::span<const std::int64_t> out_rows,
                                   std::span<const std::int64_t> in_rows) = 0;
  virtual WorkPtr start_broadcast(const at::Tensor& inout, int root) = 0;
  virtual WorkPtr start_exchange(std::vector<Transfer> sends, std::vector<Transfer> receives) = 0;
  virtual WorkPtr start_barrier() = 0;

 private:
  void check_traffic(bool carried, const char* verb) const;

  std::vector<int> ranks_;
  int rank_;
  std::string name_;
  Traffic traffic_ = {};
};

/// Bytes per row (slice of dimension 0) of `tensor`, even if it has no rows.
std::int64_t row_bytes(const at::Tensor& tensor);

}  // namespace automodel::comm
