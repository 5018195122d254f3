// The memory of a rank falls as 1/N if the strategy shards it, according to the engine's accounting after a step.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "parity/session.h"
#include "rank_suite.h"

namespace automodel {
namespace {

/// Bytes held by one rank between two steps.
struct Held {
  std::int64_t parameters = 0, masters = 0, gradients = 0, optimizer = 0;
  std::int64_t elements = 0;  ///< of the whole model
  std::int64_t slack = 0;     ///< bytes that padding of units may add to a shard
};

Held held_after_a_step(comm::World& world, const std::string& distributed, const std::string& dtype) {
  test::TinyRun run{.layers = 6, .global_batch = 2 * world.size(), .local_batch = 2, .dtype = "float32"};
  run.distributed = distributed;
  run.model_parallel = dtype;
  test::Session session(world, test::recipe_text(run, false));
  session.step(0);
  auto& runtime = session.runtime();
  Held out;
  for (auto* stage : runtime.stages()) {
    const auto bytes = stage->data_parallel().bytes();
    out.parameters += bytes.parameters;
    out.masters += bytes.masters;
    out.gradients += bytes.gradients;
    out.elements += stage->model().weights().elements();
    out.slack += static_cast<std::int64_t>(stage->model().weights().units().size()) * 16 * 4 * world.size();
  }
  out.optimizer = runtime.optimizer().state_bytes();
  return out;
}

/// How much of each kind of memory a rank holds: all, 1/N, or nothing.
enum Part { kWhole, kShare, kNone };
struct Strategy {
  std::string distributed;
  Part parameters, masters, gradients, optimizer;
  bool both_gradients = false;  ///< the whole gradients are kept in addition to the reduced share
};

const std::vector<Strategy> kStrategies = {
    {"strategy: ddp", kWhole, kNone, kWhole, kWhole},
    {"strategy: megatron_fsdp, zero_dp_strategy: 0", kWhole, kNone, kWhole, kWhole},
    {"strategy: megatron_fsdp, zero_dp_strategy: 1", kWhole, kShare, kWhole, kShare, true},
    {"strategy: megatron_fsdp, zero_dp_strategy: 2", kWhole, kShare, kShare, kShare},
    {"strategy: megatron_fsdp, zero_dp_strategy: 3", kNone, kShare, kShare, kShare},
    {"strategy: fsdp2", kNone, kShare, kShare, kShare},
    {"strategy: fsdp2, reshard_after_forward: false", kNone, kShare, kShare, kShare},
};

void near(std::int64_t bytes, double expected, std::int64_t slack, const std::string& what) {
  if (static_cast<double>(bytes) < expected - 0.5 || static_cast<double>(bytes) > expected + static_cast<double>(slack))
    test::rank_check_failed(__FILE__, __LINE__,
                            fmt::format("{}: {} bytes, expected {:.0f} to {:.0f}", what, bytes, expected,
                                        expected + static_cast<double>(slack)));
}

void check(comm::World& world, const Strategy& asked, int shards, const std::string& types, int compute_bytes) {
  // One rank stores everything whole, as with DDP.
  const auto strategy = world.size() > 1 ? asked : Strategy{asked.distributed, kWhole, kNone, kWhole, kWhole};
  const auto held = held_after_a_step(world, strategy.distributed, types);
  const auto elements = static_cast<double>(held.elements);
  const auto expected = [&](Part part, double bytes) {
    return part == kNone ? 0.0 : bytes * elements / (part == kShare ? shards : 1);
  };
  const auto what = strategy.distributed + " " + types + " ";
  near(held.parameters, expected(strategy.parameters, compute_bytes), held.slack, what + "parameters");
  const Part masters = compute_bytes < 4 && strategy.masters == kNone ? kWhole : strategy.masters;
  near(held.masters, expected(masters, 4), held.slack, what + "masters");
  near(held.gradients, expected(strategy.gradients, 4) + (strategy.both_gradients ? 4 * elements / shards : 0),
       2 * held.slack, what + "gradients");
  near(held.optimizer, 2 * expected(strategy.optimizer, 4), 2 * held.slack, what + "optimizer states");
}

/// The peak bytes of gradients: whole ones, reduced ones and those in flight.
class GradientPeak : public model::UnitObserver {
 public:
  explicit GradientPeak(train::LocalStage& stage) : stage_(stage) { stage.model().set_observer(this); }
  ~GradientPeak() override { stage_.model().set_observer(&stage_.data_parallel()); }
  void before_forward(int unit) override { engine().before_forward(unit), look(); }
  void after_forward(int unit) override { engine().after_forward(unit), look(); }
  void before_backward(int unit) override { engine().before_backward(unit), look(); }
  void after_backward(int unit) override { look(), engine().after_backward(unit), look(); }
  void before_gradients(int unit) override { engine().before_gradients(unit), look(); }
  std::int64_t most() const { return most_; }

 private:
  parallel::DataParallel& engine() { return stage_.data_parallel(); }
  void look() { most_ = std::max(most_, engine().bytes().gradients); }

