#include "parallel/data/data_parallel.h"

#include <utility>

#include "base/error.h"
#include "ops/parameter.h"

namespace automodel::parallel {

DataParallel::DataParallel(model::Weights& weights, StorageOptions options, ReduceGroups dense, ReduceGroups expert)
    : options_(options), dense_(std::move(dense)), expert_(std::move(expert)) {
  for (const auto& unit : weights.units())
    storages_.push_back(std::make_unique<UnitStorage>(unit, options_, unit.expert ? expert_ : dense_));
  if (options_.sharding.double_buffer) share_buffers();
}

void DataParallel::share_buffers() {
  for (int i = 0; i < static_cast<int>(storages_.size()); ++i) {
    const auto& unit = at(i).unit();
    const auto& info = unit.weights.front()->info;
    if (info.layer < 0 || !frees(i)) continue;
    const auto size = at(i).padded_elements();
    const auto made = buffers_.try_emplace({unit.expert, unit.trained(), info.role == arch::Role::kAdapter, size}, size,
                                           at::TensorOptions().dtype(options_.compute).device(options_.device));
    at(i).share(made.first->second);
  }
}

void DataParallel::free_buffer(int unit) {
  for (auto& storage : storages_)
    if (storage.get() != &at(unit) && storage->buffers() == at(unit).buffers()) storage->release();
}

void DataParallel::bind(const WeightSource& source) {
  for (auto& storage : storages_) storage->bind(source);
}

void DataParallel::gather(int unit, int ahead, int direction) {
  if (!options_.sharding.parameters) return at(unit).finish_publish();
  if (!at(unit).start_gather()) {
    free_buffer(unit);
    at(unit).start_gather();
  }
  if (options_.sharding.overlap_gather)  // as far as buffers are free
    for (int i = 1; i <= ahead; ++i) {
      const int next = unit + i * direction;
      if (next >= 0 && next < static_cast<int>(storages_.size())) at(next).start_gather();
    }
  at(unit).finish_gather();
}

void DataParallel::unshard() {
  if (!options_.sharding.parameters) return;
  for (int unit = 0; unit < static_cast<int>(storages_.size()); ++unit)
    if (!frees(unit)) at(unit).start_gather();
}

void DataParallel::reshard() {
  for (auto& storage : storages_) storage->release();
}

void DataParallel::before_forward(int unit) {
  gather(unit, options_.sharding.forward_prefetch, 1);
}

void DataParallel::after_forward(int unit) {
  // The last unit stays gathered: its backward pass comes first.
  if (frees(unit) && unit + 1 < static_cast<int>(storages_.size())) at(unit).release();
}

void DataParallel::before_backward(int unit) {
  gather(unit, options_.sharding.backward_prefetch, -1);
  at(unit).need_gradients();
}

void DataParallel::after_backward(int unit) {
  if (frees(unit)) at(unit).release();
  if (ops::WeightGradients::current() != nullptr) return;  // its weight gradients are deferred
  for (const auto* weight : at(unit).unit().weights)
    if (weight->parameter.waiting != nullptr && !weight->parameter.waiting->empty()) return;
  if (options_.sharding.whole_stage) return;  // other layers of the unit have yet to run backward
  if (last_backward_ && options_.sharding.overlap_reduction)
    start_reduce(at(unit), true);
  else if (!options_.sharding.defer_reduction && options_.sharding.gradients)
    start_reduce(at(unit), last_backward_);
}

void DataParallel::start_reduce(UnitStorage& storage, bool last) {
  if (!storage.unit().trained()) return;
  storage.start_reduce(last);
  auto* const before = std::exchange(in_flight_, &storage);
  if (before == nullptr || before == &storage || !options_.sharding.gradients) return;
  before->advance_reduce();
  auto* const earlier = std::exchange(arrived_, before);
  if (earlier != nullptr && earlier != before && earlier != &storage) earlier->finish_reduce();
}

void DataParallel::weight_gradients_begin() {
  for (auto& storage : storages_) storage->need_gradients();
}

void DataParallel::weight_gradients_done() {
  if (options_.sharding.defer_reduction || !options_.sharding.gradients || last_backward_ ||
      options_.sharding.whole_stage)
    return;
  for (auto storage = storages_.rbegin(); storage != storages_.rend(); ++storage) start_reduce(**storage, false);
}

void DataParallel::settle() {
  AUTOMODEL_CHECK(!options_.sharding.gradients, "sharded gradients have no memory that stays");
  for (auto& storage : storages_) storage->settle();
}

void DataParallel::begin_step() {
  last_backward_ = false;
  in_flight_ = arrived_ = nullptr;
  for (auto& storage : storages_) storage->begin_step();
}

void DataParallel::reduce() {
  // In the order in which the backward pass completes them: last unit first.
  for (auto storage = storages_.rbegin(); storage != storages_.rend(); ++storage) start_reduce(**storage, true);
}

void DataParallel::finish() {
  for (auto storage = storages_.rbegin(); storage != storages_.rend(); ++storage) {
    (*storage)->start_reduce(true);
    (*storage)->finish_reduce();
  }
}

void DataParallel::publish() {
  for (auto& storage : storages_) storage->publish();
}

std::vector<UnitStorage*> DataParallel::storages() {
  std::vector<UnitStorage*> out;
  for (auto& storage : storages_) out.push_back(storage.get());
  return out;
}

StorageBytes DataParallel::bytes() const {
  StorageBytes total;
  for (const auto& [kind, buffers] : buffers_) total.parameters += buffers.free_bytes();
  for (const auto& storage : storages_) {
    const auto each = storage->bytes();
    total.parameters += each.parameters;
    total.masters += each.masters;
    total.gradients += each.gradients;
  }
  return total;
}

}  // namespace automodel::parallel
