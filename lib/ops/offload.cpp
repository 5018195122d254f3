#include "ops/offload.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "base/error.h"

namespace automodel::ops {
namespace {

constexpr std::int64_t kAlignment = 512;  // bytes, as device allocators align

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

at::TensorOptions bytes_on(at::Device device) {
  return at::TensorOptions().dtype(at::kByte).device(device);
}

/// The first `length` bytes of a tensor's storage.
at::Tensor bytes_of(const at::Tensor& any_view, std::int64_t length) {
  return at::empty({0}, bytes_on(any_view.device())).set_(any_view.storage(), 0, {length}, {1});
}

}  // namespace

/// Issues copies, on a stream of their own if the device has streams.
class ActivationOffload::Copies {
 public:
  explicit Copies(at::Device device) : device_(device) {
    if (device.is_cpu()) return;
    implementation_.emplace(device.type());
    stream_ = implementation_->getStreamFromGlobalPool(device);
  }

  /// The copies overlap with later compute, and are ordered after everything enqueued so far.
  void copy(const std::vector<std::pair<at::Tensor, at::Tensor>>& to_from) {
    if (!stream_) {
      for (const auto& [to, from] : to_from) to.copy_(from);
      return;
    }
    mark(current()).block(*stream_);
    const c10::StreamGuard guard(*stream_);
    for (const auto& [to, from] : to_from) to.copy_(from, /*non_blocking=*/true);
  }
  /// Orders later compute after the copies so far.
  void join() {
    if (stream_) mark(*stream_).block(current());
  }

 private:
  c10::Stream current() const { return implementation_->getStream(device_); }
  c10::Event mark(const c10::Stream& stream) const {
    c10::Event event(device_.type());
    event.record(stream);
    return event;
  }

