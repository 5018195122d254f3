#include "train/calibrate.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>

#include <fmt/format.h>
#include <unistd.h>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>

#include "arch/counts.h"
#include "base/bytes.h"
#include "base/median.h"
#include "base/proc_field.h"
#include "base/random.h"
#include "estimate/estimated_plan.h"
#include "estimate/past_runs.h"
#include "ops/scalar_type.h"
#include "train/initial_values.h"
#include "train/link_meter.h"
#include "train/microbatches.h"
#include "train/runtime.h"
#include "train/setup.h"
#include "train/world_settings.h"

namespace automodel::train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSecondsAPart = 0.6;  // time spent on repetitions of each part
constexpr int kLeast = 2, kMost = 60;  // bounds of the number of repetitions
constexpr int kMicrobatches = 2;       // per repetition: the first one writes gradients, the second one accumulates
constexpr double kLayers = 3;          // layers per kind, so that each evicts the caches of the others, as in a
                                       // model
constexpr double kLongest = 1.5;       // seconds per repetition: fewer layers if they would take longer

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Mean over all ranks.
double mean(comm::World& world, double mine) {
  auto tensor = at::tensor({mine}, at::TensorOptions().dtype(at::kDouble));
  world.control().all_reduce(tensor, comm::ReduceOp::kSum)->wait();
  return tensor.item<double>() / world.size();
}

/// Number of repetitions for work that took `seconds` on the slowest rank.
int repetitions(comm::World& world, double seconds) {
  auto tensor = at::tensor({seconds}, at::TensorOptions().dtype(at::kDouble));
  world.control().all_reduce(tensor, comm::ReduceOp::kMax)->wait();
  return std::clamp(static_cast<int>(kSecondsAPart / tensor.item<double>()), kLeast, kMost);
}

/// Seconds that `work` takes with all ranks running it at the same time: the median of the repetitions, or the fastest.
enum class Pick { kMedian, kFastest };
template <class Work>
double time_of(comm::World& world, Pick pick, const Work& work) {
  const auto once = [&] {
    const auto begin = Clock::now();
    work();
    return since(begin);
  };
  once();
  std::vector<double> seconds(static_cast<std::size_t>(repetitions(world, once())));
  world.control().barrier()->wait();
  for (auto& each : seconds) each = once();
  return mean(world, pick == Pick::kMedian ? median(seconds) : *std::min_element(seconds.begin(), seconds.end()));
}

/// Random tokens.
model::Microbatch tokens_of(const plan::ModelChoice& model, std::int64_t rows, std::int64_t length) {
  data::Batch batch{.rows = rows, .length = length};
  const auto count = static_cast<std::size_t>(rows * length);
  const RandomStream random(1, "calibration");
  for (std::size_t i = 0; i < count; ++i) {
    batch.input_ids.push_back(static_cast<std::int64_t>(random.below(i, static_cast<std::uint64_t>(model.spec.vocab))));
    batch.positions.push_back(static_cast<std::int64_t>(i) % length);
  }
  batch.labels = batch.input_ids;
  batch.segments.assign(count, 1);
  batch.num_tokens = batch.num_label_tokens = rows * length;
  return make_microbatches(batch, static_cast<int>(rows), at::kCPU).front();
}

/// Measurements of one model with one microbatch size.
class Meter {
 public:
  Meter(const estimate::EstimatedPlan& plan, comm::World& world) : plan_(plan), world_(world), model_(*plan.model) {
    const auto alone = world.group({world.rank()}, "alone");
    groups_.dense.shard = groups_.expert.shard = alone;
    out_.model = estimate::widths_text(model_.spec);
    out_.type = name_of(plan.types.compute);
    out_.threads = at::get_num_threads();
    out_.ranks = world.size();
    out_.microbatch = plan.batch.microbatch;
    out_.sequence = plan.batch.planned_length() / plan.mesh.sizes().cp;
    data_ = tokens_of(model_, out_.microbatch, out_.sequence);
    type_ = scalar_type(plan.types.compute);
  }

  estimate::Sample run() {
    machine_rates();
    const double tokens = static_cast<double>(out_.microbatch * out_.sequence);
    const auto flops = [&](int layer) {
      return tokens * arch::layer_flops_per_token(model_.spec, model_.layout, layer, out_.sequence);
    };
    std::map<std::string, std::vector<int>> kinds;
    for (int layer = 0; layer < model_.spec.layers; ++layer) {
      auto& some = kinds[estimate::layer_kind(model_.spec, layer)];
      const double seconds = 2.0 * kMicrobatches * 3 * flops(layer) / (0.6 * out_.peak);
      if (static_cast<double>(some.size()) < std::clamp(kLongest / seconds, 1.0, kLayers)) some.push_back(layer);
    }
    for (const auto& [kind, layers] : kinds) {
      require_memory(layers);
      auto time = part({.layers = layers}, true);
      time.work = 0;
      for (const int layer : layers) time.work += flops(layer);
      time = time.for_work(time.work / static_cast<double>(layers.size()));
      out_.layers.push_back({kind, time});
    }
    out_.embedding = part({.embeddings = true}, false);
    out_.embedding.work = tokens * model_.spec.hidden;
    out_.head = part({.norm = true, .head = true}, false);
    out_.head.work = tokens * arch::head_flops_per_token(model_.spec);
    return out_;
  }

