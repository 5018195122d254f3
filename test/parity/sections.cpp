// Sections that change what is trained: noise on embeddings, frozen modules. Against a computation of its own, and
// every mesh against one rank.
#include <cmath>

#include <fmt/format.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>

#include "model/embedding_noise.h"
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
    run.global_batch = 24;  // every mesh trains the same
    run.local_batch = run.global_batch / data / 2;
    run.steps = 3;
    run.distributed = distributed;
    test::check_parity(w, run, run.family + " " + run.sections + distributed);
  }
}

// --- neftune

constexpr double kAlpha = 5;

/// A model with learned positions and one sequence: noise on its tokens is a change of the table of positions.
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

/// Gradients of what is trained are those of a run that trains everything; the rest has none and stays.
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
  // Moments and gradients of what is trained alone, up to alignment of the shards.
  RANK_CHECK(static_cast<double>(session.runtime().optimizer().state_bytes()) <= 2 * 8 * (trained + 2048));
  std::int64_t gradients = 0;
  for (auto* stage : session.runtime().stages()) gradients += stage->data_parallel().bytes().gradients;
  RANK_CHECK(static_cast<double>(gradients) <= 2 * 8 * (trained + 2048));
}

const std::vector<test::RankCase> kCases = {
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