  at::Device device_;
  std::optional<c10::impl::VirtualGuardImpl> implementation_ = {};
  std::optional<c10::Stream> stream_ = {};
};

ActivationOffload::ActivationOffload(at::Device device, plan::ActivationOffloading options)
    : device_(device), options_(options), copies_(std::make_unique<Copies>(device)) {}

ActivationOffload::~ActivationOffload() = default;

std::shared_ptr<ActivationOffload::Pass> ActivationOffload::begin() {
  return std::make_shared<Pass>(*this);
}

at::Tensor ActivationOffload::host_buffer(std::int64_t bytes) {
  counts_.out += bytes;
  counts_.on_host += bytes;
  counts_.most_on_host = std::max(counts_.most_on_host, counts_.on_host);
  if (const auto found = idle_.find(bytes); found != idle_.end()) {
    auto buffer = std::move(found->second);
    idle_.erase(found);
    return buffer;
  }
  ++counts_.host_buffers;
  return at::empty({bytes}, bytes_on(at::kCPU).pinned_memory(!device_.is_cpu()));
}

void ActivationOffload::give_back(at::Tensor buffer) {
  counts_.on_host -= buffer.numel();
  if (options_.retain_host_buffers) idle_.emplace(buffer.numel(), std::move(buffer));
}

at::Tensor ActivationOffload::device_buffer(int group, std::int64_t bytes) {
  auto& slot = slots_[group % 2];
  // A slot that is still partly referenced (by a deferred weight gradient) is left alone, and the group gets a new one.
  if (options_.double_buffering && slot.defined() && slot.numel() >= bytes && slot.storage().use_count() == 1)
    return slot;
  ++counts_.device_buffers;
  auto buffer = at::empty({bytes}, bytes_on(device_));
  if (options_.double_buffering) slot = buffer;
  return buffer;
}

ActivationOffload::Pass::~Pass() {
  for (auto& group : groups_) free_host(*group);
}

Recorded& ActivationOffload::Pass::begin_group() {
  groups_.push_back(std::make_unique<Group>());
  return groups_.back()->operations;
}

void ActivationOffload::Pass::end_group() {
  const NoGraph guard;
  if (groups_.size() > 1) leave(*groups_[groups_.size() - 2]);
  start_leaving(*groups_.back());
}

void ActivationOffload::Pass::finish_forward() {
  const NoGraph guard;
  if (!groups_.empty()) leave(*groups_.back());
}

void ActivationOffload::Pass::visit(const Group& group,
                                    const std::function<void(std::size_t, std::size_t, at::Tensor&)>& each) {
  std::size_t last = 0, position = 0;
  group.operations.visit_saved([&](std::size_t operation, at::Tensor& saved) {
    position = operation == last ? position + 1 : 1;
    last = operation;
    each(operation, position, saved);
  });
}

bool ActivationOffload::Pass::travels(const at::Tensor& saved) const {
  return saved.defined() && saved.device().type() == owner_.device_.type() && saved.nbytes() > 0;
}

void ActivationOffload::Pass::start_leaving(Group& group) {
  std::unordered_map<const void*, std::size_t> known;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  visit(group, [&](std::size_t operation, std::size_t position, at::Tensor& saved) {
    if (!travels(saved)) return;
    const auto [found, fresh] = known.emplace(saved.storage().unsafeGetStorageImpl(), group.storages.size());
    if (fresh) {
      const auto length = static_cast<std::int64_t>(saved.storage().nbytes());
      group.storages.push_back({owner_.host_buffer(length), group.bytes, length});
      group.bytes += aligned(length);
      copies.emplace_back(group.storages.back().host, bytes_of(saved, length));
    }
    group.views.push_back({operation, position, found->second, saved.sizes().vec(), saved.strides().vec(),
                           saved.storage_offset(), saved.scalar_type()});
  });
  owner_.copies_->copy(copies);
  group.leaving = true;
}

void ActivationOffload::Pass::leave(Group& group) {
  if (!group.leaving) return;
  owner_.copies_->join();  // the freed memory may be reused only after the copies
  visit(group, [&](std::size_t, std::size_t, at::Tensor& saved) {
    if (travels(saved)) saved = at::Tensor();
  });
  group.leaving = false;
  group.away = true;
}

void ActivationOffload::Pass::start_back(int number) {
  auto& group = *groups_[static_cast<std::size_t>(number)];
  if (!group.away || group.coming) return;
  group.coming = true;
  if (group.bytes == 0) return;
  group.back = owner_.device_buffer(number, group.bytes);
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  for (const auto& each : group.storages) {
    owner_.counts_.back += each.length;
    copies.emplace_back(group.back.narrow(0, each.place, each.length), each.host);
  }
  owner_.copies_->copy(copies);
}

void ActivationOffload::Pass::announce() {
  const NoGraph guard;
  if (!groups_.empty()) start_back(static_cast<int>(groups_.size()) - 1);
}

void ActivationOffload::Pass::need(int number) {
  const NoGraph guard;
  auto& group = *groups_[static_cast<std::size_t>(number)];
  AUTOMODEL_CHECK(group.away, "a group goes backward that never left, or twice");
  start_back(number);
  owner_.copies_->join();
  auto view = group.views.begin();
  visit(group, [&](std::size_t operation, std::size_t position, at::Tensor& saved) {
    while (view != group.views.end() && view->operation < operation) ++view;  // operations that are gone
    if (view == group.views.end() || view->operation != operation || view->position != position) return;
    const auto first = group.storages[view->storage].place / static_cast<std::int64_t>(at::elementSize(view->type));
    saved = at::empty({0}, at::TensorOptions().dtype(view->type).device(owner_.device_))
                .set_(group.back.storage(), first + view->offset, view->sizes, view->strides);
    ++view;
  });
  group.away = false;
  group.back = at::Tensor();
  if (number > 0) start_back(number - 1);
}

void ActivationOffload::Pass::done(int number) {
  free_host(*groups_[static_cast<std::size_t>(number)]);
}

void ActivationOffload::Pass::free_host(Group& group) {
  for (auto& each : group.storages)
    if (each.host.defined()) owner_.give_back(std::move(each.host));
  group.storages.clear();
}

}  // namespace automodel::ops
