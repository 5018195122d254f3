#include "comm/solo_communicator.h"

#include <limits>
#include <utility>

#include <ATen/core/grad_mode.h>

namespace automodel::comm {
namespace {

class OverAtOnce : public Work {
 public:
  void wait() override {}
  bool done() override { return true; }
};

WorkPtr over() {
  return std::make_unique<OverAtOnce>();
}

WorkPtr copied(const at::Tensor& out, const at::Tensor& in) {
  const at::NoGradGuard no_grad;
  if (out.data_ptr() != in.data_ptr()) out.view(-1).copy_(in.view(-1));
  return over();
}

}  // namespace

SoloCommunicator::SoloCommunicator(int world_rank, std::string name) : Communicator({world_rank}, 0, std::move(name)) {}

int SoloCommunicator::max_tag() const {
  return std::numeric_limits<int>::max();
}

WorkPtr SoloCommunicator::start_all_reduce(const at::Tensor& /*inout*/, ReduceOp /*op*/) {
  return over();
}
WorkPtr SoloCommunicator::start_all_gather(const at::Tensor& out, const at::Tensor& in) {
  return copied(out, in);
}
WorkPtr SoloCommunicator::start_reduce_scatter(const at::Tensor& out, const at::Tensor& in, ReduceOp /*op*/) {
  return copied(out, in);
}
WorkPtr SoloCommunicator::start_all_to_all(const at::Tensor& out, const at::Tensor& in,
                                           std::span<const std::int64_t> /*out_rows*/,
                                           std::span<const std::int64_t> /*in_rows*/) {
  return copied(out, in);
}
WorkPtr SoloCommunicator::start_broadcast(const at::Tensor& /*inout*/, int /*root*/) {
  return over();
}
WorkPtr SoloCommunicator::start_exchange(std::vector<Transfer> /*sends*/, std::vector<Transfer> /*receives*/) {
  return over();
}
WorkPtr SoloCommunicator::start_barrier() {
  return over();
}

}  // namespace automodel::comm
