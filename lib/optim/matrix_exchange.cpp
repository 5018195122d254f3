#include "optim/matrix_exchange.h"

#include <algorithm>
#include <numeric>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"

namespace automodel::optim {
namespace {

using Change = std::function<at::Tensor(const at::Tensor&)>;

std::int64_t elements_of(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

/// Cost of a Newton-Schulz iteration, up to a factor.
double work_of(const Matrix& matrix) {
  const auto rows = static_cast<double>(matrix.shape.end()[-2]), columns = static_cast<double>(matrix.shape.back());
  const double few = std::min(rows, columns), many = std::max(rows, columns);
  const double stack = static_cast<double>(elements_of(matrix.shape)) / (rows * columns);
  return stack * few * few * (2 * many + few);
}

/// Greedy balancing: the most expensive matrix first, each to the least loaded rank. The result is the same on every
/// rank.
std::vector<int> assign_owners(const std::vector<Matrix>& matrices, const std::vector<std::size_t>& which, int ranks) {
  auto order = which;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return work_of(matrices[a]) > work_of(matrices[b]); });
  std::vector<double> load(static_cast<std::size_t>(ranks));
  std::vector<int> out(matrices.size(), -1);
  for (const auto index : order) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += work_of(matrices[index]);
    out[index] = static_cast<int>(least - load.begin());
  }
  return out;
}

at::Tensor changed(const at::Tensor& flat, const std::vector<std::int64_t>& shape, const Change& change) {
  const auto stack = flat.view({-1, shape.end()[-2], shape.back()});
  auto out = at::empty_like(stack);
  for (std::int64_t i = 0; i < stack.size(0); ++i) out.select(0, i).copy_(change(stack.select(0, i)));
  return out.view({-1});
}

/// Messages of one all-to-all. send() and expect() must be called in the same order on both sides.
class AllToAll {
 public:
  explicit AllToAll(int ranks) : in_(static_cast<std::size_t>(ranks)), counts_(static_cast<std::size_t>(ranks)) {}
  void send(int to, const at::Tensor& flat) { in_[static_cast<std::size_t>(to)].push_back(flat); }
  void expect(int from, const at::Tensor& into) {
    counts_[static_cast<std::size_t>(from)] += into.numel();
    out_.emplace_back(from, into);
  }
  void exchange(comm::Communicator& group, const at::TensorOptions& options) {
    std::vector<at::Tensor> all;
    std::vector<std::int64_t> sent;
    for (const auto& each : in_) {
      std::int64_t count = 0;
      for (const auto& flat : each) {
        all.push_back(flat);
        count += flat.numel();
      }
      sent.push_back(count);
    }
    const auto in = all.empty() ? at::empty({0}, options) : at::cat(all);
    auto out = at::empty({std::accumulate(counts_.begin(), counts_.end(), std::int64_t{0})}, options);
    group.all_to_all(out, in, counts_, sent)->wait();
    std::vector<std::int64_t> at(counts_.size());
    std::exclusive_scan(counts_.begin(), counts_.end(), at.begin(), std::int64_t{0});
    for (auto& [from, into] : out_) {
      auto& place = at[static_cast<std::size_t>(from)];
      into.copy_(out.narrow(0, place, into.numel()));
      place += into.numel();
    }
  }

 private:
  std::vector<std::vector<at::Tensor>> in_;  ///< by rank
  std::vector<std::int64_t> counts_;         ///< number of elements received, by rank
  std::vector<std::pair<int, at::Tensor>> out_ = {};
};

}  // namespace

