#include "train/snapshot.h"

#include <algorithm>
#include <limits>
#include <map>

#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty.h>

#include "checkpoint/format/adapter.h"
#include "model/slice.h"
#include "ops/graph.h"
#include "ops/scalar_type.h"
#include "train/weight_files.h"

namespace automodel::train {
namespace {

constexpr std::uint64_t kOptimizerFile = std::uint64_t{1} << 30;
constexpr std::uint64_t kOneFile = std::uint64_t{1} << 62;

/// The number of ranks that hold the same elements of a target, and this rank's index among them.
std::pair<std::int64_t, std::int64_t> replicas(const parallel::ReduceGroups& groups, bool whole) {
  std::int64_t count = 1, index = 0;
  if (whole) {
    count = groups.shard->size();
    index = groups.shard->rank();
  }
  if (groups.replicate) {
    index += count * groups.replicate->rank();
    count *= groups.replicate->size();
  }
  return {count, index};
}

/// The largest finite value of a type.
double largest(at::ScalarType type) {
  if (type == at::kHalf) return std::numeric_limits<at::Half>::max();
  if (type == at::kBFloat16) return std::numeric_limits<at::BFloat16>::max();
  if (type == at::kFloat) return std::numeric_limits<float>::max();
  return std::numeric_limits<double>::max();
}

}  // namespace

std::string state_name(std::string_view parameter, std::string_view state) {
  return std::string(parameter) + "." + std::string(state);
}

Snapshot::Snapshot(Runtime& runtime, at::ScalarType stored)
    : runtime_(runtime), stored_(stored), master_(scalar_type(runtime.plan().types.master)) {
  // In the order of Runtime's targets: one per unit storage.
  for (auto* stage : runtime.stages())
    for (auto* storage : stage->data_parallel().storages()) {
      const bool whole = !storage->sharded();
      const auto& groups = storage->unit().expert ? runtime.groups().expert : runtime.groups().dense;
      const auto [count, index] = replicas(groups, whole);
      const auto length = storage->master().numel();
      Buffer buffer{.begin = length * index / count, .end = length * (index + 1) / count};
      for (const auto& segment : storage->segments()) {
        const auto begin = std::max(segment.offset, buffer.begin);
        const auto end = std::min(segment.offset + segment.length, buffer.end);
        if (begin >= end || segment.weight->copy || (adapters_only() && !segment.weight->trained)) continue;
        // Experts have no replicas along the tensor axis: the expert grid assigns them.
        if (!segment.weight->expert && !first_of_its_kind(*segment.weight, runtime.place().tp)) continue;
        buffer.shares.push_back({segment.weight, segment.first + begin - segment.offset, begin, end - begin,
                                 segment.weight->trained, needs_whole_matrix(segment.weight->info)});
      }
      buffers_.push_back(std::move(buffer));
    }
}

bool Snapshot::adapters_only() const {
  return runtime_.plan().adapters.has_value();
}

bool Snapshot::needs_whole_matrix(const arch::Parameter& parameter) const {
  return optim::needs_whole_matrix(runtime_.plan().optimizer, parameter);
}

Snapshot::Host Snapshot::on_host(Buffer& buffer, std::size_t which, const at::Tensor& live, std::int64_t first,
                                 bool copy) {
  const auto begin = std::clamp(buffer.begin, first, first + live.numel());
  const auto end = std::clamp(buffer.end, begin, first + live.numel());
  const auto part = live.narrow(0, begin - first, end - begin);
  if (part.is_cpu() && !copy) return {part, begin};
  if (buffer.copies.size() <= which) buffer.copies.resize(which + 1);
  auto& kept = buffer.copies[which];
  if (!kept.defined())
    kept = at::empty({part.numel()}, at::TensorOptions().dtype(part.scalar_type()).pinned_memory(!part.is_cpu()));
  return {kept.copy_(part), begin};
}

void Snapshot::add_pieces(checkpoint::TensorPart& part, const Buffer& buffer, const Host& host, std::string_view state,
                          const std::function<bool(const Share&)>& chosen) const {
  const auto type = element_type(host.tensor.scalar_type());
  const auto size = checkpoint::bits_of(type) / 8;
  const auto* bytes = static_cast<const char*>(host.tensor.const_data_ptr());
  for (const auto& share : buffer.shares) {
    if (chosen && !chosen(share)) continue;
    const auto& fqn = share.weight->info.fqn;
    const bool whole_model = state.empty() && !adapters_only();
    const auto written = whole_model ? checkpoint::written_as(share.weight->info, runtime_.plan().model->spec)
                                     : checkpoint::WrittenWeight();
    for (const auto& run : model::runs(share.weight->slice, share.weight->full, share.first, share.length))
      part.pieces.push_back({.tensor = whole_model      ? written.name
                                       : !state.empty() ? state_name(fqn, state)
                                                        : checkpoint::stored_adapter_name(fqn),
                             .first = written.first + run.full,
                             .count = run.length,
                             .type = type,
                             .data = bytes + (share.offset - host.first + run.local - share.first) * size});
  }
}

std::string Snapshot::beyond(const Buffer& buffer, const at::Tensor& live, std::int64_t first, std::string_view state,
                             double limit) {
  const auto within = [&](std::int64_t offset, std::int64_t length) {
    const auto begin = std::clamp(offset, first, first + live.numel());
    const auto end = std::clamp(offset + length, begin, first + live.numel());
    if (begin == end) return true;
    const auto [least, most] = at::aminmax(live.narrow(0, begin - first, end - begin));  // a NaN makes both NaN
    return least.item<double>() >= -limit && most.item<double>() <= limit;
  };
  if (within(buffer.begin, buffer.end - buffer.begin)) return "";
  for (const auto& share : buffer.shares)  // limits that a model stores (Gemma 4's) may be infinite
    if (share.weight->info.trainable && !within(share.offset, share.length))
      return state.empty() ? share.weight->info.fqn : state_name(share.weight->info.fqn, state);
  return "";  // it is in padding, or in elements that another rank writes
}

std::string Snapshot::not_finite() const {
  const ops::NoGraph guard;
  const auto& optimizer = runtime_.optimizer();
  const double limit = std::min(largest(stored_), largest(master_));
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const auto& buffer = buffers_[i];
    if (buffer.shares.empty()) continue;
    if (auto found = beyond(buffer, optimizer.targets()[i].value, 0, "", limit); !found.empty()) return found;
    at::Tensor seen;
    for (const auto& state : optimizer.states(i)) {
      if (seen.is_same(state.tensor)) continue;
      seen = state.tensor;
      const double most = largest(state.tensor.scalar_type());
      if (auto found = beyond(buffer, state.tensor, state.first, state.name, most); !found.empty()) return found;
    }
  }
  return "";
}

