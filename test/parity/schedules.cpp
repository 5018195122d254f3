// Every schedule on several ranks computes the gradients of one rank: float64 within 1e-9, float32 within 1e-5.
#include <mutex>

#include "comm/loopback/loopback.h"
#include "config/recipe.h"
#include "rank_suite.h"
#include "train/verify.h"

namespace automodel {
namespace {

struct Case {
  std::string schedule;
  int per_rank;
  int microbatches;
  int layers;
  bool tied = false;
  int dp = 1;
  std::string dtype = "float64";
  std::string extra = {};
};

std::string recipe(const Case& c, int pp, bool single) {
  const int dp = single ? 1 : c.dp;
  const int global = 2 * c.microbatches * c.dp;
  std::string text = fmt::format(
      "model: {{config: {{model_type: llama, hidden_size: 32, intermediate_size: 48, num_hidden_layers: {}, "
      "num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 67, "
      "max_position_embeddings: 32, tie_word_embeddings: {}, initializer_range: 0.2}}, torch_dtype: {}}}\n"
      "dataset: {{_target_: mock, vocab_size: 67, seq_length: 12, num_samples: 64}}\n"
      "step_scheduler: {{global_batch_size: {}, local_batch_size: {}, max_steps: 10, num_epochs: null}}\n"
      "optimizer: {{lr: 0.01}}\n",
      c.layers, c.tied, c.dtype, global, single ? global : global / dp);
  if (single) return text + "distributed: {strategy: ddp}\n";
  return text + fmt::format(
                    "distributed: {{strategy: ddp, dp_size: {}, pp_size: {}, pipeline: {{pp_schedule: {}, "
                    "pp_microbatch_size: 2{}}}}}\nmodel_parallel: {{virtual_pipeline_model_parallel_size: {}{}}}\n",
                    dp, pp, c.schedule, pp > 1 ? "" : "", c.per_rank, c.extra);
}

config::LoadedRecipe load(const std::string& text) {
  auto loaded = config::read_recipe(text, "parity.yaml", {}, [](const std::string&) { return std::nullopt; });
  if (!loaded.problems.empty()) throw Error(ExitCode::kBadInput, loaded.problems);
  return loaded;
}

train::Trace on_one_rank(const config::LoadedRecipe& loaded, int steps) {
  train::Trace out;
  const auto outcome = comm::run_ranks(1, [&](comm::World& world) { out = train::trace_steps(loaded, world, steps); });
  if (!outcome.ok()) throw Error(outcome.code, {"reference", outcome.text, "", {}, ""});
  return out;
}

void check(comm::World& world, const Case& c, int steps = 2) {
  if (world.size() % c.dp != 0) return;
  const int pp = world.size() / c.dp;
  const auto mesh = train::trace_steps(load(recipe(c, pp, false)), world, steps);
  if (world.rank() != 0) return;
  const auto single = on_one_rank(load(recipe(c, pp, true)), steps);
  const auto difference = train::compare(mesh, single);
  const double tolerance = c.dtype == "float64" ? 1e-9 : 1e-5;
  if (!difference.within(tolerance))
    test::rank_check_failed(
        __FILE__, __LINE__,
        fmt::format(
            "{} pp {} x {} stages, {} microbatches, {} layers{}{} {}: loss {:.2e}, norm {:.2e}, gradient {:.2e} of {}",
            c.schedule, pp, c.per_rank, c.microbatches, c.layers, c.tied ? ", tied" : "", c.dp > 1 ? ", dp 2" : "",
            c.dtype, difference.loss, difference.norm, difference.gradient, difference.worst));
}

const std::vector<test::RankCase> kCases = {
    {"1F1B",
     [](comm::World& w) {
       for (int m : {1, 2, 3, 8}) check(w, {"1F1B", 1, m, 5});
     }},
    {"GPipe",
     [](comm::World& w) {
       for (int m : {1, 4}) check(w, {"GPipe", 1, m, 4});
     }},
    {"Interleaved1F1B",
     [](comm::World& w) {
       for (int v : {2, 3}) check(w, {"Interleaved1F1B", v, 4 * w.size(), v * w.size() + 1});
     }},
    {"LoopedBFS",
     [](comm::World& w) {
       for (int v : {1, 2}) check(w, {"LoopedBFS", v, 3, v * w.size()});
     }},
    {"InterleavedZeroBubble",
     [](comm::World& w) {
       check(w, {"InterleavedZeroBubble", 2, 2 * w.size(), 2 * w.size() + 2});
     }},
    {"ZBVZeroBubble",
     [](comm::World& w) {
       for (int m : {2, 7}) check(w, {"ZBVZeroBubble", 2, m, 2 * w.size() + 1});
     }},
    {"DualPipeV",
     [](comm::World& w) {
       check(w, {"DualPipeV", 2, 2 * w.size() + 1, 2 * w.size()});
     }},
    {"MegatronInterleaved",
     [](comm::World& w) {
       check(w, {"MegatronInterleaved", 2, 2 * w.size(), 2 * w.size()});
     },
     2},
    {"tied embeddings under every placement",
     [](comm::World& w) {
       for (const char* s : {"1F1B", "ZBVZeroBubble", "Interleaved1F1B"})
         check(w, {s, std::string(s) == "1F1B" ? 1 : 2, 4, 2 * w.size(), true});
     }},
    {"pipeline and data parallel",
     [](comm::World& w) {
       for (const char* s : {"1F1B", "ZBVZeroBubble"}) check(w, {s, std::string(s) == "1F1B" ? 1 : 2, 4, 4, true, 2});
     },
     2},
    {"float32 over ten steps",
     [](comm::World& w) {
       check(w, {"1F1B", 1, 4, 4, false, 1, "float32"}, 10);
     }},
};

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  return automodel::test::run_rank_suite(argc, argv, automodel::kCases);
}
