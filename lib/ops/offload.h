// Activations kept in host memory until their backward pass: what a group of operations (a layer) saves is copied out
// while the next group runs forward, and copied back while the group after it runs backward. Follows Transformer
// Engine's CPU offloading, which Megatron Core's cpu_offloading switches on.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/graph.h"
#include "plan/values/activations.h"

namespace automodel::ops {

/// Bytes moved since construction, and the number of buffers allocated for it.
struct OffloadCounts {
  std::int64_t out = 0, back = 0;
  std::int64_t on_host = 0, most_on_host = 0;  ///< now; peak
  int host_buffers = 0, device_buffers = 0;
};

/// Memory and streams shared by the passes of one rank. On a CPU both sides are host memory and copies are synchronous,
/// which is useful only for tests.
class ActivationOffload {
 public:
  class Pass;

  ActivationOffload(at::Device device, plan::ActivationOffloading options);
  ~ActivationOffload();
  ActivationOffload(const ActivationOffload&) = delete;
  ActivationOffload& operator=(const ActivationOffload&) = delete;

  /// Starts a forward pass and its backward pass. This object must outlive it.
  std::shared_ptr<Pass> begin();
  const OffloadCounts& counts() const { return counts_; }

 private:
  class Copies;
  at::Tensor host_buffer(std::int64_t bytes);
  void give_back(at::Tensor buffer);
  /// Device memory for a returning group.
  at::Tensor device_buffer(int group, std::int64_t bytes);

  at::Device device_;
  plan::ActivationOffloading options_;
  OffloadCounts counts_ = {};
  std::unique_ptr<Copies> copies_;
  std::multimap<std::int64_t, at::Tensor> idle_ = {};  ///< host buffers by size
  at::Tensor slots_[2] = {};
};

/// Groups are numbered from 0 in the order of the forward pass. A storage shared by several operations of a group is
/// copied once, and is shared again after it returned.
class ActivationOffload::Pass {
 public:
  explicit Pass(ActivationOffload& owner) : owner_(owner) {}
  ~Pass();
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  /// Starts the next group: the operations recorded until end_group(), which starts copying their activations out and
  /// frees the device memory of the group before.
  Recorded& begin_group();
  void end_group();
  /// No more groups follow: frees the last group's device memory as well.
  void finish_forward();

  /// Starts copying the last group back; called before the backward pass of whatever follows it.
  void announce();
  /// Call before the backward pass of `group`: restores its tensors (ordered by streams, not by a host wait) and starts
  /// copying the preceding group back.
  void need(int group);
  /// Call after the backward pass of `group`: releases its host buffers.
  void done(int group);

 private:
  /// A saved tensor as a view of one of the group's storages.
  struct View {
    std::size_t operation;
    std::size_t position;  ///< among the operation's saved tensors
    std::size_t storage;
    std::vector<std::int64_t> sizes, strides;
    std::int64_t offset;
    at::ScalarType type;
  };
  struct Moved {
    at::Tensor host;      ///< bytes
    std::int64_t place;   ///< byte offset in the memory that the group returns to
    std::int64_t length;  ///< bytes
  };
  struct Group {
    Recorded operations = {};
    std::vector<View> views = {};
    std::vector<Moved> storages = {};
    std::int64_t bytes = 0;  ///< with alignment
    at::Tensor back = {};
    bool leaving = false;  ///< copy-out has been issued, but its tensors still hold device memory
    bool away = false;
    bool coming = false;
  };
  /// Calls each(operation, position among its saved tensors, tensor).
  static void visit(const Group& group, const std::function<void(std::size_t, std::size_t, at::Tensor&)>& each);
  bool travels(const at::Tensor& saved) const;
  void start_leaving(Group& group);
  void leave(Group& group);
  void start_back(int group);
  void free_host(Group& group);

  ActivationOffload& owner_;
  std::vector<std::unique_ptr<Group>> groups_ = {};
};

}  // namespace automodel::ops
