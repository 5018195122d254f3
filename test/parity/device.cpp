// Device tensors are communicated like host tensors, and ranks on a device compute the losses and gradients of one rank
// on the CPU. scripts/gpu_check.sh runs this on `cuda`, with several ranks on one GPU; on `cpu` it checks the check
// itself.
//
//   device_parity [--on cpu|cuda] [--carry mpi|nccl] [options of rank_suite.h]
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

#include "comm/backends.h"
#include "comm/loopback/loopback.h"
#include "config/recipe.h"
#include "cuda_half/cuda_half.h"
#include "rank_suite.h"
#include "train/verify.h"

namespace automodel {
namespace {

/// Set by main() before any rank starts.
std::string device_under_test = "cuda";
std::string carrier = "mpi";
/// The differences found by this process: the comparison goes on, so that one run reports all of them.
std::atomic<int> differences = 0;

/// The settings of a run other than its mesh.
struct Task {
  std::string name;
  std::string model = "model_type: llama";
  std::string sections = {};  ///< of the recipe
  std::string model_parallel = {};
  std::string dataset = "_target_: mock, vocab_size: 67, seq_length: 16, num_samples: 64";
};

config::LoadedRecipe recipe(const std::string& device, const std::string& dtype, const Task& task,
                            const std::string& distributed, int local_batch) {
  const std::string text = fmt::format(
      "device: {}\n"
      "model: {{config: {{{}, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 4, "
      "num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 67, max_position_embeddings: 32, "
      "initializer_range: 0.2}}, torch_dtype: {}}}\n"
      "dataset: {{{}}}\n"
      "step_scheduler: {{global_batch_size: 8, local_batch_size: {}, max_steps: 10, num_epochs: null}}\n"
      // With a small eps, rounding errors of gradients near zero become updates of the full learning rate.
      "optimizer: {{lr: 0.01, eps: 0.1}}\n"
      "dist_env: {{backend: {}}}\n"
      "distributed: {{{}}}\n"
      "model_parallel: {{{}}}\n{}",
      device, task.model, dtype, task.dataset, local_batch, carrier, distributed, task.model_parallel, task.sections);
  auto loaded = config::read_recipe(text, "parity.yaml", {}, [](const std::string&) { return std::nullopt; });
  if (!loaded.problems.empty()) throw Error(ExitCode::kBadInput, loaded.problems);
  return loaded;
}

train::Trace on_one_cpu(const std::string& dtype, const Task& task, int gradients_of) {
  train::Trace single;
  const auto outcome = comm::run_ranks(1, [&](comm::World& alone) {
    single = train::trace_steps(recipe("cpu", dtype, task, "strategy: ddp", 8), alone, 3, gradients_of);
  });
  if (!outcome.ok()) throw Error(outcome.code, {"internal", outcome.text});
  return single;
}

void differs(const std::string& what) {
  ++differences;
  fmt::print("DIFFERS: the line above {}\n", what);
}

void say(comm::World& world, const std::string& dtype, const Task& task, const std::string& distributed,
         const train::Difference& difference) {
  fmt::print("{} of {} on {} rank{}, {{{}}}: loss {:.1e}, gradient norm {:.1e}, gradient {:.1e}\n", dtype, task.name,
             world.size(), world.size() == 1 ? "" : "s", distributed, difference.loss, difference.norm,
             difference.gradient);
}

void check(comm::World& world, const std::string& dtype, double tolerance, const Task& task,
           const std::string& distributed, int local_batch) {
  const auto mesh = train::trace_steps(recipe(device_under_test, dtype, task, distributed, local_batch), world, 3);
  if (world.rank() != 0) return;
  const auto difference = train::compare(mesh, on_one_cpu(dtype, task, -1));
  say(world, dtype, task, distributed, difference);
  if (!difference.within(tolerance)) differs("is not what the CPU computes, most in " + difference.worst);
}

/// In bfloat16 two correct results differ as much as each differs from the exact one: the distance of the device from
/// the CPU's float32 may be a few times that of the CPU's own bfloat16. That one is a single draw: the gradient norm of
/// the model with experts, where a rounding can send a token elsewhere, is off by 0.4 % on one CPU and by 1.5 % on
/// another. Hence the floors. Gradients are those of the first step, before weights have drifted apart.
void check_bfloat16(comm::World& world, const Task& task, const std::string& distributed, int local_batch) {
  static constexpr double kTimes = 3, kLoss = 1.0 / 1024, kNorm = 1.0 / 128, kGradient = 1.0 / 256;
  const auto mesh =
      train::trace_steps(recipe(device_under_test, "bfloat16", task, distributed, local_batch), world, 3, 0);
  if (world.rank() != 0) return;
  const auto exact = on_one_cpu("float32", task, 0);
  const auto own = train::compare(on_one_cpu("bfloat16", task, 0), exact), seen = train::compare(mesh, exact);
  say(world, "bfloat16", task, distributed, seen);
  const auto far = [](double here, double there, double floor) { return here > kTimes * std::max(there, floor); };
  if (far(seen.loss, own.loss, kLoss) || far(seen.norm, own.norm, kNorm) || far(seen.gradient, own.gradient, kGradient))
    differs(
        fmt::format("is further from float32 than the CPU's bfloat16 is (loss {:.1e}, gradient norm {:.1e}, gradient "
                    "{:.1e}), most in {}",
                    own.loss, own.norm, own.gradient, seen.worst));
}

const Task kDense = {"llama"};
/// Soft caps, norms after the blocks, and a sliding window in every second layer.
const Task kGemma = {"gemma2", "model_type: gemma2, head_dim: 8, query_pre_attn_scalar: 8, sliding_window: 5"};
const Task kExperts = {
    "qwen3_moe",
    "model_type: qwen3_moe, head_dim: 8, num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 16, "
    "mlp_only_layers: [0], tie_word_embeddings: false"};
/// Rows of several lengths, packed (with attention within each row) and padded.
const std::string kSentences =
    "_target_: nemo_automodel.components.datasets.llm.mock.build_unpacked_dataset, num_sentences: 64, mean_len: 7, "
    "std_len: 3, "
    "vocab_size: 67, max_sentence_len: 12";
const Task kPacks = {"llama in packs", kDense.model, "packed_sequence: {packed_sequence_size: 24}\n", "", kSentences};
const Task kPadded = {"llama, padded", kDense.model, "", "", kSentences};
const Task kWindows = {"gemma2 in packs", kGemma.model, kPacks.sections, "", kSentences};
const Task kAdapters = {"llama with adapters", kDense.model,
                        "peft: {dim: 4, alpha: 6, match_all_linear: true, dropout: 0.3}\n"};
const Task kMagnitudes = {"llama with adapters and magnitudes", kDense.model,
                          "peft: {dim: 4, alpha: 6, match_all_linear: true, use_dora: true}\n"};
const Task kChunks = {"llama, the loss in chunks", kDense.model, "loss_fn: {_target_: fused_linear_ce}\n"};
const Task kOffloaded = {"llama, activations on the host", kDense.model, "",
                         "cpu_offloading: true, cpu_offloading_num_layers: 3"};
/// Four microbatches per step: two run eagerly, then one is captured and replayed for the rest of the three steps.
const Task kCaptured = {"llama, captured", kDense.model, "", "enable_cuda_graph: true"};
const Task kCapturedGemma = {"gemma2, captured", kGemma.model, "", "enable_cuda_graph: true"};

void on_every_type(comm::World& world, const std::string& distributed, int local_batch, const Task& task = kDense) {
  check(world, "float64", 1e-9, task, distributed, local_batch);
  check(world, "float32", 1e-4, task, distributed, local_batch);
  check_bfloat16(world, task, distributed, local_batch);
}

/// One case per task, so that an error in one does not hide the others.
template <const Task& task>
void alone(comm::World& world) {
  on_every_type(world, "strategy: fsdp2", 8, task);
}

/// Small whole numbers, whose sums are exact in every type and order; different for each rank and element.
at::Tensor numbers(const comm::World& world, int rank, std::int64_t count, at::ScalarType dtype) {
  const auto tensor = at::arange(count, at::TensorOptions().dtype(at::kLong)).mul_(rank + 3).remainder_(11);
  return tensor.to(at::TensorOptions().dtype(dtype).device(world.device()));
}

constexpr std::int64_t kCount = 1000;

/// Every verb on tensors of `dtype`.
void check_verbs(comm::World& world, comm::Communicator& group, at::ScalarType dtype) {
  const int me = group.rank(), size = group.size();
  const auto of = [&](int rank, std::int64_t count = kCount) { return numbers(world, rank, count, dtype); };
  at::Tensor sum = of(0);
  at::Tensor most = of(0);
  at::Tensor least = of(0);
  std::vector<at::Tensor> all;
  for (int r = 0; r < size; ++r) {
    all.push_back(of(r));
    if (r == 0) continue;
    sum = sum + of(r);
    most = most.maximum(of(r));
    least = least.minimum(of(r));
  }
  const std::array<std::pair<comm::ReduceOp, at::Tensor>, 3> reductions = {
      {{comm::ReduceOp::kSum, sum}, {comm::ReduceOp::kMax, most}, {comm::ReduceOp::kMin, least}}};
  for (const auto& [op, expected] : reductions) {
    const auto inout = of(me);
    group.all_reduce(inout, op)->wait();
    RANK_CHECK(inout.equal(expected));
  }
  const auto gathered = at::zeros_like(at::cat(all));
  group.all_gather(gathered, of(me))->wait();
  RANK_CHECK(gathered.equal(at::cat(all)));
  const auto part = at::zeros_like(of(me));
  group.reduce_scatter(part, of(me, kCount * size), comm::ReduceOp::kSum)->wait();
  at::Tensor parts = of(0, kCount * size);
  for (int r = 1; r < size; ++r) parts = parts + of(r, kCount * size);
  RANK_CHECK(part.equal(parts.narrow(0, me * kCount, kCount)));
  // Rank a sends a + b + 1 rows to rank b.
  std::vector<std::int64_t> rows;
  std::vector<at::Tensor> sent, received;
  for (int r = 0; r < size; ++r) {
    rows.push_back(me + r + 1);
    sent.push_back(of(me * size + r, rows.back()));
    received.push_back(of(r * size + me, rows.back()));
  }
  const auto arrived = at::zeros_like(at::cat(received));
  group.all_to_all(arrived, at::cat(sent), rows, rows)->wait();
  RANK_CHECK(arrived.equal(at::cat(received)));
  const auto copied = of(me);
  group.broadcast(copied, size - 1)->wait();
  RANK_CHECK(copied.equal(of(size - 1)));
  const int next = (me + 1) % size, previous = (me + size - 1) % size;
  const auto first = at::zeros_like(of(me));
  const auto second = at::zeros_like(of(me));
  group.exchange({{of(me), next, 1}, {of(me + size), next, 2}}, {{first, previous, 1}, {second, previous, 2}})->wait();
  RANK_CHECK(first.equal(of(previous)) && second.equal(of(previous + size)));
  group.barrier()->wait();
}

void every_verb(comm::World& world) {
  if (device_under_test != "cpu") require_cuda_half();
  comm::use_device(world, at::Device(device_under_test), carrier);
  std::vector<int> everyone;
  for (int r = 0; r < world.size(); ++r) everyone.push_back(r);
  const auto group = world.group(everyone, "verbs");
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong, at::kInt})
    check_verbs(world, *group, dtype);
}