 private:
  void machine_rates() {
    const std::int64_t n = 1024;
    const auto a = at::full({n, n}, 0.5, type_), b = at::full({n, n}, 0.25, type_);
    const double seconds = time_of(world_, Pick::kFastest, [&] { at::mm(a, b); });
    out_.peak = 2.0 * static_cast<double>(n * n * n) / seconds;
    const std::int64_t bytes = 64 << 20;
    const auto from = at::ones({bytes}, at::kByte), to = at::ones({bytes}, at::kByte);
    out_.memory_bandwidth =
        2.0 * static_cast<double>(bytes) / time_of(world_, Pick::kFastest, [&] { at::Tensor(to).copy_(from); });
  }

  /// Checks that values, gradients, moments and activations of these layers fit in memory.
  void require_memory(const std::vector<int>& layers) const {
    double elements = 0;
    for (const int layer : layers) elements += static_cast<double>(arch::count_layer(model_.layout, layer).total());
    const double kept = 40.0 * static_cast<double>(out_.microbatch * out_.sequence) *
                        (model_.spec.hidden + model_.spec.ffn) * static_cast<double>(layers.size());
    const double wanted = elements * 5 * size_of(plan_.types.master) + kept;
    const double there = proc_field("/proc/meminfo", "MemAvailable") / world_.size();
    if (there > 0 && wanted > there)
      throw Error(
          Diagnostic{"too-large-to-measure"}
              .says("{} layers of this model need about {} to be measured; {} are free", layers.size(),
                    format_bytes(wanted), format_bytes(there))
              .hint("a smaller microbatch or shorter sequences; 'automodel plan --calibrate' without a recipe measures "
                    "usual sizes"));
  }

  /// Types as in training; nothing is sharded.
  parallel::StorageOptions storage() const {
    return {.compute = type_,
            .master = scalar_type(plan_.types.master),
            .gradient = scalar_type(plan_.types.gradient),
            .reduce = scalar_type(plan_.types.reduce)};
  }

  /// Input for a stage that is not the first: normally distributed numbers.
  at::Tensor hidden_states() const {
    const std::vector<std::int64_t> shape = {out_.microbatch, out_.sequence,
                                             (1 + model_.spec.carried_streams()) * model_.spec.hidden};
    auto hidden = at::empty(shape, at::kFloat);
    RandomStream(1, "hidden")
        .fill_normal(0, {hidden.mutable_data_ptr<float>(), static_cast<std::size_t>(hidden.numel())});
    return hidden;
  }

  /// Times forward and backward passes of some modules, the latter both as a whole and split into input and weight
  /// gradients.
  estimate::PartTime part(model::StageModules modules, bool optimizes) {
    const bool head = modules.head, first = modules.embeddings;
    model::StageOptions options{.type = type_};
    options.execution.precision.autocast = plan_.execution.precision.autocast;
    LocalStage local(schedule::Stage{0}, model_, std::move(modules), std::move(options), storage(), groups_);
    local.data_parallel().bind(initial_values(plan_, {.seed = 1}));
    const auto hidden = hidden_states();
    const auto input = first ? at::Tensor() : hidden.to(type_);
    const auto gradient =
        head ? at::full({}, 1.0, at::kDouble)
             : (first ? hidden.repeat({1, 1, 1 + model_.spec.deep_layers()}) : hidden).mul(1e-3).to(type_);
    const model::ForwardOptions forward{.loss_scale = 1.0 / static_cast<double>(data_.label_tokens)};

    std::vector<double> forwards, backwards, inputs, weights;
    c10::AutoGradMode grad(true);
    auto& stage = local.stage();
    const auto repeat = [&](bool apart) {
      local.data_parallel().begin_step();
      stage.begin(kMicrobatches);
      double sums[3] = {};
      for (int m = 0; m < kMicrobatches; ++m) {
        auto begin = Clock::now();
        const auto lap = [&](double& sum) {
          sum += since(begin) / kMicrobatches;
          begin = Clock::now();
        };
        stage.forward(m, data_, input, forward);
        lap(sums[0]);
        apart ? stage.backward_input(m, gradient) : stage.backward(m, gradient);
        lap(sums[1]);
        if (apart) stage.backward_weight(m);
        lap(sums[2]);
      }
      local.data_parallel().reduce();
      local.data_parallel().finish();
      forwards.push_back(sums[0]);
      (apart ? inputs : backwards).push_back(sums[1]);
      if (apart) weights.push_back(sums[2]);
    };
    const auto begin = Clock::now();
    repeat(false);
    repeat(true);
    const int times = repetitions(world_, since(begin));
    for (auto* list : {&forwards, &backwards, &inputs, &weights}) list->clear();
    world_.control().barrier()->wait();
    for (int i = 0; i < times; ++i) {
      repeat(false);
      repeat(true);
    }
    if (optimizes) out_.optimizer_rate = optimizer_rate(local);
    estimate::PartTime out{.work = 1,
                           .forward = mean(world_, median(forwards)),
                           .backward = mean(world_, median(backwards)),
                           .backward_input = mean(world_, median(inputs)),
                           .backward_weight = mean(world_, median(weights))};
    return out;
  }

