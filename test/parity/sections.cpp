// Sections that change training: noise on embeddings, frozen modules, updated router biases. Checked against an
// independent computation, and on every mesh against one rank.
#include <cmath>

#include <fmt/format.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "comm/loopback/loopback.h"
#include "model/embedding_noise.h"
#include "model/router_loads.h"
#include "parity/parity.h"
#include "parity/session.h"
#include "rank_suite.h"

namespace automodel {
namespace {

const char* const kGpt2 =
    "model_type: gpt2, n_embd: 32, n_layer: 2, n_head: 4, vocab_size: 69, n_positions: 32, attn_pdrop: 0.0, "
    "embd_pdrop: 0.0, resid_pdrop: 0.0";

/// Meshes of `ranks` ranks, one of each kind.
std::vector<std::pair<std::string, int>> meshes(int ranks) {
  std::vector<std::pair<std::string, int>> out = {
      {"strategy: ddp", ranks},
      {"strategy: fsdp2, reshard_after_forward: true, activation_checkpointing: full", ranks},
      {"strategy: megatron_fsdp, zero_dp_strategy: 2", ranks},
      {"strategy: fsdp2, pp_size: 2, pipeline: {pp_schedule: 1F1B, pp_microbatch_size: 1}", ranks / 2},
      {"strategy: ddp, tp_size: 2", ranks / 2},
      {"strategy: fsdp2, tp_size: 2, sequence_parallel: true", ranks / 2},
      {"strategy: fsdp2, cp_size: 2", ranks / 2},
  };
  if (ranks % 4 == 0) out.emplace_back("strategy: fsdp2, tp_size: 2, cp_size: 2, sequence_parallel: true", ranks / 4);
  return out;
}

void check_meshes(comm::World& w, test::TinyRun run) {
  for (const auto& [distributed, data] : meshes(w.size())) {
    run.global_batch = 24;  // the same for every mesh
    run.local_batch = run.global_batch / data / 2;
    run.steps = 3;
    run.distributed = distributed;
    test::check_parity(w, run, run.family + " " + run.sections + distributed);
  }
}

// --- neftune

constexpr double kAlpha = 5;

/// A model with learned positions and one sequence: noise on its tokens is equivalent to a change of the position
/// table.
void check_noise(comm::World& world) {
  constexpr std::int64_t kLength = 16, kWidth = 32, kStep = 1;
  test::TinyRun run{.global_batch = 1, .local_batch = 1, .config = kGpt2};
  test::Session plain(world, test::recipe_text(run, true));
  auto moved = train::gather_values(plain.runtime());
  ops::DropoutDraw draw;
  draw.seed = plain.plan().weights.seed;
  draw.step = kStep;
  for (std::int64_t t = 0; t < kLength; ++t) draw.tokens.push_back(t);
  const double most = kAlpha / std::sqrt(static_cast<double>(kLength * kWidth));
  const auto noise =
      model::embedding_noise(draw, draw.tokens_on(at::kCPU).view({1, -1}), kWidth, most, at::kDouble).squeeze(0);
  RANK_CHECK(noise.abs().max().item<double>() <= most && noise.abs().max().item<double>() > 0.95 * most);
  // Of 512 uniform numbers: mean within 5 deviations of 0, mean square within a sixth of most^2 / 3.
  RANK_CHECK(std::abs(noise.mean().item<double>()) < 5 * most / std::sqrt(3.0 * kLength * kWidth));
  RANK_CHECK(std::abs(noise.square().mean().item<double>() / (most * most / 3) - 1) < 1.0 / 6);
  moved.at("transformer.wpe.weight").narrow(0, 0, kLength).add_(noise);
  test::Session shifted(world, test::recipe_text(run, true), test::source_of(moved));
  run.sections = fmt::format("neftune: {{noise_alpha: {}}}\n", kAlpha);
  test::Session noisy(world, test::recipe_text(run, true));
  const double expected = shifted.gradients(kStep).loss, before = plain.gradients(kStep).loss;
  const auto result = noisy.gradients(kStep);
  RANK_CHECK(std::abs(result.loss - expected) < 1e-12 * expected);
  RANK_CHECK(std::abs(before - expected) > 1e-6 * expected);
}

// --- freeze_config

const std::string kFrozen =
    "freeze_config: {freeze_modules: [{path: model.embed_tokens}, {glob: '*.layers.0.*'}, {glob: '*layers.?.mlp'}, "
    "{path: model.norm}], unfreeze_modules: [{glob: '*.layers.0.*.[gu]*_proj'}]}\n";

bool is_frozen(const std::string& name) {
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  if (has("layers.0.mlp.gate_proj") || has("layers.0.mlp.up_proj")) return false;
  return has("embed_tokens") || has("layers.0.") || has(".mlp.") || name == "model.norm.weight";
}

/// Gradients of trained parameters equal those of a run that trains everything; the others have none and do not change.
void check_frozen(comm::World& world, const std::string& distributed) {
  test::TinyRun run{.layers = 2, .global_batch = 4 * world.size(), .local_batch = 4};
  run.distributed = distributed;
  test::Session whole(world, test::recipe_text(run, false));
  run.sections = kFrozen;
  test::Session session(world, test::recipe_text(run, false));
  const auto expected = whole.gradients(0), result = session.gradients(0);
  RANK_CHECK(std::abs(result.loss - expected.loss) < 1e-12 * expected.loss);
  const auto all = train::gather_gradients(whole.runtime()), some = train::gather_gradients(session.runtime());
  double trained = 0, squares = 0;
  for (const auto& [name, gradient] : all) {
    RANK_EQUAL(some.contains(name), !is_frozen(name));
    if (!some.contains(name)) continue;
    trained += static_cast<double>(gradient.numel());
    squares += some.at(name).square().sum().item<double>();
    RANK_CHECK((some.at(name) - gradient).norm().item<double>() <= 1e-12 * gradient.norm().item<double>());
  }
  RANK_CHECK(std::abs(std::sqrt(squares) - result.grad_norm) < 1e-9 * result.grad_norm);
  const auto before = train::gather_values(session.runtime());
  for (const int step : {0, 1}) session.step(step);
  for (const auto& [name, value] : train::gather_values(session.runtime()))
    if (at::equal(value, before.at(name)) != is_frozen(name))
      test::rank_check_failed(__FILE__, __LINE__, name + (is_frozen(name) ? " was changed" : " is not trained"));
  // Moments and gradients of trained parameters only, up to alignment of the shards.
  RANK_CHECK(static_cast<double>(session.runtime().optimizer().state_bytes()) <= 2 * 8 * (trained + 2048));
  std::int64_t gradients = 0;
  for (auto* stage : session.runtime().stages()) gradients += stage->data_parallel().bytes().gradients;
  RANK_CHECK(static_cast<double>(gradients) <= 2 * 8 * (trained + 2048));
}

// --- moe_overrides.gate_bias_update_factor

constexpr double kBiasStep = 0.05;  // large enough to change the choice of experts

test::TinyRun biased_run() {
  return {.global_batch = 24,
          .local_batch = 12,
          .family = "deepseek_v3",
          .model =
              "n_routed_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 12, n_group: 4, topk_group: 2, "
              "n_shared_experts: 1, first_k_dense_replace: 1, q_lora_rank: 16, kv_lora_rank: 12, "
              "qk_nope_head_dim: 8, qk_rope_head_dim: 4, v_head_dim: 6}, "
              "moe_overrides: {gate_bias_update_factor: 0.05"};
}

std::map<std::string, at::Tensor> biases_of(train::Runtime& runtime) {
  auto out = train::gather_values(runtime);
  std::erase_if(out, [](const auto& each) { return !each.first.ends_with("e_score_correction_bias"); });
  return out;
}

/// A step moves each bias by the sign of the difference between the mean load and the load of its expert.
void check_bias_step(comm::World& world) {
  const auto run = biased_run();
  constexpr std::int64_t kExperts = 8, kChoices = 24 * 16 * 2;
  test::Session counted(world, test::recipe_text(run, true)), stepped(world, test::recipe_text(run, true));
  counted.gradients(0);
  auto loads = at::zeros({run.layers, kExperts}, at::kDouble);
  counted.runtime().stages().front()->model().loads().add_to(loads);
  RANK_EQUAL(loads.select(0, 0).sum().item<double>(), 0.0);  // a dense layer
  for (int layer = 1; layer < run.layers; ++layer)
    RANK_EQUAL(loads.select(0, layer).sum().item<double>(), static_cast<double>(kChoices));
  const auto before = biases_of(stepped.runtime());
  stepped.step(0);
  const auto after = biases_of(stepped.runtime());
  RANK_EQUAL(after.size(), std::size_t{3});
  for (int layer = 1; layer < run.layers; ++layer) {
    const auto name = fmt::format("model.layers.{}.mlp.gate.e_score_correction_bias", layer);
    const auto mean = static_cast<double>(kChoices) / kExperts;
    for (std::int64_t e = 0; e < kExperts; ++e) {
      const double load = loads[layer][e].item<double>();
      const double move = load < mean ? kBiasStep : load > mean ? -kBiasStep : 0;
      RANK_EQUAL(after.at(name)[e].item<double>(), before.at(name)[e].item<double>() + move);
    }
  }
  counted.runtime().begin_step();
  loads.zero_();
  counted.runtime().stages().front()->model().loads().add_to(loads);
  RANK_EQUAL(loads.sum().item<double>(), 0.0);
}

void check_padding(comm::World& /*world*/) {
  const auto chosen = at::tensor({0, 2, 2, 1, 0, 1}, at::kLong).view({3, 2});
  model::RouterLoads all, some;
  all.put(1, 4, chosen, {});
  some.put(1, 4, chosen, at::tensor({1, 0, 1}, at::kLong).to(at::kBool));
  some.put(1, 4, chosen, at::tensor({1, 0, 1}, at::kLong).to(at::kBool));  // recomputed
  auto loads = at::zeros({2, 4}, at::kDouble);
  all.add_to(loads);
  RANK_CHECK(at::equal(loads[1], at::tensor({2.0, 2.0, 2.0, 0.0}, at::kDouble)));
  some.add_to(loads);
  RANK_CHECK(at::equal(loads[1], at::tensor({4.0, 3.0, 3.0, 0.0}, at::kDouble)));
}

/// Loads are whole numbers: biases are bitwise identical on every mesh.
void check_same_biases(comm::World& world, const std::string& distributed, int data) {
  constexpr int kSteps = 3;
  auto run = biased_run();
  run.local_batch = run.global_batch / data / 2;
  run.distributed = distributed;
  std::map<std::string, at::Tensor> wanted;
  const auto alone = comm::run_ranks(1, [&](comm::World& one) {
    test::Session session(one, test::recipe_text(run, true));
    for (int step = 0; step < kSteps; ++step) session.step(step);
    wanted = biases_of(session.runtime());
  });
  RANK_CHECK(alone.ok());
  test::Session session(world, test::recipe_text(run, false));
  for (int step = 0; step < kSteps; ++step) session.step(step);
  const auto biases = biases_of(session.runtime());
  if (world.rank() != 0) return;
  RANK_EQUAL(biases.size(), wanted.size());
  for (const auto& [name, value] : wanted)
    if (!at::equal(value, biases.at(name)))
      test::rank_check_failed(__FILE__, __LINE__, distributed + ": " + name + " differs from one rank's");
}

void check_biases_of_meshes(comm::World& world) {
  const int ranks = world.size();
  for (const auto& [distributed, data] : meshes(ranks)) check_same_biases(world, distributed, data);
  for (const char* strategy : {"strategy: ddp", "strategy: fsdp2, reshard_after_forward: true, moe: {}"})
    check_same_biases(world, fmt::format("{}, ep_size: {}", strategy, ranks), ranks);
  check_same_biases(world, "strategy: fsdp2, tp_size: 2, ep_size: 2", ranks / 2);
  auto run = biased_run();
  check_meshes(world, run);
}

const std::vector<test::RankCase> kCases = {
    {"routers' biases move against the load of their experts", check_bias_step, 1, 1},
    {"padding and recomputed tokens are no load", check_padding, 1, 1},
    {"every mesh moves the routers' biases alike", check_biases_of_meshes, 2},
    {"what is frozen has no gradients and no moments, and stays",
     [](comm::World& w) {
       for (const char* strategy : {"strategy: ddp", "strategy: fsdp2", "strategy: megatron_fsdp, zero_dp_strategy: 1",
                                    "strategy: megatron_fsdp, zero_dp_strategy: 2"})
         check_frozen(w, strategy);
     }},
    {"every mesh trains what one rank trains",
     [](comm::World& w) {
       check_meshes(w, {.sections = kFrozen});
       check_meshes(w, {.tied = true, .sections = "freeze_config: {freeze_modules: [{path: model.embed_tokens}]}\n"});
       check_meshes(w, {.tied = true, .sections = "freeze_config: {freeze_modules: [{glob: 'model.layers.*'}]}\n"});
       check_meshes(w, {.family = "qwen3_moe",
                        .model = "num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 12, head_dim: 8",
                        .sections = "freeze_config: {freeze_modules: [{glob: '*.mlp.gate'}, {glob: '*norm'}]}\n"});
     },
     2},
    {"noise on embeddings is uniform and at most alpha / sqrt(tokens * width)", check_noise, 1, 1},
    {"every mesh has the same noise",
     [](comm::World& w) {
       check_meshes(w, {.sections = "neftune: {noise_alpha: 5.0}\n"});
       check_meshes(w, {.tied = true,
                        .family = "gemma2",
                        .model = "head_dim: 8, query_pre_attn_scalar: 8, sliding_window: 5",
                        .sections = "neftune: {}\n"});
     },
     2},
};

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  return automodel::test::run_rank_suite(argc, argv, automodel::kCases);
}
