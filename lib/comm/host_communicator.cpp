#include "comm/host_communicator.h"

#include <utility>

#include "comm/staging.h"

namespace automodel::comm {
namespace {

std::byte* bytes_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr());
}

std::int64_t size_of(const at::Tensor& tensor) {
  return static_cast<std::int64_t>(tensor.nbytes());
}

}  // namespace

class HostCommunicator::HostWork : public Work {
 public:
  HostWork(std::shared_ptr<Engine> engine, std::shared_ptr<Operation> operation, Staging staging)
      : engine_(std::move(engine)), operation_(std::move(operation)), staging_(std::move(staging)) {}
  void wait() override {
    engine_->wait(*operation_);
    staging_.deliver();
  }
  bool done() override {
    if (!operation_->finished()) engine_->poll();
    return operation_->finished();
  }

 private:
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Operation> operation_;
  Staging staging_;
};

HostCommunicator::HostCommunicator(std::vector<int> ranks, int rank, std::string name,
                                   std::shared_ptr<Transport> transport, HostRuntime runtime)
    : Communicator(std::move(ranks), rank, std::move(name)),
      transport_(std::move(transport)),
      runtime_(std::move(runtime)),
      max_tag_(transport_->max_tag() / 2),
      rounds_({this->rank(), size()}, TagSequence(max_tag_ + 1, transport_->max_tag()), runtime_.scratch,
              runtime_.limits) {}

WorkPtr HostCommunicator::launch(OperationLabel label, Program program, std::vector<at::Tensor> keep, Staging staging) {
  auto operation = std::make_shared<Operation>(std::move(label), transport_, std::move(program), std::move(keep));
  runtime_.engine->start(operation);
  return std::make_unique<HostWork>(runtime_.engine, std::move(operation), std::move(staging));
}

WorkPtr HostCommunicator::start_all_reduce(const at::Tensor& inout, ReduceOp op) {
  Staging staging(runtime_.stage_all);
  const at::Tensor host = staging.update(inout);
  Program program = rounds_.all_reduce(bytes_of(host), host.numel(), {host.scalar_type(), op});
  return launch(label("all_reduce"), std::move(program), {host}, std::move(staging));
}

WorkPtr HostCommunicator::start_all_gather(const at::Tensor& out, const at::Tensor& in) {
  Staging staging(runtime_.stage_all);
  const at::Tensor host_in = staging.read(in);
  const at::Tensor host_out = staging.write(out);
  Program program = rounds_.all_gather(bytes_of(host_out), bytes_of(host_in), size_of(host_in));
  return launch(label("all_gather"), std::move(program), {host_in, host_out}, std::move(staging));
}

WorkPtr HostCommunicator::start_reduce_scatter(const at::Tensor& out, const at::Tensor& in, ReduceOp op) {
  Staging staging(runtime_.stage_all);
  const at::Tensor host_in = staging.read(in);
  const at::Tensor host_out = staging.write(out);
  Program program =
      rounds_.reduce_scatter(bytes_of(host_out), bytes_of(host_in), host_out.numel(), {host_in.scalar_type(), op});
  return launch(label("reduce_scatter"), std::move(program), {host_in, host_out}, std::move(staging));
}

WorkPtr HostCommunicator::start_all_to_all(const at::Tensor& out, const at::Tensor& in,
                                           std::span<const std::int64_t> out_rows,
                                           std::span<const std::int64_t> in_rows) {
  Staging staging(runtime_.stage_all);
  const at::Tensor host_in = staging.read(in);
  const at::Tensor host_out = staging.write(out);
  const auto in_bytes_of = [row = row_bytes(in)](std::span<const std::int64_t> rows) {
    std::vector<std::int64_t> bytes;
    for (const std::int64_t count : rows) bytes.push_back(count * row);
    return bytes;
  };
  Program program =
      rounds_.all_to_all(bytes_of(host_out), bytes_of(host_in), in_bytes_of(out_rows), in_bytes_of(in_rows));
  return launch(label("all_to_all"), std::move(program), {host_in, host_out}, std::move(staging));
}

WorkPtr HostCommunicator::start_broadcast(const at::Tensor& inout, int root) {
  Staging staging(runtime_.stage_all);
  const at::Tensor host = rank() == root ? staging.read(inout) : staging.write(inout);
  Program program = rounds_.broadcast(bytes_of(host), size_of(host), root);
  return launch(label("broadcast"), std::move(program), {host}, std::move(staging));
}

WorkPtr HostCommunicator::start_exchange(std::vector<Transfer> sends, std::vector<Transfer> receives) {
  return exchange_as("exchange", name(), sends, receives);
}

WorkPtr HostCommunicator::exchange_as(std::string_view verb, std::string_view group, const std::vector<Transfer>& sends,
                                      const std::vector<Transfer>& receives) {
  Staging staging(runtime_.stage_all);
  std::vector<at::Tensor> keep;
  Round round;
  const auto add = [&](bool outgoing, const Transfer& transfer) {
    keep.push_back(outgoing ? staging.read(transfer.tensor) : staging.write(transfer.tensor));
    add_message(round.pieces, {outgoing, bytes_of(keep.back()), size_of(keep.back()), transfer.peer, transfer.tag});
  };
  for (const Transfer& transfer : receives) add(false, transfer);
  for (const Transfer& transfer : sends) add(true, transfer);
  Program program;
  program.rounds = [round = std::move(round)](std::int64_t, int) { return std::vector<Round>{round}; };
  return launch({verb, std::string(group), ranks()}, std::move(program), std::move(keep), std::move(staging));
}

WorkPtr HostCommunicator::start_barrier() {
  return launch(label("barrier"), rounds_.barrier(), {}, Staging(runtime_.stage_all));
}

}  // namespace automodel::comm
