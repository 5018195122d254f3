#include "parallel/tensor/shares.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

namespace automodel::parallel {
namespace {

/// The partner of `me` in a step: in each step all ranks send to different ranks.
int partner(int me, int step, int size) {
  return (me + step) % size;
}

}  // namespace

ShareGather::ShareGather(comm::Communicator& group, const at::Tensor& mine)
    : group_(group), shares_(static_cast<std::size_t>(group.size())), works_(shares_.size()) {
  const int n = group.size(), me = group.rank();
  shares_[static_cast<std::size_t>(me)] = mine;
  for (int step = 1; step < n; ++step) {
    // Shares are used in the order in which they should arrive: in each step, that of the rank which sends to this one.
    const int to = partner(me, step, n), from = partner(me, n - step, n);
    auto& share = shares_[static_cast<std::size_t>(from)];
    share = at::empty(mine.sizes(), mine.options());
    works_[static_cast<std::size_t>(from)] = group.exchange({{mine, to, 0}}, {{share, from, 0}});
  }
}

void ShareGather::each(const std::function<void(int, const at::Tensor&)>& use) {
  const int n = group_.size(), me = group_.rank();
  for (int step = 0; step < n; ++step) {
    const auto from = static_cast<std::size_t>(partner(me, n - step, n));
    if (works_[from]) works_[from]->wait();
    works_[from].reset();
    use(static_cast<int>(from), shares_[from]);
  }
}

at::Tensor sum_shares(comm::Communicator& group, const at::Tensor& like, const std::function<at::Tensor(int)>& make) {
  const int n = group.size(), me = group.rank();
  std::vector<at::Tensor> parts(static_cast<std::size_t>(n));
  std::vector<comm::WorkPtr> works;
  for (int step = 1; step < n; ++step) {
    const int to = partner(me, step, n), from = partner(me, n - step, n);
    auto& part = parts[static_cast<std::size_t>(from)];
    part = at::empty(like.sizes(), like.options());
    works.push_back(group.exchange({{make(to), to, 0}}, {{part, from, 0}}));
  }
  parts[static_cast<std::size_t>(me)] = make(me);
  for (auto& work : works) work->wait();
  // 16-bit types are summed in float and rounded once, as in the collectives.
  const bool narrow = like.scalar_type() == at::kBFloat16 || like.scalar_type() == at::kHalf;
  auto sum = narrow ? parts[0].to(at::kFloat) : parts[0].clone();
  for (std::size_t i = 1; i < parts.size(); ++i) sum.add_(parts[i]);
  return sum.to(like.scalar_type());
}

}  // namespace automodel::parallel
