// docs/precision.md checked on the tensors of a run: weights in use, the residual stream, matmuls, messages,
// reductions, gradients, masters and moments have the types that the plan says, for every row that a CPU runs.
#include <map>
#include <set>

#include <fmt/format.h>

#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>

#include "ops/host_matmul.h"
#include "ops/scalar_type.h"
#include "parity/parity.h"
#include "plan/communicators.h"
#include "plan/precision_rows.h"
#include "rank_suite.h"
#include "train/initial_values.h"
#include "train/microbatches.h"
#include "train/setup.h"
#include "train/trainer.h"

namespace automodel {
namespace {

using Types = std::set<at::ScalarType>;

/// The types of a rank's tensors, by role.
using Seen = std::map<std::string, Types>;

std::string text_of(const Types& types) {
  std::string out;
  for (const auto type : types) out += (out.empty() ? "" : ", ") + std::string(c10::toString(type));
  return out.empty() ? "nothing" : out;
}

/// Records the types of tensors communicated in a group.
class WatchedGroup : public comm::Communicator {
 public:
  WatchedGroup(std::shared_ptr<comm::Communicator> group, Seen& seen)
      : Communicator(group->ranks(), group->rank(), group->name()), group_(std::move(group)), seen_(seen) {}
  int max_tag() const override { return group_->max_tag(); }

 protected:
  comm::WorkPtr start_all_reduce(const at::Tensor& inout, comm::ReduceOp op) override {
    note("sum", inout);
    return group_->all_reduce(inout, op);
  }
  comm::WorkPtr start_all_gather(const at::Tensor& out, const at::Tensor& in) override {
    note("gather", in);
    return group_->all_gather(out, in);
  }
  comm::WorkPtr start_reduce_scatter(const at::Tensor& out, const at::Tensor& in, comm::ReduceOp op) override {
    note("sum", in);
    return group_->reduce_scatter(out, in, op);
  }
  comm::WorkPtr start_all_to_all(const at::Tensor& out, const at::Tensor& in, std::span<const std::int64_t> out_rows,
                                 std::span<const std::int64_t> in_rows) override {
    return group_->all_to_all(out, in, out_rows, in_rows);
  }
  comm::WorkPtr start_broadcast(const at::Tensor& inout, int root) override { return group_->broadcast(inout, root); }
  comm::WorkPtr start_exchange(std::vector<comm::Transfer> sends, std::vector<comm::Transfer> receives) override {
    for (const auto& each : sends) note("message", each.tensor);
    return group_->exchange(std::move(sends), std::move(receives));
  }
  comm::WorkPtr start_barrier() override { return group_->barrier(); }

 private:
  void note(const char* what, const at::Tensor& tensor) {
    if (tensor.is_floating_point()) seen_[name() + " " + what].insert(tensor.scalar_type());
  }

  std::shared_ptr<comm::Communicator> group_;
  Seen& seen_;
};

/// Records the types that a stage computes with, between the stage and its engine.
class WatchedUnits : public model::UnitObserver {
 public:
  WatchedUnits(train::LocalStage& stage, Seen& seen) : stage_(stage), seen_(seen) { stage.model().set_observer(this); }
  ~WatchedUnits() override { stage_.model().set_observer(&stage_.data_parallel()); }
  void before_forward(int unit) override {
    stage_.data_parallel().before_forward(unit);
    each(unit, [&](const ops::Parameter& p) { seen_["weights"].insert(p.value.scalar_type()); });
  }
  void after_forward(int unit) override { stage_.data_parallel().after_forward(unit); }
  void before_backward(int unit) override {
    stage_.data_parallel().before_backward(unit);
    each(unit, [&](const ops::Parameter& p) {
      seen_["weights"].insert(p.value.scalar_type());
      seen_["gradients"].insert(p.grad.scalar_type());
    });
  }
  void after_backward(int unit) override { stage_.data_parallel().after_backward(unit); }
  void before_gradients(int unit) override { stage_.data_parallel().before_gradients(unit); }

 private:
  template <class Visit>
  void each(int unit, const Visit& visit) {
    const auto& units = stage_.model().weights().units();
    for (const auto* weight : units[static_cast<std::size_t>(unit)].weights) visit(weight->parameter);
  }

