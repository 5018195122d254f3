#include "comm/communicator.h"

#include <array>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "comm/reduce.h"

namespace automodel::comm {
namespace {

void check_contiguous(const at::Tensor& tensor, const char* verb) {
  AUTOMODEL_CHECK(tensor.defined() && tensor.is_contiguous(), fmt::format("{} needs contiguous tensors", verb));
}

void check_alike(const at::Tensor& out, const at::Tensor& in, const char* verb) {
  check_contiguous(out, verb);
  check_contiguous(in, verb);
  AUTOMODEL_CHECK(out.scalar_type() == in.scalar_type() && out.device() == in.device(),
                  fmt::format("{} needs input and output of one dtype on one device", verb));
}

void check_reducible(const at::Tensor& tensor, const char* verb) {
  AUTOMODEL_CHECK(can_reduce(tensor.scalar_type()),
                  fmt::format("{} of dtype {}", verb, c10::toString(tensor.scalar_type())));
}

void check_rows(const at::Tensor& tensor, std::span<const std::int64_t> rows, int members) {
  AUTOMODEL_CHECK(tensor.dim() >= 1 && std::cmp_equal(rows.size(), members), "all_to_all needs one row count a member");
  std::int64_t sum = 0;
  for (const std::int64_t count : rows) {
    AUTOMODEL_CHECK(count >= 0, "all_to_all with a negative row count");
    sum += count;
  }
  AUTOMODEL_CHECK(sum == tensor.size(0),
                  fmt::format("all_to_all with row counts of {} for {} rows", sum, tensor.size(0)));
}

}  // namespace

std::string_view name_of(ReduceOp op) {
  constexpr std::array<std::string_view, 3> kNames = {"sum", "max", "min"};
  return kNames.at(static_cast<std::size_t>(op));
}

std::int64_t row_bytes(const at::Tensor& tensor) {
  const auto sizes = tensor.sizes().slice(1);
  return std::accumulate(sizes.begin(), sizes.end(), static_cast<std::int64_t>(tensor.element_size()),
                         [](std::int64_t a, std::int64_t b) { return a * b; });
}

Communicator::Communicator(std::vector<int> ranks, int rank, std::string name)
    : ranks_(std::move(ranks)), rank_(rank), name_(std::move(name)) {}

void Communicator::check_traffic(bool carried, const char* verb) const {
  AUTOMODEL_CHECK(carried || !traffic_.any(), fmt::format("{} in group '{}', which was not made for it", verb, name()));
}

WorkPtr Communicator::all_reduce(const at::Tensor& inout, ReduceOp op) {
  check_traffic(traffic_.collectives, "all_reduce");
  check_contiguous(inout, "all_reduce");
  check_reducible(inout, "all_reduce");
  return start_all_reduce(inout, op);
}

WorkPtr Communicator::all_gather(const at::Tensor& out, const at::Tensor& in) {
  check_traffic(traffic_.collectives, "all_gather");
  check_alike(out, in, "all_gather");
  AUTOMODEL_CHECK(out.numel() == size() * in.numel(),
                  fmt::format("all_gather of {} x {} elements into {}", size(), in.numel(), out.numel()));
  return start_all_gather(out, in);
}

WorkPtr Communicator::reduce_scatter(const at::Tensor& out, const at::Tensor& in, ReduceOp op) {
  check_traffic(traffic_.collectives, "reduce_scatter");
  check_alike(out, in, "reduce_scatter");
  check_reducible(in, "reduce_scatter");
  AUTOMODEL_CHECK(in.numel() == size() * out.numel(),
                  fmt::format("reduce_scatter of {} elements into {} x {}", in.numel(), size(), out.numel()));
  return start_reduce_scatter(out, in, op);
}

WorkPtr Communicator::all_to_all(const at::Tensor& out, const at::Tensor& in, std::span<const std::int64_t> out_rows,
                                 std::span<const std::int64_t> in_rows) {
  check_traffic(traffic_.all_to_all, "all_to_all");
  check_alike(out, in, "all_to_all");
  check_rows(out, out_rows, size());
  check_rows(in, in_rows, size());
  AUTOMODEL_CHECK(row_bytes(out) == row_bytes(in), "all_to_all between rows of different sizes");
  return start_all_to_all(out, in, out_rows, in_rows);
}

WorkPtr Communicator::broadcast(const at::Tensor& inout, int root) {
  check_traffic(traffic_.collectives, "broadcast");
  check_contiguous(inout, "broadcast");
  AUTOMODEL_CHECK(root >= 0 && root < size(), fmt::format("broadcast from {} in a group of {}", root, size()));
  return start_broadcast(inout, root);
}

WorkPtr Communicator::exchange(std::vector<Transfer> sends, std::vector<Transfer> receives) {
  check_traffic(traffic_.messages, "exchange");
  for (const auto* list : {&sends, &receives})
    for (const Transfer& transfer : *list) {
      check_contiguous(transfer.tensor, "exchange");
      AUTOMODEL_CHECK(transfer.peer >= 0 && transfer.peer < size() && transfer.peer != rank(),
                      fmt::format("exchange of rank {} with rank {} in a group of {}", rank(), transfer.peer, size()));
      AUTOMODEL_CHECK(transfer.tag >= 0 && transfer.tag <= max_tag(),
                      fmt::format("exchange with tag {}, the largest is {}", transfer.tag, max_tag()));
    }
  return start_exchange(std::move(sends), std::move(receives));
}

WorkPtr Communicator::barrier() {
  return start_barrier();
}

}  // namespace automodel::comm