  /// Rate of computing the gradient norm and updating the stage's weights, in elements per second.
  double optimizer_rate(LocalStage& local) {
    std::vector<optim::Target> targets;
    double elements = 0;
    for (auto* storage : local.data_parallel().storages()) {
      optim::Target target{.value = storage->master(), .gradient = [storage] { return storage->gradient(); }};
      for (const auto& segment : storage->segments())
        target.ranges.push_back({.name = segment.weight->info.fqn,
                                 .first = segment.first,
                                 .offset = segment.offset,
                                 .length = segment.length});
      elements += static_cast<double>(storage->elements());
      targets.push_back(std::move(target));
    }
    optim::Optimizer optimizer(plan_.optimizer, std::move(targets));
    const ops::NoGraph guard;
    const double seconds = time_of(world_, Pick::kMedian, [&] {
      optimizer.square_sums();
      optimizer.step(1e-6, 0, 1);
      local.data_parallel().publish();
    });
    return elements / seconds;
  }

  const estimate::EstimatedPlan& plan_;
  comm::World& world_;
  const plan::ModelChoice& model_;
  Groups groups_ = {};
  model::Microbatch data_ = {};
  at::ScalarType type_ = at::kFloat;
  estimate::Sample out_ = {};
};

estimate::Sample measure(const config::LoadedRecipe& loaded, comm::World& world) {
  auto made = estimate::make_plan(loaded, {});
  if (made.plan) made.problems = estimate::check_measurable(*made.plan);
  agree(world, loaded, std::move(made.problems));
  return Meter(*made.plan, world).run();
}

/// A Llama of usual proportions.
config::LoadedRecipe usual_model(int hidden) {
  return config::read_recipe(
      fmt::format("device: cpu\nmodel:\n  config: {{model_type: llama, hidden_size: {}, intermediate_size: {}, "
                  "num_hidden_layers: 3, num_attention_heads: {}, num_key_value_heads: {}, vocab_size: 8192, "
                  "max_position_embeddings: 512}}\n"
                  "dataset: {{_target_: mock, vocab_size: 8192, seq_length: 512}}\n"
                  "distributed: {{strategy: ddp}}\n"
                  "step_scheduler: {{global_batch_size: 1, local_batch_size: 1, max_steps: 1}}\n",
                  hidden, hidden * 11 / 4, hidden / 64, std::max(1, hidden / 256)),
      "usual model", {}, {});
}

}  // namespace

void run_calibration(const config::LoadedRecipe& loaded, comm::World& world, Measured what) {
  use_threads(world);
  const double framework = mean(world, proc_field("/proc/self/status", "VmRSS"));
  std::vector<estimate::Sample> samples;
  if (what == Measured::kUsualModels) {
    for (const int hidden : {256, 512, 1024}) samples.push_back(measure(usual_model(hidden), world));
  } else if (what == Measured::kModel) {
    samples.push_back(measure(loaded, world));
  }
  const auto link = measure_link(world);
  if (world.rank() != 0) return;
  auto calibration = estimate::own_calibration(estimate::machine_name());
  if (!samples.empty()) calibration.when = estimate::date_text();
  calibration.framework = framework;
  if (link) calibration.link = *link;
  for (auto& sample : samples) calibration.add(std::move(sample));
  if (!estimate::write_calibration(calibration))
    throw Error(Diagnostic{"cannot-write"}
                    .says("the calibration file '{}' cannot be written", estimate::calibration_path())
                    .hint("AUTOMODEL_CALIBRATION names another file"));
}

}  // namespace automodel::train
