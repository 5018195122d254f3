#include "parallel/data/unit_storage.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "ops/graph.h"

namespace automodel::parallel {
namespace {

constexpr std::int64_t kAlignment = 16;  // elements: shards begin on cache-line boundaries

void wait_all(std::vector<comm::WorkPtr>& works) {
  for (auto& work : works) work->wait();
  works.clear();
}

std::int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
}

}  // namespace

UnitStorage::UnitStorage(const model::Unit& unit, const StorageOptions& options, const ReduceGroups& groups)
    : unit_(unit), options_(options), groups_(groups), quantized_(unit, options, groups) {
  for (const auto* weight : unit.weights) {
    offsets_.push_back(elements_);
    elements_ += weight->floats();
  }
  const std::int64_t shards = groups.shard->size();
  const std::int64_t grain = shards * kAlignment;
  padded_ = (elements_ + grain - 1) / grain * grain;
  shard_ = padded_ / shards;
  trained_ = unit.trained();
  sharded_ = trained_ ? options.sharding.optimizer : options.sharding.parameters;
  separate_master_ = sharded_ || (trained_ && options.master != options.compute) || options.sharding.offloaded;
  const std::int64_t begin = sharded_ ? groups.shard->rank() * shard_ : 0;
  const std::int64_t end = sharded_ ? begin + shard_ : padded_;
  for (std::size_t i = 0; i < unit.weights.size(); ++i) {
    const auto first = std::max(offsets_[i], begin), last = std::min(offsets_[i] + unit.weights[i]->floats(), end);
    if (first < last) segments_.push_back({unit.weights[i], first - offsets_[i], first - begin, last - first});
  }
}

void UnitStorage::bind(const WeightSource& source) {
  ops::NoGraph guard;
  const auto home = options_.sharding.offloaded ? options_.offload : options_.device;
  const auto type = trained_ ? options_.master : options_.compute;
  master_ = at::zeros({sharded_ ? shard_ : padded_}, at::TensorOptions().dtype(type).device(home));
  for (const auto& segment : segments_)
    source(*segment.weight, segment.first, master_.narrow(0, segment.offset, segment.length));
  quantized_.bind(source);
  const auto compute = at::TensorOptions().dtype(options_.compute).device(options_.device);
  if (!options_.sharding.parameters) {
    values_ = separate_master_ ? at::empty({padded_}, compute) : master_;
    if (separate_master_) publish();
    finish_publish();
    view_values(values_);
    gathered_ = true;
  }
  if (!options_.sharding.gradients) need_gradients();
}

void UnitStorage::view_values(const at::Tensor& flat) {
  for (std::size_t i = 0; i < unit_.weights.size(); ++i) {
    auto& parameter = unit_.weights[i]->parameter;
    if (parameter.quantized) continue;
    parameter.value = flat.narrow(0, offsets_[i], parameter.numel()).view(parameter.shape);
  }
}

void UnitStorage::clear_values() {
  for (auto* weight : unit_.weights) weight->parameter.value = at::Tensor();
}

bool UnitStorage::start_gather() {
  if (gathered_ || !gathering_.empty()) return true;
  if (padded_ > 0 && buffers_ != nullptr) {
    values_ = buffers_->take();
    if (!values_.defined()) return false;
  }
  quantized_.start_gather();
  ops::NoGraph guard;
  const auto compute = at::TensorOptions().dtype(options_.compute).device(options_.device);
  if (!values_.defined()) values_ = at::empty({padded_}, compute);
  compute_shard_ = master_.to(compute);
  if (padded_ > 0) gathering_.push_back(groups_.shard->all_gather(values_, compute_shard_));
  return true;
}

void UnitStorage::finish_gather() {
  if (gathered_) return;
  const bool started = start_gather();
  AUTOMODEL_CHECK(started, "a free buffer to gather into");
  wait_all(gathering_);
  quantized_.finish_gather();
  compute_shard_ = at::Tensor();
  ops::NoGraph guard;
  view_values(values_);
  gathered_ = true;
}

void UnitStorage::release() {
  if (!options_.sharding.parameters || (!gathered_ && gathering_.empty())) return;
  wait_all(gathering_);
  clear_values();
  quantized_.release();
  if (buffers_ != nullptr && values_.defined()) buffers_->give_back(values_);
  values_ = at::Tensor();
  compute_shard_ = at::Tensor();
  gathered_ = false;
}

void UnitStorage::publish() {
  if (options_.sharding.parameters) return release();  // the next use gathers the new values
  if (!trained_ && gathered_) return;
  for (auto* weight : unit_.weights)
    if (const auto& forms = weight->parameter.float8_forms) *forms = {};
  if (!separate_master_) return;
  ops::NoGraph guard;
  if (!sharded_) return void(values_.copy_(master_));
  finish_publish();
  compute_shard_ = master_.to(values_.options());
  gathering_.push_back(groups_.shard->all_gather(values_, compute_shard_));
  if (!options_.sharding.overlap_gather) finish_publish();
}