  train::LocalStage& stage_;
  Seen& seen_;
};

thread_local Seen* watching_products = nullptr;

/// Records the operand types of matmuls on this thread while the object exists.
class WatchedProducts {
 public:
  explicit WatchedProducts(Seen& seen) {
    watching_products = &seen;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(note).needsInputs(true).scopes(
        {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  }
  ~WatchedProducts() {
    at::removeCallback(handle_);
    watching_products = nullptr;
  }

 private:
  static std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& function) {
    const std::string name = function.name();
    if (watching_products == nullptr || (name != "aten::mm" && name != "aten::addmm")) return nullptr;
    // The last two tensors are multiplied; addmm has the addend before them.
    const auto inputs = function.inputs();
    const std::size_t first = name == "aten::mm" ? 0 : 1;
    for (std::size_t i = first; i < first + 2 && i < inputs.size(); ++i)
      if (inputs[i].isTensor()) (*watching_products)["products"].insert(inputs[i].toTensor().scalar_type());
    return nullptr;
  }

  at::CallbackHandle handle_ = 0;
};

void check_row(comm::World& world, const test::PrecisionRow& row) {
  const auto text = test::recipe_of(
      row,
      "pp_size: 2, dp_size: 2, pipeline: {pp_schedule: Interleaved1F1B, pp_microbatch_size: 1, layers_per_stage: 1}");
  const auto loaded = test::load_recipe(text);
  const train::Setup setup(loaded, world);
  Seen seen;
  world.use_device(at::kCPU, [&](comm::World&, std::shared_ptr<comm::HostCommunicator> group, comm::Traffic) {
    return std::make_shared<WatchedGroup>(std::move(group), seen);
  });
  train::Runtime runtime(setup.plan, world, train::initial_values(setup.plan));
  train::Trainer trainer(runtime, *setup.rates);
  std::vector<std::unique_ptr<WatchedUnits>> units;
  for (auto* stage : runtime.stages()) units.push_back(std::make_unique<WatchedUnits>(*stage, seen));
  const auto batches = setup.loader->load(0, 0);
  {
    const WatchedProducts products(seen);
    trainer.step(0, batches, false);
  }
  for (auto* stage : runtime.stages()) {
    for (auto* storage : stage->data_parallel().storages()) {
      seen["masters"].insert(storage->master().scalar_type());
      seen["reduced gradients"].insert(storage->gradient().scalar_type());
    }
    const bool ends = stage->model().modules().embeddings || stage->model().modules().head;
    if (ends) continue;  // a middle stage receives and sends hidden states
    const ops::NoGraph guard;
    const auto microbatch = train::make_microbatches(batches[0], 1, at::kCPU).front();
    const auto hidden = at::zeros({1, 16, 16}, at::TensorOptions().dtype(scalar_type(setup.plan.types.message)));
    seen["residual stream"].insert(stage->model().forward(microbatch, hidden, {}).scalar_type());
  }
  const auto& optimizer = runtime.optimizer();
  for (std::size_t i = 0; i < optimizer.targets().size(); ++i)
    for (const auto& state : optimizer.states(i)) seen[state.name].insert(state.tensor.scalar_type());

  const auto& types = setup.plan.types;
  const auto pipeline = std::string(plan::name_of(plan::Channel::kPipeline));
  const auto shard = std::string(plan::name_of(plan::Channel::kDenseShard));
  const auto expect = [&](const std::string& role, DType type) {
    const Types expected = {scalar_type(type)};
    if (seen[role] != expected)
      test::rank_check_failed(
          __FILE__, __LINE__,
          fmt::format("{}: {} where the plan says {}\n{}", role, text_of(seen[role]), text_of(expected), text));
  };
  expect("weights", types.compute);
  // Our own tiles are no operation that can be watched, and take every product of bfloat16 on some processors.
  const auto products = setup.plan.execution.precision.autocast.value_or(types.compute);
  if (products != DType::kBFloat16 || !ops::has_own_matmul<c10::BFloat16>() || !seen["products"].empty())
    expect("products", products);
  expect("residual stream", types.cast_inputs ? types.compute : types.message);
  expect(pipeline + " message", types.message);
  expect("gradients", types.gradient);
  expect(shard + " sum", types.reduce);
  if (setup.plan.sharding.optimizer) expect(shard + " gather", types.compute);
  expect("reduced gradients", types.gradient);
  expect("masters", types.master);
  expect("exp_avg", types.first_moment);
  expect("exp_avg_sq", types.second_moment);
}

/// The largest relative difference of the losses.
double largest_difference(const train::Trace& a, const train::Trace& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.losses.size(); ++i)
    worst = std::max(worst, std::abs(a.losses[i] - b.losses[i]) / std::abs(b.losses[i]));
  return worst;
}

const std::vector<test::RankCase> kCases = {
    {"every row's tensors have the types that the plan says",
     [](comm::World& w) {
       for (const auto& row : test::kPrecisionRows)
         if (std::string(row.device) == "cpu") check_row(w, row);
     },
     4, 4},
    {"gradients and moments in bfloat16 train as those in float32 do, but for their rounding",
     [](comm::World& w) {
       // Weights are float32 here, so that nothing else rounds. The relative error of a bfloat16 number is at most
       // 2^-9; sums over 8 microbatches add as many roundings. The size of Adam's steps does not depend on that of
       // gradients: after s steps the weights differ by s * lr * a few of these errors, while the steps themselves sum
       // to s * lr.
       const auto run = [&](const std::string& optimizer) {
         test::TinyRun tiny{.layers = 2, .global_batch = 16, .local_batch = 8, .dtype = "float32", .steps = 6};
         tiny.distributed = fmt::format(
             "strategy: fsdp2, dp_size: {}, pp_size: 2, pipeline: {{pp_schedule: 1F1B, "
             "pp_microbatch_size: 1}}",
             w.size() / 2);
         tiny.optimizer = "lr: 0.01" + optimizer;
         return train::trace_steps(test::load_recipe(test::recipe_text(tiny, false)), w, tiny.steps);
       };
       const auto exact = run("");
       const double learned = std::abs(exact.losses.front() - exact.losses.back()) / exact.losses.front();
       RANK_CHECK(learned > 0.01);
       for (const char* low : {", exp_avg_dtype: bfloat16", ", exp_avg_sq_dtype: bfloat16",
                               ", main_grads_dtype: bfloat16, exp_avg_dtype: bfloat16, exp_avg_sq_dtype: bfloat16"}) {
         const double difference = largest_difference(run(low), exact);
         RANK_CHECK(difference > 0);
         if (difference > learned * 8 / 256)
           test::rank_check_failed(
               __FILE__, __LINE__,
               fmt::format("{}: losses differ by {:.1e}, they fell by {:.1e}", low, difference, learned));
       }
     },
     4, 4},
};

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  return automodel::test::run_rank_suite(argc, argv, automodel::kCases);
}
