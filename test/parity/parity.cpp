#include "parity/parity.h"

#include <map>
#include <mutex>

#include <fmt/format.h>

#include "base/error.h"
#include "comm/loopback/loopback.h"
#include "rank_suite.h"

namespace automodel::test {

std::string recipe_text(const TinyRun& run, bool single) {
  const auto model = !run.config.empty()
                         ? run.config
                         : fmt::format(
                               "model_type: {}, hidden_size: 32, intermediate_size: 48, num_hidden_layers: {}, "
                               "num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 68, "
                               "max_position_embeddings: 32, tie_word_embeddings: {}",
                               run.family, run.layers, run.tied);
  std::string text = fmt::format(
      "model: {{config: {{{}, initializer_range: 0.2{}{}}}, torch_dtype: {}}}\n"
      "dataset: {}\n"
      "step_scheduler: {{global_batch_size: {}, local_batch_size: {}, max_steps: 40, num_epochs: null}}\n"
      "optimizer: {{{}}}\n{}",
      model, run.model.empty() ? "" : ", ", run.model, run.dtype,
      run.dataset.empty() ? "{_target_: mock, vocab_size: 68, seq_length: 16, num_samples: 64}" : run.dataset,
      run.global_batch,
      !single                ? run.local_batch
      : run.single_batch > 0 ? run.single_batch
                             : run.global_batch,
      run.optimizer, run.sections);
  if (single) return text + "distributed: {strategy: ddp}\n";
  text += fmt::format("distributed: {{{}}}\n", run.distributed);
  if (!run.model_parallel.empty()) text += fmt::format("model_parallel: {{{}}}\n", run.model_parallel);
  return text + run.mesh_sections;
}

config::LoadedRecipe load_recipe(const std::string& text) {
  auto loaded = config::read_recipe(text, "parity.yaml", {}, [](const std::string&) { return std::nullopt; });
  if (!loaded.problems.empty()) throw Error(ExitCode::kBadInput, loaded.problems);
  return loaded;
}

train::Trace on_one_rank(const std::string& text, int steps, int gradients_of) {
  static std::mutex mutex;
  static std::map<std::string, train::Trace> known;
  const std::scoped_lock lock(mutex);
  const auto key = fmt::format("{} steps, {}\n{}", steps, gradients_of, text);
  if (const auto found = known.find(key); found != known.end()) return found->second;
  train::Trace out;
  const auto loaded = load_recipe(text);
  const auto outcome =
      comm::run_ranks(1, [&](comm::World& world) { out = train::trace_steps(loaded, world, steps, gradients_of); });
  if (!outcome.ok()) throw Error(outcome.code, {"internal", outcome.text, "", {}, ""});
  return known[key] = out;
}

void check_parity(comm::World& world, const TinyRun& run, const std::string& what) {
  const bool exact = run.dtype == "float64";
  const int gradients_of = exact ? -1 : 0;
  const auto mesh =
      train::trace_steps(load_recipe(recipe_text(run, false)), world, run.steps, gradients_of, run.runtime);
  if (world.rank() != 0) return;
  const auto difference = train::compare(mesh, on_one_rank(recipe_text(run, true), run.steps, gradients_of));
  const double tolerance = exact ? 1e-9 : 1e-5;
  // Rounding differs from step to step; over ten steps of float32 the norm drifts before the loss does.
  const bool norms = difference.norm <= (exact ? tolerance : 10 * tolerance);
  if (!norms || !(difference.loss <= tolerance && difference.gradient <= tolerance))
    rank_check_failed(__FILE__, __LINE__,
                      fmt::format("{} ({}): loss {:.2e}, norm {:.2e}, gradient {:.2e} of {}", what, run.dtype,
                                  difference.loss, difference.norm, difference.gradient, difference.worst));
}

namespace {

const std::string kSizes =
    "hidden_size: 32, intermediate_size: 48, num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 68, "
    "max_position_embeddings: 32, ";
const std::string kGatedDelta =
    "head_dim: 8, linear_num_key_heads: 2, linear_num_value_heads: 4, linear_key_head_dim: 8, "
    "linear_value_head_dim: 6, num_hidden_layers: 2, layer_types: [linear_attention, full_attention]";
const std::string kChannelDelta =
    "linear_num_heads: 4, linear_head_dim: 8, kv_lora_rank: 12, qk_nope_head_dim: 8, qk_rope_head_dim: 4, "
    "v_head_dim: 6, num_experts: 4, num_experts_per_token: 2, moe_intermediate_size: 12, num_hidden_layers: 2, "
    "first_k_dense_replace: 1, layer_types: [linear_attention, full_attention]";

}  // namespace

const std::vector<std::string> kRecurrentModels = {
    "model_type: qwen3_next, " + kSizes + kGatedDelta +
        ", num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 12, shared_expert_intermediate_size: 16",
    "model_type: qwen3_5_text, " + kSizes + kGatedDelta,
    "model_type: nemotron_h, " + kSizes +
        "head_dim: 8, layers_block_type: [mamba, moe, attention, mlp], mamba_num_heads: 4, mamba_head_dim: 8, "
        "ssm_state_size: 6, n_groups: 2, n_routed_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 12, "
        "moe_shared_expert_intermediate_size: 16, moe_latent_size: 20, mlp_bias: true",
    "model_type: falcon_h1, " + kSizes +
        "num_hidden_layers: 2, mamba_n_heads: 4, mamba_d_head: 8, mamba_d_ssm: 32, mamba_d_state: 6, "
        "mamba_n_groups: 2, mamba_rms_norm: true, key_multiplier: 0.7, ssm_multipliers: [0.5, 1.5, 0.8, 1.2, 0.7], "
        "mlp_multipliers: [0.8, 0.6], attention_in_multiplier: 0.9, ssm_in_multiplier: 1.25",
    "model_type: kimi_linear, " + kSizes + kChannelDelta,
    "model_type: bailing_hybrid, " + kSizes + kChannelDelta,
    "model_type: lfm2, " + kSizes + "num_hidden_layers: 2, layer_types: [conv, full_attention], conv_bias: true",
};

const std::vector<std::string> kUnlikeModels = {
    "model_type: gemma4_text, " + kSizes +
        "num_hidden_layers: 4, head_dim: 8, hidden_size_per_layer_input: 6, num_kv_shared_layers: 2, layer_types: "
        "[sliding_attention, full_attention, sliding_attention, full_attention], sliding_window: 5, "
        "vocab_size_per_layer_input: 68, per_layer_config: {1: {head_dim: 12}, 3: {head_dim: 12}}",
    "model_type: gemma4_text, " + kSizes +
        "num_hidden_layers: 2, head_dim: 8, hidden_size_per_layer_input: 0, num_kv_shared_layers: 0, layer_types: "
        "[sliding_attention, full_attention], sliding_window: 5, attention_k_eq_v: true, enable_moe_block: true, "
        "num_experts: 4, top_k_experts: 2, moe_intermediate_size: 12, per_layer_config: {1: {head_dim: 12}}",
    "model_type: step3p5, hidden_size: 32, intermediate_size: 48, num_attention_heads: 4, vocab_size: 68, "
    "max_position_embeddings: 32, num_hidden_layers: 2, num_attention_groups: 2, head_dim: 8, moe_num_experts: 4, "
    "moe_top_k: 2, "
    "moe_intermediate_size: 12, share_expert_dim: 16, moe_layers_enum: '1', use_head_wise_attn_gate: true, "
    "layer_types: [full_attention, sliding_attention], sliding_window: 5, attention_other_setting: "
    "{attention_type: sliding_attention, num_attention_heads: 6, num_attention_groups: 2, head_dim: 8, "
    "true_head_dim: 8}",
};

}  // namespace automodel::test
