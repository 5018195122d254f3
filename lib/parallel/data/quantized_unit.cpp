#include "parallel/data/quantized_unit.h"

#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "ops/graph.h"

namespace automodel::parallel {
namespace {

constexpr std::int64_t kChunk = 1 << 22;  // elements read at a time

at::TensorOptions bytes_on(at::Device device) {
  return at::TensorOptions().dtype(at::kByte).device(device);
}

/// Calls use(first, values) for elements [first, last) of a weight, chunk by chunk of whole blocks.
template <class Use>
void read(const WeightSource& source, const model::Weight& weight, std::int64_t first, std::int64_t last, Use&& use) {
  const auto block = weight.parameter.quantized->block();
  const auto chunk = std::max(block, kChunk / block * block);
  for (; first < last; first += chunk) {
    const auto values =
        at::empty({std::min(chunk, last - first)}, at::TensorOptions().dtype(weight.parameter.quantized->type()));
    source(weight, first, values);
    use(first, values);
  }
}

}  // namespace

QuantizedUnit::QuantizedUnit(const model::Unit& unit, const StorageOptions& options, const ReduceGroups& groups)
    : options_(options), groups_(groups) {
  for (auto* weight : unit.weights) {
    if (!weight->parameter.quantized) continue;
    weights_.push_back(weight);
    offsets_.push_back(padded_);
    padded_ += weight->parameter.quantized->bytes();
  }
  const auto grain = std::int64_t{16} * (sharded() ? groups.shard->size() : 1);
  padded_ = (padded_ + grain - 1) / grain * grain;
  if (sharded()) begin_ = padded_ / groups.shard->size() * groups.shard->rank();
}

void QuantizedUnit::bind(const WeightSource& source) {
  if (empty()) return;
  const ops::NoGraph guard;
  kept_ = at::zeros({sharded() ? padded_ / groups_.shard->size() : padded_}, bytes_on(at::kCPU));
  for (std::size_t i = 0; i < weights_.size(); ++i) fill(source, i);
  const bool away = options_.sharding.offloaded && options_.sharding.parameters;
  kept_ = kept_.to(away ? options_.offload : options_.device);
  if (!options_.sharding.parameters) view_all();
}

void QuantizedUnit::fill(const WeightSource& source, std::size_t index) {
  const auto& weight = *weights_[index];
  const auto& layout = *weight.parameter.quantized;
  const auto first = std::clamp<std::int64_t>(begin_ - offsets_[index], 0, layout.bytes());
  const auto last = std::clamp<std::int64_t>(begin_ + kept_.numel() - offsets_[index], first, layout.bytes());
  if (first == last) return;  // entirely on other ranks
  ops::Quantizer quantizer(layout);
  auto whole = weight;
  whole.slice = {};
  whole.parameter.shape = weight.full;
  // Only the codes that this rank keeps are computed.
  auto encoded = at::zeros({layout.bytes()}, bytes_on(at::kCPU));
  auto* bytes = encoded.mutable_data_ptr<std::uint8_t>();
  const int in_a_byte = layout.format().bits == 4 ? 2 : 1;
  const auto begin = std::min(layout.elements(), first * in_a_byte),
             end = std::min(layout.elements(), last * in_a_byte);
  // A block's codes depend on nothing outside it: of a weight that is whole here everything is read once.
  const bool once = layout.elements() == layout.whole();
  read(source, whole, 0, layout.whole(), [&](std::int64_t at, const at::Tensor& values) {
    quantizer.measure(at, values);
    const auto from = std::max(at, begin), to = std::min(at + values.numel(), end);
    if (once && from < to) quantizer.write_codes(bytes, from, values.narrow(0, from - at, to - from));
  });
  quantizer.write_scales(bytes);
  if (!once)
    read(source, weight, begin, end,
         [&](std::int64_t at, const at::Tensor& values) { quantizer.write_codes(bytes, at, values); });
  kept_.narrow(0, offsets_[index] + first - begin_, last - first).copy_(encoded.narrow(0, first, last - first));
}

void QuantizedUnit::view_all() {
  const auto& whole = gathered_.defined() ? gathered_ : kept_;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    auto& parameter = weights_[i]->parameter;
    parameter.packed = whole.narrow(0, offsets_[i], parameter.quantized->bytes());
  }
}

void QuantizedUnit::start_gather() {
  if (empty() || gathered_.defined() || !options_.sharding.parameters) return;
  const ops::NoGraph guard;
  if (!sharded()) return void(gathered_ = kept_.to(options_.device));
  gathered_ = at::empty({padded_}, bytes_on(options_.device));
  gathering_ = groups_.shard->all_gather(gathered_, kept_.to(options_.device));
}

void QuantizedUnit::finish_gather() {
  if (empty() || !options_.sharding.parameters) return;
  start_gather();
  if (gathering_) gathering_->wait();
  gathering_.reset();
  view_all();
}

void QuantizedUnit::release() {
  if (empty() || !options_.sharding.parameters) return;
  if (gathering_) gathering_->wait();
  gathering_.reset();
  for (auto* weight : weights_) weight->parameter.packed = at::Tensor();
  gathered_ = at::Tensor();
}

std::int64_t QuantizedUnit::bytes() const {
  std::int64_t out = 0;
  if (kept_.defined()) out += static_cast<std::int64_t>(kept_.nbytes());
  if (gathered_.defined() && !gathered_.is_alias_of(kept_)) out += static_cast<std::int64_t>(gathered_.nbytes());
  return out;
}

}  // namespace automodel::parallel
