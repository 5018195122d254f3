#include "train/world_sums.h"

#include <algorithm>
#include <vector>

#include <ATen/ops/tensor.h>

namespace automodel::train {

void sum_over_world(comm::World& world, std::span<double> values, std::span<double> more) {
  std::vector<double> all(values.begin(), values.end());
  all.insert(all.end(), more.begin(), more.end());
  auto tensor = at::tensor(all, at::TensorOptions().dtype(at::kDouble));
  world.control().all_reduce(tensor, comm::ReduceOp::kSum)->wait();
  const double* sums = tensor.const_data_ptr<double>();
  std::copy_n(sums, values.size(), values.begin());
  std::copy_n(sums + values.size(), more.size(), more.begin());
}

}  // namespace automodel::train