  train::LocalStage& stage_;
  std::int64_t most_ = 0;
};

/// For the second step of a run on one stage, with the sizes of a rank's shards and of a whole unit.
struct Peak {
  std::int64_t most = 0, whole = 0, largest = 0, slack = 0;
};

Peak peak_of_gradients(comm::World& world, const std::string& distributed, int microbatches, const std::string& loss) {
  test::TinyRun run{.layers = 8, .global_batch = 2 * world.size() * microbatches, .local_batch = 2, .dtype = "float32"};
  run.distributed = distributed;
  run.sections = loss;
  test::Session session(world, test::recipe_text(run, false));
  session.step(0);
  auto& stage = *session.runtime().stages().front();
  Peak out;
  {
    GradientPeak peak(stage);
    session.step(1);
    out.most = peak.most();
  }
  for (const auto* storage : stage.data_parallel().storages()) {
    out.whole += 4 * storage->elements();
    out.largest = std::max(out.largest, 4 * storage->elements());
    out.slack += std::int64_t{4} * 16 * 4 * world.size();
  }
  return out;
}

void check_peak(comm::World& world, const std::string& distributed, int shards, int microbatches,
                const std::string& loss = "") {
  const auto peak = peak_of_gradients(world, distributed, microbatches, loss);
  // Two whole units, and this rank's parts of those just received in addition to the sums that they are added to.
  const auto bound = peak.whole / shards + 2 * peak.largest + 2 * peak.largest / shards + peak.slack;
  if (peak.most > bound || peak.most < peak.whole / shards)
    test::rank_check_failed(__FILE__, __LINE__,
                            fmt::format("{}, {} microbatches: {} bytes of gradients, at most {} of {} expected",
                                        distributed, microbatches, peak.most, bound, peak.whole));
}

/// The addresses of gathered decoder layers.
class GatherPlaces : public model::UnitObserver {
 public:
  explicit GatherPlaces(train::LocalStage& stage) : stage_(stage) { stage.model().set_observer(this); }
  ~GatherPlaces() override { stage_.model().set_observer(&stage_.data_parallel()); }
  void before_forward(int unit) override { engine().before_forward(unit), look(unit); }
  void after_forward(int unit) override { engine().after_forward(unit); }
  void before_backward(int unit) override { engine().before_backward(unit), look(unit); }
  void after_backward(int unit) override { engine().after_backward(unit); }
  void before_gradients(int unit) override { engine().before_gradients(unit); }
  const std::set<const void*>& seen() const { return seen_; }

 private:
  parallel::DataParallel& engine() { return stage_.data_parallel(); }
  void look(int unit) {
    const auto& weights = engine().storages()[static_cast<std::size_t>(unit)]->unit().weights;
    if (weights.front()->info.layer >= 0) seen_.insert(weights.front()->parameter.value.const_data_ptr());
  }

  train::LocalStage& stage_;
  std::set<const void*> seen_ = {};
};

/// Every layer is gathered into one of this many buffers, which persist after the step.
void check_buffers(comm::World& world, const std::string& more, std::size_t buffers) {
  test::TinyRun run{.layers = 8, .global_batch = 4 * world.size(), .local_batch = 2, .dtype = "float32"};
  run.distributed = "strategy: megatron_fsdp, zero_dp_strategy: 3, fsdp_double_buffer: true" + more;
  test::Session session(world, test::recipe_text(run, false));
  session.step(0);
  auto& stage = *session.runtime().stages().front();
  std::size_t places = 0;
  {
    GatherPlaces watch(stage);
    session.step(1);
    places = watch.seen().size();
  }
  std::int64_t layer = 0;
  for (const auto* storage : stage.data_parallel().storages())
    if (storage->unit().weights.front()->info.layer >= 0) layer = std::max(layer, 4 * storage->padded_elements());
  RANK_EQUAL(places, buffers);
  RANK_EQUAL(stage.data_parallel().bytes().parameters, static_cast<std::int64_t>(buffers) * layer);
}

const std::vector<test::RankCase> kCases = {
    {"gathered layers take turns in two buffers",
     [](comm::World& w) {
       check_buffers(w, "", 2);
       check_buffers(w, ", activation_checkpointing: full", 2);
       check_buffers(w, ", overlap_param_gather: false", 1);  // nothing is prefetched
     },
     2, 4},
    {"of sharded gradients two units are whole at most",
     [](comm::World& w) {
       const int n = w.size();
       check_peak(w, "strategy: fsdp2", n, 1);
       check_peak(w, "strategy: fsdp2", n, 1, "loss_fn: {_target_: chunked_ce, chunk_len: 7}\n");
       check_peak(w, "strategy: fsdp2, reshard_after_forward: false, defer_fsdp_grad_sync: false", n, 3);
       check_peak(w, "strategy: megatron_fsdp, zero_dp_strategy: 2", n, 1);
       check_peak(w, "strategy: megatron_fsdp, zero_dp_strategy: 3", n, 2);
       if (n % 2 == 0 && n > 2)
         check_peak(w, fmt::format("strategy: fsdp2, dp_replicate_size: 2, dp_size: {}", n), n / 2, 1);
     },
     2, 4},
    {"a rank holds its share between steps",
     [](comm::World& w) {
       for (const auto& strategy : kStrategies) check(w, strategy, w.size(), "", 4);
     }},
    {"with float32 masters beside low-precision parameters",
     [](comm::World& w) {
       for (const auto& strategy : kStrategies) {
         auto keeps = strategy;
         if (keeps.distributed.find("megatron") != std::string::npos)
           keeps.distributed += ", preserve_fp32_weights: true";
         check(w, keeps, w.size(), "bf16: true", 2);
       }
     }},
    {"replicated shards share inside their group",
     [](comm::World& w) {
       if (w.size() % 2 != 0) return;
       check(
           w,
           {fmt::format("strategy: fsdp2, dp_replicate_size: 2, dp_size: {}", w.size()), kNone, kShare, kShare, kShare},
           w.size() / 2, "", 4);
     },
     2},
};

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  return automodel::test::run_rank_suite(argc, argv, automodel::kCases);
}