std::uint64_t Snapshot::bytes() const {
  const auto& optimizer = runtime_.optimizer();
  std::uint64_t out = 0;
  for (std::size_t i = 0; i < buffers_.size(); ++i)
    for (const auto& share : buffers_[i].shares) {
      std::uint64_t size = c10::elementSize(stored_) + (stored_ == master_ ? 0 : c10::elementSize(master_));
      for (const auto& state : optimizer.states(i))
        if (share.trained && state.belongs_to(share.whole)) size += state.tensor.element_size();
      out += size * static_cast<std::uint64_t>(share.length);
    }
  for (const auto& kept : runtime_.kept_parts())
    out += c10::elementSize(stored_) * static_cast<std::uint64_t>(kept.values.numel());
  return out;
}

std::vector<checkpoint::TensorPart> Snapshot::take(bool copy, std::uint64_t most_bytes) {
  const ops::NoGraph guard;
  const auto& optimizer = runtime_.optimizer();
  std::vector<checkpoint::TensorInfo> weights, states;
  for (const auto& info : plan::all_parameters(runtime_.plan())) {
    if (!info.tied_to.empty() || (adapters_only() && info.frozen)) continue;
    const std::vector<std::int64_t> shape(info.shape.begin(), info.shape.end());
    if (adapters_only()) {
      weights.push_back({checkpoint::stored_adapter_name(info.fqn), element_type(stored_), shape});
    } else {
      const auto written = checkpoint::written_as(info, runtime_.plan().model->spec);
      const bool numbers = info.part == arch::Part::kRouterTable;
      if (written.first == 0)
        weights.push_back(
            {written.name, numbers ? checkpoint::ElementType::kI64 : element_type(stored_), written.shape});
    }
    if (stored_ != master_ && !info.frozen && !info.cached)
      states.push_back({state_name(info.fqn, kMasterState), element_type(master_), shape});
    if (!info.trained()) continue;
    for (const auto& state : optimizer.state_names(needs_whole_matrix(info)))
      states.push_back({state_name(info.fqn, state), element_type(optimizer.state_type(state, master_)), shape});
  }
  // The PEFT library reads only a single file.
  const auto layout = adapters_only() ? checkpoint::lay_out_folder(weights, checkpoint::kAdapterStem, kOneFile)
                                      : checkpoint::lay_out_folder(weights, "model", most_bytes);
  checkpoint::TensorPart model{"model", layout, {}};
  checkpoint::TensorPart optim{"optim", checkpoint::lay_out_folder(states, kOptimizerStem, kOptimizerFile), {}};
  for (const auto& kept : runtime_.kept_parts()) {
    const auto written = checkpoint::written_as(kept.info, runtime_.plan().model->spec);
    model.pieces.push_back({.tensor = written.name,
                            .first = written.first + kept.first,
                            .count = kept.values.numel(),
                            .type = element_type(kept.values.scalar_type()),
                            .data = static_cast<const char*>(kept.values.const_data_ptr())});
  }
  const auto not_frozen = [](const Share& share) { return !share.weight->info.frozen; };
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i].shares.empty()) continue;
    std::size_t which = 0;
    const auto values = on_host(buffers_[i], which++, optimizer.targets()[i].value, 0, copy);
    add_pieces(model, buffers_[i], values, "");
    if (stored_ != master_) add_pieces(optim, buffers_[i], values, kMasterState, not_frozen);
    at::Tensor live;
    Host host;
    for (const auto& state : optimizer.states(i)) {
      if (!live.is_same(state.tensor)) host = on_host(buffers_[i], which++, state.tensor, state.first, copy);
      live = state.tensor;
      add_pieces(optim, buffers_[i], host, state.name,
                 [&](const Share& share) { return share.trained && state.belongs_to(share.whole); });
    }
  }
  return {std::move(model), std::move(optim)};
}

}  // namespace automodel::train