void UnitStorage::finish_publish() {
  if (gathering_.empty()) return;
  wait_all(gathering_);
  compute_shard_ = at::Tensor();
}

void UnitStorage::begin_step() {
  for (auto* weight : unit_.weights) weight->parameter.fresh = true;
  accumulated_ = false;
  reduced_ = false;
  if (options_.sharding.gradients) reduced_gradient_ = at::Tensor();
}

void UnitStorage::need_gradients() {
  if (!trained_ || (reduced_ && options_.sharding.gradients)) return;
  if (options_.sharding.gradients) advance_reduce();  // gradients in flight must not be added to
  if (grads_.defined()) return;
  ops::NoGraph guard;
  grads_ = at::empty({padded_}, at::TensorOptions().dtype(options_.gradient).device(options_.device));
  grads_.narrow(0, elements_, padded_ - elements_).zero_();
  for (std::size_t i = 0; i < unit_.weights.size(); ++i) {
    auto& weight = *unit_.weights[i];
    if (weight.trained)
      weight.parameter.grad = grads_.narrow(0, offsets_[i], weight.parameter.numel()).view(weight.parameter.shape);
    weight.parameter.fresh = true;
  }
}

/// Zeroes gradients that nothing was added to.
void UnitStorage::zero_untouched() {
  for (std::size_t i = 0; i < unit_.weights.size(); ++i) {
    auto& weight = *unit_.weights[i];
    if (weight.trained && !weight.parameter.fresh) continue;
    grads_.narrow(0, offsets_[i], weight.parameter.numel()).zero_();
    weight.parameter.fresh = false;
  }
}

void UnitStorage::settle() {
  finish_publish();
  if (!trained_) return;
  need_gradients();
  ops::NoGraph guard;
  zero_untouched();
}

void UnitStorage::start_reduce(bool last) {
  if (!trained_ || reduced_) return;
  finish_reduce();
  need_gradients();
  ops::NoGraph guard;
  zero_untouched();
  const bool alone = groups_.shard->size() == 1 && !groups_.replicate;
  auto whole = grads_.scalar_type() == options_.reduce ? grads_ : grads_.to(options_.reduce);
  if (!sharded_) {
    if (!alone) {
      const auto& bucket = options_.sharding.bucket_bytes;
      const auto piece =
          bucket ? std::max<std::int64_t>(1, *bucket / static_cast<std::int64_t>(whole.element_size())) : padded_;
      for (std::int64_t begin = 0; begin < padded_; begin += piece)
        reducing_.push_back(
            groups_.shard->all_reduce(whole.narrow(0, begin, std::min(piece, padded_ - begin)), comm::ReduceOp::kSum));
    }
    in_flight_ = {whole};
  } else if (options_.sharding.gradients && groups_.shard->size() == 1) {
    in_flight_ = {whole};  // the only shard is the whole
  } else {
    auto part = at::empty({shard_}, whole.options());
    reducing_.push_back(groups_.shard->reduce_scatter(part, whole, comm::ReduceOp::kSum));
    in_flight_ = {part, whole};
  }
  reduced_ = last;
}

void UnitStorage::free_gradients() {
  for (auto* weight : unit_.weights) weight->parameter.grad = at::Tensor();
  grads_ = at::Tensor();
}

void UnitStorage::advance_reduce() {
  if (in_flight_.empty() || advanced_) return;
  wait_all(reducing_);
  advanced_ = true;
  ops::NoGraph guard;
  if (groups_.replicate) reducing_.push_back(groups_.replicate->all_reduce(in_flight_.front(), comm::ReduceOp::kSum));
  if (!options_.sharding.gradients) return;
  in_flight_.resize(1);
  free_gradients();
}

void UnitStorage::finish_reduce() {
  if (in_flight_.empty()) return;
  advance_reduce();
  wait_all(reducing_);
  ops::NoGraph guard;
  auto sum = in_flight_.front();
  in_flight_.clear();
  advanced_ = false;
  const auto home = options_.sharding.offloaded ? options_.offload : options_.device;
  if (!options_.sharding.optimizer && !options_.sharding.offloaded && !sum.is_alias_of(grads_))
    sum = grads_.copy_(sum);  // it was converted for communication; avoids a second whole buffer
  sum = sum.to(at::TensorOptions().dtype(options_.gradient).device(home));
  if (accumulated_)
    reduced_gradient_.add_(sum);
  else
    reduced_gradient_ = sum;
  accumulated_ = true;
}

StorageBytes UnitStorage::bytes() const {
  StorageBytes out;
  out.parameters = bytes_of(values_) + quantized_.bytes();
  out.masters = separate_master_ ? bytes_of(master_) : 0;
  out.gradients = bytes_of(grads_);
  if (reduced_gradient_.defined() && !(grads_.defined() && reduced_gradient_.is_alias_of(grads_)))
    out.gradients += bytes_of(reduced_gradient_);
  for (const auto& each : in_flight_)
    if (!(grads_.defined() && each.is_alias_of(grads_))) out.gradients += bytes_of(each);
  return out;
}

}  // namespace automodel::parallel
