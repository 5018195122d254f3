// Low-rank adapters: gradients are projections of those of the merged weights and equal on every mesh to those of one
// rank, and all other weights stay unchanged.
#include <fmt/format.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/matmul.h>

#include "parity/session.h"
#include "rank_suite.h"

namespace automodel {
namespace {

using test::Session;
using test::source_of;

const std::string kAttention = "peft: {dim: 4, alpha: 6, target_modules: ['*attn*_proj*', c_attn]}\n";
const std::string kAll = "peft: {dim: 4, alpha: 6, match_all_linear: true}\n";
const std::string kUsual = "peft: {dim: 4, alpha: 6}\n";  // *_proj

// --- against the merged weights, on one rank

double apart(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).norm().item<double>() / std::max(b.norm().item<double>(), 1e-12);
}

struct Model {
  const char* family;
  const char* keys;
  std::string peft;
  bool tied = false;
};
const Model kExperts = {
    "qwen3_moe", "num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 12, norm_topk_prob: true, head_dim: 8",
    "peft: {dim: 4, alpha: 6, moe_rank_scaling: true, target_modules: ['*q_proj', '*.experts']}\n"};
const std::vector<Model> kModels = {
    {"llama", "attention_bias: true", kAll},
    {"llama", "", kUsual, true},
    {"qwen3", "head_dim: 16", kUsual},
    {"gemma2", "head_dim: 8, query_pre_attn_scalar: 8, sliding_window: 5", kUsual, true},
    {"phi3", "original_max_position_embeddings: 32, pad_token_id: 0", kUsual},
    {"qwen3_moe",
     "num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 12, norm_topk_prob: true, head_dim: 8",
     kAttention},
    {"deepseek_v3",
     "n_routed_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 12, n_group: 2, topk_group: 1, "
     "n_shared_experts: 1, first_k_dense_replace: 1, q_lora_rank: 16, kv_lora_rank: 12, qk_nope_head_dim: 8, "
     "qk_rope_head_dim: 4, v_head_dim: 6",
     "peft: {dim: 4, alpha: 6, target_modules: ['*attn*_proj*', '*shared_experts*']}\n"},
    {kExperts.family, kExperts.keys, kExperts.peft},
};
const char* const kGpt2 =
    "model_type: gpt2, n_embd: 32, n_layer: 2, n_head: 4, vocab_size: 69, n_positions: 32, attn_pdrop: 0.0, "
    "embd_pdrop: 0.0, resid_pdrop: 0.0";
const std::string kGpt2Adapters = "peft: {dim: 4, alpha: 6, target_modules: [c_attn, c_fc, c_proj]}\n";

test::TinyRun run_of(const Model& model) {
  return {.layers = 2, .tied = model.tied, .family = model.family, .model = model.keys, .sections = model.peft};
}

/// dB = scale dW A^T and dA = scale B^T dW, with dW the gradient of W + scale B A.
void check_projections(comm::World& world, test::TinyRun run) {
  const std::string what = run.config.empty() ? run.family : run.config;
  Session adapted(world, test::recipe_text(run, true));
  for (const int step : {0, 1}) adapted.step(step);  // B is zero before training
  auto values = train::gather_values(adapted.runtime());
  const auto result = adapted.gradients(2);
  const auto gradients = train::gather_gradients(adapted.runtime());
  const auto& spec = adapted.plan().adapters->spec;
  RANK_EQUAL(gradients.size(), 2 * spec.weights.size());
  auto merged = values;
  for (const auto& name : spec.weights) {
    const double scale = spec.scale(name.find(".experts.") != std::string::npos);
    const auto delta =
        scale * at::matmul(values.at(arch::adapter_matrix(name, 'B')), values.at(arch::adapter_matrix(name, 'A')));
    merged[name] = values.at(name) + (spec.transposed ? delta.t() : delta);
  }
  run.sections = "";
  Session dense(world, test::recipe_text(run, true), source_of(merged));
  const auto expected = dense.gradients(2);
  if (std::abs(result.loss - expected.loss) > 1e-12 * expected.loss)
    test::rank_check_failed(__FILE__, __LINE__,
                            fmt::format("{}: loss {} against {}", what, result.loss, expected.loss));
  const auto whole = train::gather_gradients(dense.runtime());
  double squares = 0;
  for (const auto& name : spec.weights) {
    const auto w = spec.transposed ? whole.at(name).t() : whole.at(name);
    const auto nameA = arch::adapter_matrix(name, 'A'), nameB = arch::adapter_matrix(name, 'B');
    const double scale = spec.scale(name.find(".experts.") != std::string::npos);
    const double a = apart(gradients.at(nameA), scale * at::matmul(values.at(nameB).t(), w));
    const double b = apart(gradients.at(nameB), scale * at::matmul(w, values.at(nameA).t()));
    if (!(a < 1e-9 && b < 1e-9))
      test::rank_check_failed(__FILE__, __LINE__, fmt::format("{}: {}: dA {:.1e}, dB {:.1e}", what, name, a, b));
    RANK_CHECK(gradients.at(nameA).norm().item<double>() > 0);
    squares += gradients.at(nameA).square().sum().item<double>() + gradients.at(nameB).square().sum().item<double>();
  }
  RANK_CHECK(std::abs(std::sqrt(squares) - result.grad_norm) < 1e-9 * result.grad_norm);
}

/// Base weights do not change and have no gradients or optimizer states.
void check_frozen(comm::World& world, const std::string& distributed) {
  test::TinyRun run{.layers = 2, .global_batch = 4 * world.size(), .local_batch = 4, .sections = kUsual};
  run.distributed = distributed;
  Session session(world, test::recipe_text(run, false));
  const auto before = train::gather_values(session.runtime());
  for (const int step : {0, 1, 2}) session.step(step);
  const auto after = train::gather_values(session.runtime());
  const auto elements = static_cast<double>(session.plan().adapters->elements);
  for (const auto& [name, value] : before) {
    const bool adapter = name.find(".lora_") != std::string::npos;
    if (at::equal(value, after.at(name)) == adapter)
      test::rank_check_failed(__FILE__, __LINE__, name + (adapter ? " is not trained" : " was changed"));
  }
  // Moments and gradients of the adapters only, up to alignment of the shards.
  RANK_CHECK(static_cast<double>(session.runtime().optimizer().state_bytes()) <= 2 * 8 * (elements + 2048));
  std::int64_t gradients = 0;
  for (auto* stage : session.runtime().stages()) gradients += stage->data_parallel().bytes().gradients;
  RANK_CHECK(static_cast<double>(gradients) <= 2 * 8 * (elements + 2048));
}

// --- meshes against one rank

struct Mesh {
  std::string distributed;
  std::string megatron = {};
  int data = 1;  ///< data-parallel ranks
  int least_ranks = 1;
};

/// The meshes to test on this many ranks.
std::vector<Mesh> meshes(int ranks) {
  std::vector<Mesh> out;
  for (const char* strategy :
       {"strategy: ddp", "strategy: fsdp2", "strategy: fsdp2, reshard_after_forward: true, enable_fsdp2_prefetch: true",
        "strategy: fsdp2, defer_fsdp_grad_sync: false", "strategy: fsdp2, offload_policy: {}",
        "strategy: megatron_fsdp, zero_dp_strategy: 1", "strategy: megatron_fsdp, zero_dp_strategy: 2",
        "strategy: megatron_fsdp, zero_dp_strategy: 3"}) {
    out.push_back({strategy, "", ranks});
    for (const char* kind : {"full", "selective"})
      if (std::string(strategy).find("megatron") == std::string::npos)
        out.push_back({fmt::format("{}, activation_checkpointing: {}", strategy, kind), "", ranks});
    if (ranks % 2 != 0) continue;
    for (const char* schedule : {"1F1B", "InterleavedZeroBubble", "ZBVZeroBubble"}) {
      const bool one = schedule == std::string("1F1B");
      out.push_back(
          {fmt::format("{}, pp_size: 2, pipeline: {{pp_schedule: {}, pp_microbatch_size: 1}}", strategy, schedule),
           fmt::format("virtual_pipeline_model_parallel_size: {}", one ? 1 : 2), ranks / 2});
    }
    out.push_back({fmt::format("{}, tp_size: 2", strategy), "", ranks / 2});
    out.push_back({fmt::format("{}, cp_size: 2", strategy), "", ranks / 2});
  }
  if (ranks % 2 == 0) {
    out.push_back({"strategy: fsdp2, tp_size: 2, sequence_parallel: true", "", ranks / 2});
    out.push_back(
        {"strategy: fsdp2, tp_size: 2, sequence_parallel: true, enable_async_tensor_parallel: true", "", ranks / 2});
    out.push_back({"strategy: ddp, tp_size: 2, activation_checkpointing: full",
                   "sequence_parallel: true, tp_comm_overlap: true", ranks / 2});
    out.push_back({fmt::format("strategy: fsdp2, dp_size: {}, dp_replicate_size: 2", ranks), "", ranks});
  }
  if (ranks % 4 == 0)
    out.push_back(
        {"strategy: fsdp2, tp_size: 2, sequence_parallel: true, pp_size: 2, pipeline: {pp_schedule: "
         "InterleavedZeroBubble, pp_microbatch_size: 1}",
         "virtual_pipeline_model_parallel_size: 2", ranks / 4});
  return out;
}

/// One mesh of each kind.
std::vector<Mesh> few_meshes(int ranks) {
  std::vector<Mesh> out = {
      {"strategy: megatron_fsdp, zero_dp_strategy: 2", "", ranks},
      {"strategy: fsdp2, reshard_after_forward: true, activation_checkpointing: full", "", ranks},
      {"strategy: fsdp2, pp_size: 2, pipeline: {pp_schedule: ZBVZeroBubble, pp_microbatch_size: 1}",
       "virtual_pipeline_model_parallel_size: 2", ranks / 2},
      {"strategy: ddp, tp_size: 2", "", ranks / 2},
      {"strategy: fsdp2, tp_size: 2, sequence_parallel: true, activation_checkpointing: selective", "", ranks / 2},
      {"strategy: ddp, tp_size: 2", "sequence_parallel: true, tp_comm_overlap: true", ranks / 2},
      {"strategy: ddp, cp_size: 2", "", ranks / 2},
  };
  if (ranks % 4 == 0)
    out.push_back({"strategy: fsdp2, tp_size: 2, cp_size: 2, sequence_parallel: true", "", ranks / 4});
  return out;
}

void check(comm::World& w, test::TinyRun run, const Mesh& mesh) {
  run.global_batch = 24;  // the same for every mesh
  run.local_batch = run.global_batch / mesh.data / 2;
  run.steps = 3;
  run.distributed = mesh.distributed;
  run.model_parallel = mesh.megatron;
  test::check_parity(
      w, run, fmt::format("{} {}: {} / {}, {}", run.family, run.sections, mesh.distributed, mesh.megatron, run.config));
}

void check_meshes(comm::World& w, const std::string& peft, int layers, const std::vector<Mesh>& list) {
  for (const auto& mesh : list) check(w, {.layers = layers, .sections = peft}, mesh);
}

const std::vector<test::RankCase> kCases = {
    {"gradients are projections of the merged weights'",
     [](comm::World& w) {
       for (const auto& model : kModels) check_projections(w, run_of(model));
       check_projections(w, {.config = kGpt2, .sections = kGpt2Adapters});
     },
     1, 1},
    {"the base stays as it is and costs nothing",
     [](comm::World& w) {
       for (const char* strategy : {"strategy: ddp", "strategy: fsdp2", "strategy: megatron_fsdp, zero_dp_strategy: 1",
                                    "strategy: megatron_fsdp, zero_dp_strategy: 2"})
         check_frozen(w, strategy);
     }},
    {"every mesh trains the adapters of one rank", [](comm::World& w) { check_meshes(w, kUsual, 5, meshes(w.size())); },
     2},
    {"adapters of experts travel with them",
     [](comm::World& w) {
       const int ranks = w.size();
       for (const Mesh& mesh : std::vector<Mesh>{
                {fmt::format("strategy: ddp, ep_size: {}", ranks), "", ranks},
                {"strategy: fsdp2, ep_size: 2, activation_checkpointing: full", "", ranks},
                {"strategy: megatron_fsdp, zero_dp_strategy: 3", "", ranks},
                {"strategy: fsdp2, tp_size: 2, sequence_parallel: true", "", ranks / 2},
                {"strategy: fsdp2, pp_size: 2, pipeline: {pp_schedule: 1F1B, pp_microbatch_size: 1}", "", ranks / 2}})
         check(w, run_of(kExperts), mesh);
     },
     2, 4},
    {"the head's adapter too", [](comm::World& w) { check_meshes(w, kAll, 4, few_meshes(w.size())); }, 2},
    {"dropout leaves out the same elements on every mesh",
     [](comm::World& w) {
       for (const char* position : {"post", "pre"})
         check_meshes(w,
                      fmt::format("peft: {{dim: 4, alpha: 6, match_all_linear: true, dropout: 0.3, "
                                  "dropout_position: {}}}\n",
                                  position),
                      4, few_meshes(w.size()));
     },
     2},
    {"dropout makes a difference, in training alone",
     [](comm::World& w) {
       const auto losses = [&](const std::string& more) {
         test::TinyRun run{.global_batch = 4, .local_batch = 4, .sections = "peft: {dim: 4" + more + "}\n"};
         std::vector<double> out;
         for (const auto& step : train::results_of_steps(test::load_recipe(test::recipe_text(run, true)), w, 3))
           out.push_back(step.loss);
         return out;
       };
       const auto plain = losses(""), post = losses(", dropout: 0.5"),
                  pre = losses(", dropout: 0.5, dropout_position: pre");
       RANK_EQUAL(plain[0], post[0]);  // B is zero
       RANK_CHECK(plain[2] != post[2] && plain[2] != pre[2] && pre[2] != post[2]);
       RANK_EQUAL(losses(", dropout: 0.5")[2], post[2]);
     },
     1, 1},
    {"adapters of some layers only, and of kaiming's start",
     [](comm::World& w) {
       for (const auto& mesh : few_meshes(w.size()))
         check(w,
               {.layers = 4,
                .sections = "peft: {dim: 3, lora_A_init: kaiming, target_modules: ['*layers.0.*q_proj', "
                            "'*layers.3.*down_proj']}\n"},
               mesh);
     },
     2},
    {"magnitudes, with dropout too",
     [](comm::World& w) {
       for (const char* more : {"", ", dropout: 0.3, dropout_position: post", ", dropout: 0.3, dropout_position: pre"})
         check_meshes(w, fmt::format("peft: {{dim: 4, alpha: 6, match_all_linear: true, use_dora: true{}}}\n", more), 4,
                      few_meshes(w.size()));
       check(w,
             {.config = kGpt2,
              .sections = "peft: {dim: 4, alpha: 6, use_dora: true, target_modules: [c_attn, c_fc, c_proj]}\n"},
             {"strategy: ddp, tp_size: 2", "", w.size() / 2});
     },
     2},
    {"other families",
     [](comm::World& w) {
       for (const auto& model : kModels)
         for (const auto& mesh :
              {Mesh{"strategy: fsdp2, tp_size: 2, sequence_parallel: true", "", w.size() / 2},
               Mesh{"strategy: ddp, tp_size: 2", "", w.size() / 2}, Mesh{"strategy: fsdp2", "", w.size()}})
           check(w, run_of(model), mesh);
       check(w, {.config = kGpt2, .sections = kGpt2Adapters}, {"strategy: ddp, tp_size: 2", "", w.size() / 2});
       check(w, run_of(kModels[5]), {"strategy: fsdp2, ep_size: 2", "", w.size()});
     },
     2},
    {"low precision and autocast",
     [](comm::World& w) {
       for (const char* strategy : {"strategy: ddp", "strategy: fsdp2",
                                    "strategy: megatron_fsdp, zero_dp_strategy: 1, "
                                    "preserve_fp32_weights: true"}) {
         const auto losses = [&](const std::string& dtype, const std::string& megatron) {
           test::TinyRun run{.global_batch = 8, .local_batch = 4, .dtype = dtype, .sections = kUsual};
           run.distributed = strategy;
           run.model_parallel = megatron;
           std::vector<double> out;
           for (const auto& step : train::results_of_steps(test::load_recipe(test::recipe_text(run, false)), w, 8))
             out.push_back(step.loss);
           return out;
         };
         const auto exact = losses("float32", "");
         for (const auto& [dtype, megatron] : std::vector<std::pair<std::string, std::string>>{
                  {"bfloat16", ""}, {"float32", "enable_autocast: true, autocast_dtype: bfloat16"}}) {
           const auto coarse = losses(dtype, megatron);
           for (std::size_t i = 0; i < exact.size(); ++i) RANK_CHECK(std::abs(coarse[i] - exact[i]) < 0.02 * exact[i]);
         }
       }
     },
     2, 2},
};

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  return automodel::test::run_rank_suite(argc, argv, automodel::kCases);
}
