// The parity matrix: all pairs of options, and a seeded sample of full combinations, each on up to eight ranks against
// one rank in float64. A combination runs with equal results, or the plan refuses it with a reason.
//
//   parity_matrix [--part I/N] [--sample COUNT] [--seed S] [--write FILE.md]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/random.h"
#include "comm/carrier.h"
#include "comm/loopback/loopback.h"
#include "estimate/estimated_plan.h"
#include "parity/parity.h"

namespace automodel {
namespace {

constexpr int kMostRanks = 8;
constexpr int kGlobalBatch = 32;

/// One value of a dimension: what it adds to the recipe.
struct Choice {
  std::string name;
  std::string distributed = {};
  std::string pipeline = {};  ///< of distributed.pipeline
  std::string megatron = {};
  int pp = 1, dp = 1, tp = 1, cp = 1;
  std::string family = {};
  std::string model = {};
  bool tied = false;
  int runs = 1;
  bool experts = false;  ///< needs a model family of its own
};

struct Dimension {
  std::string name;
  std::vector<Choice> choices;  ///< the first is the default
};

Choice schedule(const std::string& name, int stages_a_rank) {
  Choice out{.name = name};
  out.distributed = "pp_size: 2";
  out.pipeline = fmt::format("pp_schedule: {}, pp_microbatch_size: 1", name);
  if (stages_a_rank > 1) out.megatron = fmt::format("virtual_pipeline_model_parallel_size: {}", stages_a_rank);
  out.pp = 2;
  return out;
}

Choice strategy(const std::string& name, const std::string& text, int dp) {
  return {.name = name, .distributed = "strategy: " + text, .dp = dp};
}

Choice context(const std::string& name, int cp, const std::string& more = {}) {
  return {.name = name,
          .distributed = fmt::format("cp_size: {}", cp),
          .megatron = fmt::format("cp_comm_type: {}{}", name, more),
          .cp = cp};
}

Choice experts(const std::string& name, int ep, const std::string& family, const std::string& model,
               const std::string& megatron = {}) {
  Choice out{.name = name, .megatron = megatron, .family = family, .model = model, .experts = true};
  if (ep > 1) out.distributed = fmt::format("ep_size: {}", ep);
  return out;
}

Choice option(const std::string& name, const std::string& megatron) {
  return {.name = name, .megatron = megatron};
}

const char* const kMixtral =
    "num_local_experts: 4, num_experts_per_tok: 2, router_aux_loss_coef: 0.0, output_router_logits: false";
const char* const kDeepseek =
    "n_routed_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 12, n_group: 4, topk_group: 2, "
    "n_shared_experts: 1, first_k_dense_replace: 1, q_lora_rank: 16, kv_lora_rank: 12, qk_nope_head_dim: 8, "
    "qk_rope_head_dim: 4, v_head_dim: 6";
const char* const kGptOss =
    "num_local_experts: 4, num_experts_per_tok: 2, head_dim: 8, sliding_window: 8, router_aux_loss_coef: 0.0";

enum Place : std::size_t { kData = 1, kExperts = 4, kFamily = 8 };  // of dimensions that other code refers to

std::vector<Dimension> dimensions() {
  return {
      {"pipeline",
       {{.name = "-"},
        schedule("GPipe", 1),
        schedule("1F1B", 1),
        schedule("Interleaved1F1B", 2),
        schedule("LoopedBFS", 2),
        schedule("InterleavedZeroBubble", 2),
        schedule("ZBVZeroBubble", 2),
        schedule("DualPipeV", 2)}},
      {"data",
       {strategy("ddp 1", "ddp", 1), strategy("ddp", "ddp", 2),
        strategy("zero 1", "megatron_fsdp, zero_dp_strategy: 1", 2),
        strategy("zero 2", "megatron_fsdp, zero_dp_strategy: 2", 2),
        strategy("zero 3", "megatron_fsdp, zero_dp_strategy: 3", 2), strategy("fsdp2", "fsdp2", 2),
        strategy("fsdp2 each microbatch", "fsdp2, defer_fsdp_grad_sync: false, reshard_after_forward: true", 2),
        strategy("hsdp", "fsdp2, dp_replicate_size: 2", 4), strategy("fsdp2 offloaded", "fsdp2, offload_policy: {}", 2),
        strategy("fsdp2 prefetched",
                 "fsdp2, reshard_after_forward: true, enable_fsdp2_prefetch: true, fsdp2_forward_prefetch_depth: 2", 2),
        strategy("zero 3 unbucketed", "megatron_fsdp, zero_dp_strategy: 3, disable_bucketing: true", 2)}},
      {"tensor",
       {{.name = "-"},
        {.name = "tp", .distributed = "tp_size: 2", .tp = 2},
        {.name = "tp + sp", .distributed = "tp_size: 2", .megatron = "sequence_parallel: true", .tp = 2}}},
      {"context",
       {{.name = "-"},
        context("p2p", 2),
        context("all_gather", 2),
        context("a2a", 2),
        context("a2a+p2p", 4, ", hierarchical_context_parallel_sizes: [2, 2]")}},
      {"experts",
       {{.name = "-"},
        experts("moe", 1, "mixtral", kMixtral),
        experts("ep", 2, "mixtral", kMixtral),
        experts("ep, etp", 2, "mixtral", kMixtral, "expert_tensor_parallel_size: 2"),
        experts("ep, latent attention", 2, "deepseek_v3", kDeepseek),
        experts("ep, sinks", 2, "gpt_oss", kGptOss)}},
      {"checkpointing",
       {{.name = "-"},
        {.name = "full", .distributed = "activation_checkpointing: full"},
        {.name = "selective", .distributed = "activation_checkpointing: selective"}}},
      {"embeddings", {{.name = "untied"}, {.name = "tied", .tied = true}}},
      {"accumulation", {{.name = "1 run"}, {.name = "2 runs", .runs = 2}}},
      {"family",
       {{.name = "llama"},
        {.name = "qwen3", .family = "qwen3", .model = "head_dim: 16"},
        {.name = "gemma2", .family = "gemma2", .model = "head_dim: 8, query_pre_attn_scalar: 8, sliding_window: 5"},
        {.name = "phi3", .family = "phi3", .model = "original_max_position_embeddings: 32, pad_token_id: 0"}}},
      {"options",
       {{.name = "-"},
        option("deferred head",
               "gradient_accumulation_fusion: true, defer_embedding_wgrad_compute: true, wgrad_deferral_limit: 1"),
        option("delayed weight gradients", "delay_wgrad_compute: true"),
        option("one microbatch not recomputed", "num_microbatches_with_partial_activation_checkpoints: 1"),
        option("offloaded activations",
               "cpu_offloading: true, cpu_offloading_num_layers: 3, cpu_offloading_double_buffering: true"),
        option("overlap",
               "tp_comm_overlap: true, tp_comm_overlap_rs_dgrad: true, overlap_moe_expert_parallel_comm: true"),
        option("late weight gradients of experts", "overlap_dispatch_backward_with_experts_wgrad: true")}},
  };
}

using Combination = std::vector<std::size_t>;  ///< one choice per dimension

struct Composed {
  test::TinyRun run;
  int ranks = 1;
};

void append(std::string& list, const std::string& more) {
  if (!more.empty()) list += (list.empty() ? "" : ", ") + more;
}

Composed compose(const std::vector<Dimension>& all, const Combination& picked) {
  Composed out{.run = {.layers = 4, .global_batch = kGlobalBatch}};
  out.run.runtime.offload_on_cpu = true;
  std::string pipeline;
  int dp = 1, runs = 1;
  for (std::size_t d = 0; d < all.size(); ++d) {
    const auto& choice = all[d].choices[picked[d]];
    append(out.run.distributed, choice.distributed);
    append(pipeline, choice.pipeline);
    append(out.run.model_parallel, choice.megatron);
    if (!choice.family.empty()) out.run.family = choice.family;
    append(out.run.model, choice.model);
    out.run.tied = out.run.tied || choice.tied;
    out.ranks *= choice.pp * choice.dp * choice.tp * choice.cp;
    dp *= choice.dp;
    runs *= choice.runs;
  }
  if (!pipeline.empty()) append(out.run.distributed, "pipeline: {" + pipeline + "}");
  out.run.local_batch = kGlobalBatch / dp / runs;
  if (!pipeline.empty()) out.run.local_batch = std::min(out.run.local_batch, 8);
  return out;
}

struct Outcome {
  enum class Kind { kEqual, kRefused, kWrong } kind = Kind::kEqual;
  std::string text = {};
  double worst = 0;
};

Outcome try_out(const Composed& composed) {
  const auto text = test::recipe_text(composed.run, false);
  const auto recipe = config::read_recipe(text, "matrix.yaml", {}, [](const std::string&) { return std::nullopt; });
  if (!recipe.problems.empty()) return {Outcome::Kind::kRefused, recipe.problems.front().message};
  const auto made = estimate::make_plan(recipe, {.world_size = composed.ranks, .training = true});
  if (!made.plan) {
    for (const auto& problem : made.problems)
      if (problem.message.empty() || problem.help.empty() || problem.where.line == 0)
        return {Outcome::Kind::kWrong, "refused without message, help or place: " + std::string(problem.id)};
    return {Outcome::Kind::kRefused, made.problems.front().message};
  }
  train::Trace mesh;
  const auto outcome = comm::run_ranks(
      composed.ranks,
      [&](comm::World& world) {
        auto mine = train::trace_steps(recipe, world, composed.run.steps, -1, composed.run.runtime);
        if (world.rank() == 0) mesh = std::move(mine);
      },
      test::carried({.background_progress = false}));
  if (!outcome.ok()) return {Outcome::Kind::kWrong, outcome.text};
  if (auto mistake = test::carrier_mistake(); !mistake.empty()) return {Outcome::Kind::kWrong, std::move(mistake)};
  const auto single = test::on_one_rank(test::recipe_text(composed.run, true), composed.run.steps);
  const auto difference = train::compare(mesh, single);
  const double worst = std::max({difference.loss, difference.norm, difference.gradient});
  if (!difference.within(1e-9))
    return {Outcome::Kind::kWrong, fmt::format("loss {:.1e}, norm {:.1e}, gradient {:.1e} of {}", difference.loss,
                                               difference.norm, difference.gradient, difference.worst)};
  return {Outcome::Kind::kEqual, {}, worst};
}

/// Every pair of choices of two dimensions, the others at their defaults, then `sample` random combinations.
std::vector<Combination> combinations(const std::vector<Dimension>& all, int sample, std::uint64_t seed) {
  std::vector<Combination> out;
  std::set<Combination> known;
  const auto add = [&](Combination each) {
    if (all[kExperts].choices[each[kExperts]].experts) each[kFamily] = 0;
    if (compose(all, each).ranks <= kMostRanks && known.insert(each).second) out.push_back(each);
  };
  for (std::size_t a = 0; a < all.size(); ++a)
    for (std::size_t b = a + 1; b < all.size(); ++b)
      for (std::size_t i = 0; i < all[a].choices.size(); ++i)
        for (std::size_t j = 0; j < all[b].choices.size(); ++j) {
          Combination each(all.size(), 0);
          each[a] = i;
          each[b] = j;
          // Expert parallelism takes its ranks from the data-parallel ones.
          if (all[kExperts].choices[each[kExperts]].name.starts_with("ep") && compose(all, each).ranks == 1)
            each[kData] = 5;
          add(each);
        }
  const auto pairs = out.size();
  const RandomStream random(seed, "parity matrix");
  std::uint64_t counter = 0;
  while (out.size() < pairs + static_cast<std::size_t>(sample) && counter < 100'000) {
    Combination each;
    for (const auto& dimension : all)
      each.push_back(static_cast<std::size_t>(random.below(counter++, dimension.choices.size())));
    add(each);
  }
  return out;
}

std::string describe(const std::vector<Dimension>& all, const Combination& each) {
  std::string out;
  for (std::size_t d = 0; d < all.size(); ++d) {
    if (each[d] == 0 && d != kData) continue;
    append(out, all[d].choices[each[d]].name);
  }
  return out;
}

struct Row {
  std::string what;
  int ranks;
  Outcome outcome;
};

std::string page(const std::vector<Row>& rows, std::size_t pairs_and_sample, std::uint64_t seed) {
  int equal = 0, refused = 0, wrong = 0;
  for (const auto& row : rows) {
    equal += row.outcome.kind == Outcome::Kind::kEqual ? 1 : 0;
    refused += row.outcome.kind == Outcome::Kind::kRefused ? 1 : 0;
    wrong += row.outcome.kind == Outcome::Kind::kWrong ? 1 : 0;
  }
  std::string out = fmt::format(
      "# Parity matrix\n\nWritten by `parity_matrix --write` (see `test/parity/matrix.cpp`); not edited by "
      "hand.\n\nEach "
      "row trains two steps of a tiny model in float64 on the given ranks and on one rank. The figure is the largest "
      "relative difference of loss, gradient norm and any parameter's gradient; 1e-9 is allowed. Refused rows are "
      "refused by `automodel plan` with that reason.\n\n{} combinations (seed {}): {} equal, {} refused, {} wrong.\n\n"
      "| combination | ranks | result |\n| --- | --- | --- |\n",
      pairs_and_sample, seed, equal, refused, wrong);
  for (const auto& row : rows) {
    std::string result;
    switch (row.outcome.kind) {
      case Outcome::Kind::kEqual: result = fmt::format("{:.0e}", row.outcome.worst); break;
      case Outcome::Kind::kRefused: result = "refused: " + row.outcome.text; break;
      case Outcome::Kind::kWrong: result = "**wrong**: " + row.outcome.text; break;
    }
    std::replace(result.begin(), result.end(), '\n', ' ');
    out += fmt::format("| {} | {} | {} |\n", row.what, row.ranks, result);
  }
  return out;
}

int run(int argc, char** argv) {
  std::map<std::string, std::string> options;
  for (int i = 1; i + 1 < argc; i += 2) options[argv[i]] = argv[i + 1];
  const auto number = [&](const char* name, int otherwise) {
    return options.count(name) != 0 ? std::atoi(options[name].c_str()) : otherwise;
  };
  int part = 0, parts = 1;
  if (options.count("--part") != 0) std::sscanf(options["--part"].c_str(), "%d/%d", &part, &parts);
  const auto seed = static_cast<std::uint64_t>(number("--seed", 1));
  const auto all = dimensions();
  const auto list = combinations(all, number("--sample", 40), seed);
  std::vector<Row> rows;
  int wrong = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (static_cast<int>(i) % parts != part) continue;
    const auto composed = compose(all, list[i]);
    const auto outcome = try_out(composed);
    rows.push_back({describe(all, list[i]), composed.ranks, outcome});
    if (outcome.kind == Outcome::Kind::kWrong) {
      ++wrong;
      fmt::print("WRONG {} ({} ranks): {}\n{}\n", rows.back().what, composed.ranks, outcome.text,
                 test::recipe_text(composed.run, false));
      std::fflush(stdout);
    }
  }
  if (options.count("--write") != 0) std::ofstream(options["--write"]) << page(rows, rows.size(), seed);
  const auto refused = std::count_if(rows.begin(), rows.end(),
                                     [](const Row& row) { return row.outcome.kind == Outcome::Kind::kRefused; });
  fmt::print("{} combinations: {} equal, {} refused, {} wrong\n", rows.size(),
             static_cast<std::ptrdiff_t>(rows.size()) - refused - wrong, refused, wrong);
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  return automodel::run(argc, argv);
}