MatrixExchange::MatrixExchange(std::vector<Matrix> matrices, MatrixGroups groups)
    : matrices_(std::move(matrices)), groups_(std::move(groups)) {
  if (groups_.shard) shard_rank_ = groups_.shard->rank();
  std::vector<std::size_t> all(matrices_.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  owners_ = assign_owners(matrices_, all, shards());
  std::vector<std::size_t> cut;
  for (const auto index : all)
    if (owners_[index] == shard_rank_ && !matrices_[index].slices.empty()) cut.push_back(index);
  tensor_owners_ = assign_owners(matrices_, cut, std::max<int>(1, static_cast<int>(groups_.tensor_members.size())));
  if (groups_.tensor) {
    const auto& members = groups_.tensor_members;
    const auto here = std::find(members.begin(), members.end(), groups_.tensor->rank());
    AUTOMODEL_CHECK(here != members.end(), "a rank is among those that hold its slices");
    tensor_rank_ = static_cast<int>(here - members.begin());
  }
}

std::int64_t MatrixExchange::own_elements() const {
  std::int64_t out = 0;
  for (std::size_t i = 0; i < matrices_.size(); ++i)
    if (owners_[i] == shard_rank_ && (tensor_owners_[i] < 0 || tensor_owners_[i] == tensor_rank_))
      out += elements_of(matrices_[i].shape);
  return out;
}

std::pair<std::int64_t, std::int64_t> MatrixExchange::held(std::size_t index, int rank) const {
  const auto& matrix = matrices_[index];
  if (!groups_.sharded) return {0, matrix.length};
  const auto begin = std::max(matrix.offset, groups_.length * rank);
  const auto end = std::min(matrix.offset + matrix.length, groups_.length * (rank + 1));
  return {begin - matrix.offset, std::max<std::int64_t>(0, end - begin)};
}

/// Collects this rank's tensor-parallel part of the matrices that it owns among the shards; undefined for the others.
std::vector<at::Tensor> MatrixExchange::collect(const at::Tensor& buffer) const {
  std::vector<at::Tensor> parts(matrices_.size());
  AllToAll messages(shards());
  for (std::size_t i = 0; i < matrices_.size(); ++i) {
    const auto& matrix = matrices_[i];
    const auto [first, length] = held(i, shard_rank_);
    if (owners_[i] == shard_rank_)
      parts[i] = at::empty({matrix.length}, buffer.options());
    else if (length > 0 && groups_.sharded)
      messages.send(owners_[i], buffer.narrow(0, matrix.offset + first - groups_.begin, length));
    if (owners_[i] != shard_rank_) continue;
    if (length > 0)
      parts[i].narrow(0, first, length).copy_(buffer.narrow(0, matrix.offset + first - groups_.begin, length));
    for (int rank = 0; groups_.sharded && rank < shards(); ++rank)
      if (const auto [from, count] = held(i, rank); rank != shard_rank_ && count > 0)
        messages.expect(rank, parts[i].narrow(0, from, count));
  }
  if (groups_.sharded && shards() > 1) messages.exchange(*groups_.shard, buffer.options());
  return parts;
}

/// The inverse of collect().
void MatrixExchange::distribute(const at::Tensor& buffer, const std::vector<at::Tensor>& parts) const {
  AllToAll messages(shards());
  for (std::size_t i = 0; i < matrices_.size(); ++i) {
    const auto [first, length] = held(i, shard_rank_);
    const auto here = length > 0 ? buffer.narrow(0, matrices_[i].offset + first - groups_.begin, length) : at::Tensor();
    if (owners_[i] != shard_rank_) {
      if (length > 0) messages.expect(owners_[i], here);
      continue;
    }
    if (length > 0) here.copy_(parts[i].narrow(0, first, length));
    for (int rank = 0; rank < shards(); ++rank)
      if (const auto [from, count] = held(i, rank); rank != shard_rank_ && count > 0)
        messages.send(rank, parts[i].narrow(0, from, count));
  }
  if (shards() > 1) messages.exchange(*groups_.shard, buffer.options());
}

/// Changes the owned matrices of which tensor-parallel ranks hold slices.
void MatrixExchange::change_sliced(std::vector<at::Tensor>& parts, const Change& change) const {
  const auto& members = groups_.tensor_members;
  const auto options = at::TensorOptions().dtype(at::kBFloat16);
  // All ranks of the tensor group own the same matrices, and take part even if there are none.
  struct Whole {
    std::size_t index;
    std::vector<at::Tensor> slices;  ///< by member
  };
  std::vector<Whole> wholes;
  AllToAll there(groups_.tensor->size()), back(groups_.tensor->size());
  at::TensorOptions device = options;
  for (std::size_t i = 0; i < matrices_.size(); ++i) {
    if (tensor_owners_[i] < 0) continue;
    device = parts[i].options();
    const auto owner = tensor_owners_[i];
    if (owner != tensor_rank_) {
      there.send(members[static_cast<std::size_t>(owner)], parts[i]);
      back.expect(members[static_cast<std::size_t>(owner)], parts[i]);
      continue;
    }
    auto& whole = wholes.emplace_back(Whole{i, {}});
    for (std::size_t m = 0; m < members.size(); ++m) {
      const bool mine = static_cast<int>(m) == tensor_rank_;
      const auto length = elements_of(matrices_[i].slices[m].shape(matrices_[i].shape));
      whole.slices.push_back(mine ? parts[i] : at::empty({length}, device));
      if (!mine) there.expect(members[m], whole.slices.back());
    }
  }
  there.exchange(*groups_.tensor, device);
  for (auto& [index, slices] : wholes) {
    const auto& matrix = matrices_[index];
    auto full = at::zeros({elements_of(matrix.shape)}, device);
    const auto each_run = [&](std::size_t m, const auto& visit) {
      for (const auto& run : model::runs(matrix.slices[m], matrix.shape, 0, slices[m].numel()))
        visit(full.narrow(0, run.full, run.length), slices[m].narrow(0, run.local, run.length));
    };
    for (std::size_t m = 0; m < slices.size(); ++m)
      each_run(m, [](at::Tensor whole, const at::Tensor& slice) { whole.copy_(slice); });
    full = changed(full, matrix.shape, change);
    for (std::size_t m = 0; m < slices.size(); ++m) {
      each_run(m, [](const at::Tensor& whole, at::Tensor slice) { slice.copy_(whole); });
      if (static_cast<int>(m) != tensor_rank_) back.send(members[m], slices[m]);
    }
  }
  back.exchange(*groups_.tensor, device);
}

void MatrixExchange::run(const at::Tensor& buffer, const Change& change) const {
  if (matrices_.empty()) return;
  auto parts = collect(buffer);
  for (std::size_t i = 0; i < matrices_.size(); ++i)
    if (owners_[i] == shard_rank_ && tensor_owners_[i] < 0) parts[i] = changed(parts[i], matrices_[i].shape, change);
  const bool cut = std::any_of(matrices_.begin(), matrices_.end(), [](const Matrix& m) { return !m.slices.empty(); });
  if (cut && groups_.tensor) change_sliced(parts, change);
  distribute(buffer, parts);
}

}  // namespace automodel::optim