const std::vector<test::RankCase> kCases = {
    {"every verb", every_verb, 2},
    {"one rank", [](comm::World& world) { on_every_type(world, "strategy: ddp", 8); }, 1, 1},
    {"soft caps and windows", alone<kGemma>, 1, 1},
    {"experts", alone<kExperts>, 1, 1},
    {"packs", alone<kPacks>, 1, 1},
    {"padded rows", alone<kPadded>, 1, 1},
    {"windows in packs", alone<kWindows>, 1, 1},
    {"adapters", alone<kAdapters>, 1, 1},
    {"magnitudes", alone<kMagnitudes>, 1, 1},
    {"the loss in chunks", alone<kChunks>, 1, 1},
    {"activations on the host", alone<kOffloaded>, 1, 1},
    {"captured microbatches",
     [](comm::World& world) {
       for (const auto& task : {kCaptured, kCapturedGemma}) on_every_type(world, "strategy: ddp", 2, task);
     },
     1, 1},
    {"recomputation",
     [](comm::World& world) { on_every_type(world, "strategy: fsdp2, activation_checkpointing: full", 8); }, 1, 1},
    {"a pipeline",
     [](comm::World& world) {
       on_every_type(world,
                     fmt::format("strategy: ddp, pp_size: {}, pipeline: {{pp_schedule: 1F1B, pp_microbatch_size: 2}}",
                                 world.size()),
                     8);
     },
     2, 4},
    {"sharded data parallelism", [](comm::World& world) { on_every_type(world, "strategy: fsdp2", 8 / world.size()); },
     2, 4},
    {"tensor and sequence parallelism",
     [](comm::World& world) {
       const auto mesh = fmt::format("strategy: fsdp2, tp_size: {}, sequence_parallel: true", world.size());
       on_every_type(world, mesh, 8);
       on_every_type(world, mesh, 8, kGemma);
     },
     2, 4},
    {"context parallelism",
     [](comm::World& world) { on_every_type(world, fmt::format("strategy: fsdp2, cp_size: {}", world.size()), 8); }, 2,
     4},
    {"experts on other ranks",
     [](comm::World& world) {
       on_every_type(world, fmt::format("strategy: fsdp2, ep_size: {}", world.size()), 8 / world.size(), kExperts);
     },
     2, 4},
    {"packs and adapters on several ranks",
     [](comm::World& world) {
       for (const auto& task : {kPacks, kAdapters}) {
         on_every_type(world, "strategy: fsdp2", 8 / world.size(), task);
         on_every_type(world, fmt::format("strategy: fsdp2, tp_size: {}", world.size()), 8, task);
       }
     },
     2, 4},
};

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  std::vector<char*> rest = {argv[0]};
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--on") == 0 && i + 1 < argc)
      automodel::device_under_test = argv[++i];
    else if (std::strcmp(argv[i], "--carry") == 0 && i + 1 < argc)
      automodel::carrier = argv[++i];
    else
      rest.push_back(argv[i]);
  }
  setvbuf(stdout, nullptr, _IOLBF, 0);  // so that a run that is killed has printed its results
  const int code = automodel::test::run_rank_suite(static_cast<int>(rest.size()), rest.data(), automodel::kCases);
  if (automodel::differences > 0) fmt::print("{} comparisons differ\n", automodel::differences.load());
  return code != 0 ? code : automodel::differences > 0 ? 1 : 0;
}
