#include "parallel/expert/expert_parallel.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include "base/error.h"
#include "ops/graph.h"
#include "ops/row_copies.h"
#include "ops/upload.h"
#include "parallel/expert/exchange.h"

namespace automodel::parallel {
namespace {

using Rows = std::vector<std::int64_t>;

/// Permutation from rows ordered by (source, expert) to rows ordered by (expert, source). `counts` [sources * experts].
Rows sorted_by_expert(const std::int64_t* counts, int sources, std::int64_t experts) {
  Rows first;
  std::int64_t rows = 0;
  for (std::int64_t i = 0; i < sources * experts; ++i) {
    first.push_back(rows);
    rows += counts[i];
  }
  Rows out;
  out.reserve(static_cast<std::size_t>(rows));
  for (std::int64_t e = 0; e < experts; ++e)
    for (std::int64_t s = 0; s < sources; ++s)
      for (std::int64_t i = 0; i < counts[s * experts + e]; ++i)
        out.push_back(first[static_cast<std::size_t>(s * experts + e)] + i);
  return out;
}

/// Source and places (ops::RowCopies) of rows that go to `tensor` ranks each. `sent`: the number for each rank, equal
/// for those `tensor` consecutive ranks that share experts.
std::pair<Rows, Rows> copies_for(const Rows& sent, int tensor) {
  Rows sources, places(static_cast<std::size_t>(std::accumulate(sent.begin(), sent.end(), std::int64_t{0})));
  std::int64_t first = 0;
  for (std::size_t rank = 0; rank < sent.size(); ++rank) {
    const auto copy = static_cast<std::int64_t>(rank) % tensor;
    for (std::int64_t i = 0; i < sent[rank]; ++i) {
      places[static_cast<std::size_t>((first + i) * tensor + copy)] = static_cast<std::int64_t>(sources.size());
      sources.push_back(first + i);
    }
    if (copy == tensor - 1) first += sent[rank];
  }
  return {sources, places};
}

}  // namespace

ExpertParallel::ExpertParallel(std::shared_ptr<comm::Communicator> group, std::shared_ptr<comm::Communicator> tokens,
                               ExpertOptions options)
    : group_(std::move(group)), tokens_(std::move(tokens)), options_(options) {}

model::ExpertRoute ExpertParallel::route(const at::Tensor& rows) {
  const int size = group_->size();
  if (size == 1) return ExpertSeam::route(rows);
  const ops::NoGraph guard;
  const int tensor = options_.tensor, runs = size / tensor;
  const auto here = rows.size(0) / runs;
  AUTOMODEL_CHECK(here * runs == rows.size(0), "experts divide among expert-parallel ranks");
  // Rows for each rank of the group. They are exchanged before the host reads any of them, so that it waits once.
  const auto wanted = rows.view({runs, 1, here}).expand({runs, tensor, here}).reshape({-1});
  const auto arrived = at::empty(wanted.sizes(), wanted.options());
  const Rows each(static_cast<std::size_t>(size), here);
  group_->all_to_all(arrived, wanted, each, each)->wait();
  const auto known = at::cat({wanted, arrived}).cpu();
  const auto* mine = known.const_data_ptr<std::int64_t>();
  const auto* counts = mine + size * here;
  model::ExpertRoute out;
  auto& of_expert = out.rows.counts;
  of_expert.assign(static_cast<std::size_t>(here), 0);
  for (int rank = 0; rank < size; ++rank) {
    out.sent.push_back(std::accumulate(mine + rank * here, mine + (rank + 1) * here, std::int64_t{0}));
    out.received.push_back(std::accumulate(counts + rank * here, counts + (rank + 1) * here, std::int64_t{0}));
    for (std::int64_t e = 0; e < here; ++e) of_expert[static_cast<std::size_t>(e)] += counts[rank * here + e];
  }
  const auto uploaded = [&](const Rows& values) {
    return ops::uploaded(at::tensor(values, at::TensorOptions().dtype(at::kLong)), at::kLong, options_.device);
  };
  if (tensor > 1) {
    const auto [sources, places] = copies_for(out.sent, tensor);
    out.copies = {uploaded(sources), uploaded(places)};
  }
  const auto order = sorted_by_expert(counts, size, here);
  Rows back(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    back[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  out.order = {uploaded(order), uploaded(back)};
  return out;
}

model::RowsInFlight ExpertParallel::send(const at::Tensor& x, const model::ExpertRoute& route, bool back) {
  if (group_->size() == 1) return ExpertSeam::send(x, route, back);
  if (!back)
    return start_exchange(group_, route.copies.defined() ? ops::copied_rows(x, route.copies) : x, route.sent,
                          route.received);
  auto in_flight = start_exchange(group_, x, route.received, route.sent);
  in_flight.copies = route.copies;
  return in_flight;
}

at::Tensor ExpertParallel::arrive(const model::RowsInFlight& in_flight, std::function<void()> departed) {
  if (group_->size() == 1) return ExpertSeam::arrive(in_flight, std::move(departed));
  auto rows = finish_exchange(in_flight, std::move(departed));
  if (!in_flight.copies.defined()) return rows;
  return ops::summed_rows(rows, in_flight.copies, options_.tensor);
}

void ExpertParallel::sum_over_tokens(at::Tensor values) {
  if (tokens_->size() > 1) tokens_->all_reduce(values, comm::ReduceOp::kSum)->wait();
}

model::Placement expert_placement(const arch::Parameter& parameter, int experts, const ExpertPlace& place) {
  const int each = experts / place.size;
  AUTOMODEL_CHECK(each * place.size == experts, "experts divide among expert-parallel ranks");
  if (parameter.expert < 0) {  // gpt-oss's, which have biases: a plan does not divide their width
    AUTOMODEL_CHECK(place.tensor_size == 1, "experts in one tensor are not divided by width");
    return {.slice = model::even_slice(0, experts, place.size, place.rank)};
  }
  model::Placement out{.present = parameter.expert / each == place.rank};
  // The last linear layer of a feed-forward block consumes the outputs of the others: its weight is sharded along the
  // other dimension.
  const int dim = parameter.part == arch::Part::kExpertDown ? 1 : 0;
  if (out.present && place.tensor_size > 1)
    out.slice =
        model::even_slice(dim, parameter.shape[static_cast<std::size_t>(dim)], place.tensor_size, place.tensor_rank);
  return out;
}

}  // namespace automodel::parallel
