// Every key that a recipe gives in vain is named, with the reason.
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "estimate/estimated_plan.h"

namespace automodel {
namespace {

const std::string kLlama =
    "model: {config: {model_type: llama, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 4, "
    "num_attention_heads: 4, num_key_value_heads: 4, vocab_size: 256, max_position_embeddings: 64}}\n";
const std::string kTied =
    "model: {config: {model_type: llama, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 4, "
    "num_attention_heads: 4, num_key_value_heads: 4, vocab_size: 256, max_position_embeddings: 64, "
    "tie_word_embeddings: true}}\n";
const std::string kMixtral =
    "model: {config: {model_type: mixtral, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 4, "
    "num_attention_heads: 4, num_key_value_heads: 4, vocab_size: 256, max_position_embeddings: 64, num_local_experts: "
    "4, "
    "num_experts_per_tok: 2}}\n";
/// A layer whose recurrent state is all that its ranks exchange, without and with one of attention.
const std::string kMamba =
    "model: {config: {model_type: nemotron_h, hidden_size: 64, intermediate_size: 128, num_attention_heads: 4, "
    "num_key_value_heads: 4, head_dim: 16, vocab_size: 256, mamba_num_heads: 4, mamba_head_dim: 8, ssm_state_size: 8, "
    "n_groups: 2, layers_block_type: [mamba, mlp]}}\n";
const std::string kMambaAndAttention = [] {
  auto out = kMamba;
  return out.replace(out.find("mlp]"), 4, "attention]");
}();
/// Layers that attend to 32 tokens that an index chooses.
const std::string kIndexed =
    "model: {config: {model_type: glm_moe_dsa, hidden_size: 64, intermediate_size: 96, moe_intermediate_size: 32, "
    "num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 4, vocab_size: 256, max_position_embeddings: "
    "64, n_routed_experts: 4, num_experts_per_tok: 2, q_lora_rank: 16, kv_lora_rank: 16, qk_nope_head_dim: 8, "
    "qk_rope_head_dim: 8, v_head_dim: 8, index_head_dim: 16, index_n_heads: 2, indexer_types: [full, shared], "
    "index_topk: 32}}\n";
const std::string kText = "dataset: {_target_: text, paths: [x], seq_length: 64}\n";
const std::string kMock = "dataset: {_target_: mock, vocab_size: 256, seq_length: 64}\n";
const std::string kSteps = "step_scheduler: {global_batch_size: 8, local_batch_size: 2, max_steps: 20}\n";
const std::string kRest = kText + kSteps;

struct Case {
  std::string key = {};
  std::string idle;  ///< a recipe that gives the key in vain
  std::string acts;  ///< one in which it acts; empty: not tried
  std::string model = kLlama;
  std::string rest = kRest;
  estimate::PlanRequest machine = {};
};

std::vector<Case> cases() {
  const std::string off = "checkpoint: {enabled: false, ", on = "checkpoint: {enabled: true, ";
  const std::string steps = "step_scheduler: {global_batch_size: 8, local_batch_size: 2, max_steps: 20, ";
  const std::string validation = "validation_dataset: {_target_: text, paths: [x], seq_length: 64}\n";
  const std::string rates = "lr_scheduler: {lr_decay_style: ";
  const std::string gpu = "device: cuda\nhardware: {profile: h100, dispatcher: deduplicated";
  const std::string two = "distributed: {dp_size: 2, ";
  const std::string two_contexts = "distributed: {strategy: ddp, cp_size: 2}\nmodel_parallel: ";
  const std::string mock = "dataset: {_target_: mock_pictures, ";
  const auto saves = [&](const std::string& key, const std::string& value) {
    return Case{"checkpoint." + key, off + key + ": " + value + "}\n", on + key + ": " + value + "}\n"};
  };
  return {
      saves("is_async", "true"),
      saves("save_consolidated", "final"),
      saves("max_recent_checkpoints", "2"),
      saves("memory_every_steps", "5"),
      saves("best_metric_key", "default"),
      {"step_scheduler.ckpt_every_steps", "checkpoint: {enabled: false}\n" + steps + "ckpt_every_steps: 5}\n",
       validation + "checkpoint: {enabled: false}\n" + steps + "ckpt_every_steps: 5}\n", kLlama, kText},
      {"step_scheduler.save_checkpoint_every_epoch",
       "checkpoint: {enabled: false}\n" + steps + "save_checkpoint_every_epoch: true}\n",
       steps + "save_checkpoint_every_epoch: true}\n", kLlama, kText},
      {"step_scheduler.val_every_steps", steps + "val_every_steps: 5}\n", validation + steps + "val_every_steps: 5}\n",
       kLlama, kText},
      {"step_scheduler.early_stopping_patience", steps + "early_stopping_patience: 5}\n",
       validation + steps + "early_stopping_patience: 5}\n", kLlama, kText},
      {"step_scheduler.early_stopping_threshold", validation + steps + "early_stopping_threshold: 0.1}\n",
       validation + steps + "early_stopping_threshold: 0.1, early_stopping_patience: 5}\n", kLlama, kText},
      {"step_scheduler.validate_on_checkpoint", steps + "validate_on_checkpoint: true}\n",
       validation + steps + "validate_on_checkpoint: true}\n", kLlama, kText},
      {"validation_dataloader", "validation_dataloader: {batch_size: 8}\n",
       validation + "validation_dataloader: {batch_size: 8}\n"},
      {"fault_tolerance.max_restarts", "checkpoint: {enabled: false}\nfault_tolerance: {max_restarts: 2}\n",
       "fault_tolerance: {max_restarts: 2}\n"},
      {"fault_tolerance.min_ranks", "fault_tolerance: {min_ranks: 1}\n",
       "fault_tolerance: {max_restarts: 2, min_ranks: 1}\n"},
      {"fault_tolerance.start_minutes", "fault_tolerance: {start_minutes: 2}\n",
       two + "strategy: ddp}\nfault_tolerance: {start_minutes: 2}\n"},
      {"fault_tolerance.slow_rank.factor", "fault_tolerance: {slow_rank: {factor: 2}}\n",
       two + "strategy: ddp}\nfault_tolerance: {slow_rank: {factor: 2}}\n"},
      {"fault_tolerance.loss_spike.window", "fault_tolerance: {loss_spike: {window: 20}}\n",
       "fault_tolerance: {loss_spike: {window: 10}}\n"},
      {"fault_tolerance.max_bad_steps", "fault_tolerance: {max_bad_steps: 3}\n",
       "fault_tolerance: {max_bad_steps: 3, on_non_finite: skip}\n"},
      {"lr_scheduler.wsd_decay_steps", rates + "cosine, wsd_decay_steps: 5}\n",
       rates + "WSD, wsd_decay_steps: 5, lr_wsd_decay_style: linear}\n"},
      {"lr_scheduler.lr_wsd_decay_style", rates + "cosine, lr_wsd_decay_style: linear}\n",
       rates + "WSD, wsd_decay_steps: 5, lr_wsd_decay_style: linear}\n"},
      {"lr_scheduler.min_lr", rates + "constant, min_lr: 1.0e-6}\n", rates + "cosine, min_lr: 1.0e-6}\n"},
      {"lr_scheduler.lr_decay_steps", rates + "constant, lr_decay_steps: 15}\n",
       rates + "cosine, lr_decay_steps: 15}\n"},
      {"lr_scheduler.init_lr", rates + "cosine, lr_warmup_steps: 0, init_lr: 1.0e-6}\n",
       rates + "cosine, lr_warmup_steps: 2, init_lr: 1.0e-6}\n"},
      {"lr_scheduler.wd_incr_steps", rates + "cosine, wd_incr_steps: 5}\n",
       rates + "cosine, wd_incr_steps: 5, wd_incr_style: linear, start_wd: 0.0, end_wd: 0.1}\n"},
      {"lr_scheduler.wd_incr_style", rates + "cosine, wd_incr_style: linear}\n",
       rates + "cosine, wd_incr_steps: 5, wd_incr_style: linear, start_wd: 0.0, end_wd: 0.1}\n"},
      {"packed_sequence.packing_strategy", "packed_sequence: {packing_strategy: neat}\n", ""},
      {"packed_sequence.max_packs", "packed_sequence: {max_packs: 5}\n", ""},
      {"packed_sequence.post_tokenize_hook_fn",
       "packed_sequence: {post_tokenize_hook_fn: "
       "nemo_automodel.components.datasets.vlm.collate_fns.gemma4_inject_thinking_prefix}\n",
       ""},
      {"packed_sequence.drop_long_samples", "packed_sequence: {drop_long_samples: true}\n", ""},
      {"packed_sequence.pad_to_multiple_of", "packed_sequence: {pad_to_multiple_of: 8}\n", ""},
      {"packed_sequence.pad_to_multiple_of",
       "packed_sequence: {packed_sequence_size: 64, packing_strategy: neat, pad_to_multiple_of: 8}\n",
       "packed_sequence: {packed_sequence_size: 64, packing_strategy: thd, pad_to_multiple_of: 8}\n", kLlama,
       "dataset: {_target_: jsonl, path: x, tokenizer: bytes}\n" + kSteps},
      {"peft.dropout_position", "peft: {dim: 4, dropout_position: pre}\n",
       "peft: {dim: 4, dropout: 0.1, dropout_position: pre}\n"},
      {"peft.moe_rank_scaling", "peft: {dim: 4, moe_rank_scaling: true}\n", ""},
      {"freeze_config.unfreeze_modules", "freeze_config: {unfreeze_modules: [{glob: '*embed_tokens'}]}\n",
       "freeze_config: {freeze_modules: [{glob: '*'}], unfreeze_modules: [{glob: '*embed_tokens'}]}\n"},
      {"optimizer.lm_head_lr", "optimizer: {_target_: muon, lm_head_lr: 1.0e-4}\n", "", kTied},
      {"optimizer.lm_head_lr", "", "optimizer: {_target_: muon, lm_head_lr: 1.0e-4}\n"},
      {"optimizer.dampening", "optimizer: {_target_: sgd, dampening: 0.1}\n",
       "optimizer: {_target_: sgd, momentum: 0.9, dampening: 0.1}\n"},
      {"distributed.moe", "distributed: {moe: {reshard_after_forward: true}}\n", "", kMixtral},
      {"distributed.moe.reshard_after_forward",
       "distributed: {dp_size: 2, ep_size: 2, moe: {reshard_after_forward: true}}\n",
       "distributed: {dp_size: 4, ep_size: 2, moe: {reshard_after_forward: true}}\n", kMixtral},
      {"model_parallel.overlap_moe_expert_parallel_comm", "model_parallel: {overlap_moe_expert_parallel_comm: true}\n",
       "distributed: {dp_size: 2, ep_size: 2}\nmodel_parallel: {overlap_moe_expert_parallel_comm: true}\n", kMixtral},
      {"model_parallel.overlap_dispatch_backward_with_experts_wgrad",
       "model_parallel: {overlap_dispatch_backward_with_experts_wgrad: true}\n",
       "distributed: {dp_size: 2, ep_size: 2}\nmodel_parallel: {overlap_dispatch_backward_with_experts_wgrad: true}\n",
       kMixtral},
      {"distributed.fsdp2_backward_prefetch_depth", two + "fsdp2_backward_prefetch_depth: 3}\n",
       two + "enable_fsdp2_prefetch: true, fsdp2_backward_prefetch_depth: 3}\n"},
      {"distributed.fsdp2_backward_prefetch_depth",
       two + "enable_fsdp2_prefetch: true, reshard_after_forward: false, fsdp2_backward_prefetch_depth: 3}\n", ""},
      {"distributed.fsdp2_forward_prefetch_depth", two + "fsdp2_forward_prefetch_depth: 3}\n",
       two + "enable_fsdp2_prefetch: true, fsdp2_forward_prefetch_depth: 3}\n"},
      {"distributed.overlap_param_gather",
       two + "strategy: megatron_fsdp, zero_dp_strategy: 0, overlap_param_gather: true}\n",
       two + "strategy: megatron_fsdp, overlap_param_gather: true}\n"},
      {"distributed.grad_reduce_in_fp32", two + "strategy: megatron_fsdp, grad_reduce_in_fp32: true}\n", ""},
      {"distributed.bucket_cap_mb", "distributed: {strategy: ddp, bucket_cap_mb: 10}\n",
       two + "strategy: ddp, bucket_cap_mb: 10}\n"},
      {"distributed.defer_fsdp_grad_sync",
       "distributed: {defer_fsdp_grad_sync: true}\nstep_scheduler: {global_batch_size: 8, local_batch_size: 8}\n",
       "distributed: {defer_fsdp_grad_sync: true}\n"
       "step_scheduler: {global_batch_size: 8, local_batch_size: 4, max_steps: 20}\n",
       kLlama, kText + "optimizer: {lr: 1.0e-3}\n"},
      // A pipeline has several microbatches in one accumulation step.
      {"distributed.defer_fsdp_grad_sync",
       "distributed: {defer_fsdp_grad_sync: true}\nstep_scheduler: {global_batch_size: 8, local_batch_size: 8}\n",
       "distributed: {defer_fsdp_grad_sync: true, pp_size: 2, pipeline: {pp_schedule: 1F1B}}\n"
       "step_scheduler: {global_batch_size: 8, local_batch_size: 8, max_steps: 20}\n",
       kLlama, kText + "optimizer: {lr: 1.0e-3}\n"},
      {"distributed.activation_checkpointing_scope", "distributed: {activation_checkpointing_scope: all}\n",
       "distributed: {activation_checkpointing: full, activation_checkpointing_scope: all}\n"},
      {"distributed.pipeline", "distributed: {pipeline: {pp_schedule: 1F1B}}\n",
       "distributed: {pp_size: 2, pipeline: {pp_schedule: 1F1B}}\n"},
      {"distributed.pipeline.search",
       "distributed: {pp_size: 2, pipeline: {pp_schedule: 1F1B, search: {memory_limit: 1GiB}}}\n",
       "distributed: {pp_size: 2, pipeline: {pp_schedule: searched, search: {memory_limit: 1GiB}}}\n"},
      {"distributed.pipeline.round_virtual_stages_to_pp_multiple",
       "distributed: {pp_size: 2, pipeline: {pp_schedule: 1F1B, round_virtual_stages_to_pp_multiple: up}}\n",
       "distributed: {pp_size: 2, pipeline: {pp_schedule: Interleaved1F1B, layers_per_stage: 1, "
       "round_virtual_stages_to_pp_multiple: up}}\n"},
      {"model_parallel.microbatch_group_size_per_vp_stage", "model_parallel: {microbatch_group_size_per_vp_stage: 2}\n",
       ""},
      {"model_parallel.cp_comm_type", two_contexts + "{cp_comm_type: a2a}\n", "", kMamba},
      {"model_parallel.cp_comm_type", "", two_contexts + "{cp_comm_type: a2a}\n", kMambaAndAttention},
      {"model_parallel.cp_comm_type", two_contexts + "{cp_comm_type: all_gather}\n", "", kIndexed},
      // Sequences of at most 32 tokens are seen whole, and those of a file may be as short.
      {"model_parallel.cp_comm_type", "", two_contexts + "{cp_comm_type: all_gather}\n", kIndexed,
       "dataset: {_target_: text, paths: [x], seq_length: 32}\n" + kSteps},
      {"model_parallel.cp_comm_type", "",
       two_contexts + "{cp_comm_type: all_gather}\nvalidation_dataset: {_target_: text, paths: [x], seq_length: 32}\n",
       kIndexed},
      {"model_parallel.cp_comm_type", "", two_contexts + "{cp_comm_type: all_gather}\n", kIndexed,
       "dataset: {_target_: jsonl, path: x, tokenizer: bytes}\n" + kSteps},
      {"model_parallel.hierarchical_context_parallel_sizes",
       two_contexts + "{cp_comm_type: a2a+p2p, hierarchical_context_parallel_sizes: [2, 1]}\n", "", kIndexed},
      {"model_parallel.hierarchical_context_parallel_sizes",
       two_contexts + "{hierarchical_context_parallel_sizes: [2, 1]}\n",
       two_contexts + "{cp_comm_type: a2a+p2p, hierarchical_context_parallel_sizes: [2, 1]}\n"},
      {"model_parallel.hierarchical_context_parallel_sizes",
       two_contexts + "{hierarchical_context_parallel_sizes: [2, 1]}\n", "", kIndexed},
      {"model_parallel.wgrad_deferral_limit", "model_parallel: {wgrad_deferral_limit: 2}\n", ""},
      {"model_parallel.delay_wgrad_compute", "model_parallel: {delay_wgrad_compute: true}\n", ""},
      {"hardware.node_bandwidth", "hardware: {node_bandwidth: 1.0e9}\n",
       two + "strategy: ddp}\nhardware: {node_bandwidth: 1.0e9}\n"},
      {"hardware.node_bandwidth",
       two + "strategy: ddp}\nhardware: {node_bandwidth: 1.0e9}\n",
       "",
       kLlama,
       kRest,
       {.ranks_per_node = 1}},
      {"hardware.network_bandwidth", "hardware: {network_bandwidth: 1.0e9}\n", ""},
      {"hardware.network_bandwidth", two + "strategy: ddp}\nhardware: {network_bandwidth: 1.0e9}\n", ""},
      {"hardware.network_bandwidth",
       "",
       two + "strategy: ddp}\nhardware: {network_bandwidth: 1.0e9}\n",
       kLlama,
       kRest,
       {.ranks_per_node = 1}},
      {"hardware.storage_bandwidth", "checkpoint: {enabled: false}\nhardware: {storage_bandwidth: 2}\n",
       "hardware: {storage_bandwidth: 2}\n"},
      {"hardware.failures.gpu", "hardware: {failures: {gpu: 0.2}}\n",
       "device: cuda\nhardware: {failures: {gpu: 0.2}}\n"},
      {"hardware.dispatcher", gpu + "}\n", "", kLlama},
      {"hardware.dispatcher", gpu + "}\n", "distributed: {dp_size: 2, ep_size: 2}\n" + gpu + "}\n", kMixtral},
      {"model.load_base_model", "logging: {tensorboard: false}\n", "",
       kLlama.substr(0, kLlama.size() - 2) + ", load_base_model: false}\n"},
      {"model", "logging: {tensorboard: false}\n", "",
       kLlama.substr(0, kLlama.size() - 2) + ", attention_dropout: 0.1}\n"},
      {"model", "", "logging: {tensorboard: false}\n"},
      {"generation", "generation: {prompts: [a]}\n", "", kLlama, kMock + kSteps},
      {"generation", "", "generation: {prompts: [a]}\n"},
      {"dataset.pretokenize", mock + "pretokenize: true}\n", mock + "max_length: 64, pretokenize: false}\n", kLlama,
       kSteps},
      {"dataset.pretokenize", mock + "max_length: 64, pretokenize: true}\npacked_sequence: {pack_size: 100}\n", "",
       kLlama, kSteps},
      {"dataset.max_length", mock + "max_length: 64, pretokenize: false, responses: [a]}\n",
       mock + "max_length: 64, responses: [a]}\n", kLlama, kSteps},
      {"logging.trace", "logging: {trace: [100]}\n", "logging: {trace: [10]}\n"},
  };
}

/// The recipe's plan; sections of `rest` that `own` has too are left out.
estimate::PlanResult plan_of(const Case& given, const std::string& own) {
  std::string text = (own.find("device:") == own.npos ? "device: cpu\n" : "") + given.model + own;
  std::string rest = given.rest;
  if (own.find("step_scheduler:") != std::string::npos)
    if (const auto at = rest.find("step_scheduler:"); at != std::string::npos)
      rest.erase(at, rest.find('\n', at) + 1 - at);
  if (own.find("optimizer:") == 0 && rest.find("optimizer:") != std::string::npos) rest.erase(rest.find("optimizer:"));
  const auto loaded = config::read_recipe(text + rest, "recipe.yaml", {}, {});
  INFO(text + rest << to_text(loaded.problems));
  REQUIRE(loaded.problems.empty());
  return estimate::make_plan(loaded, given.machine);
}

int warnings_at(const estimate::PlanResult& result, const std::string& key) {
  int out = 0;
  for (const auto& warning : result.warnings)
    if (warning.key == key && warning.id == "no-effect") {
      CHECK_FALSE(warning.help.empty());
      CHECK(warning.where.line > 0);
      ++out;
    }
  return out;
}

}  // namespace

TEST_CASE("a key that the rest of the recipe leaves without effect is named once, with the reason", "[plan]") {
  for (const auto& given : cases()) {
    INFO(given.key << "\n" << given.idle << given.acts);
    if (!given.idle.empty()) {
      const auto result = plan_of(given, given.idle);
      UNSCOPED_INFO(to_text(result.problems) << to_text(result.warnings, "warning"));
      CHECK(result.plan);
      CHECK(warnings_at(result, given.key) == 1);
    }
    if (!given.acts.empty()) {
      const auto result = plan_of(given, given.acts);
      UNSCOPED_INFO(to_text(result.problems) << to_text(result.warnings, "warning"));
      CHECK(result.plan);
      CHECK(warnings_at(result, given.key) == 0);
    }
  }
}

TEST_CASE("a recipe that gives no key in vain has no warning", "[plan]") {
  const auto result = plan_of({}, "optimizer: {lr: 1.0e-3}\n");
  INFO(to_text(result.warnings, "warning"));
  CHECK(result.warnings.empty());
}

TEST_CASE("a size under Megatron Core's name is refused under that name", "[plan]") {
  const auto refused = [](const std::string& own) {
    const auto result = plan_of({}, own);
    INFO(own << to_text(result.problems));
    CHECK_FALSE(result.plan);
    REQUIRE_FALSE(result.problems.empty());
    CHECK(result.problems[0].where.line > 2);
    return result.problems[0].key;
  };
  CHECK(refused("model_parallel: {expert_model_parallel_size: 2}\n") == "model_parallel.expert_model_parallel_size");
  CHECK(refused("model_parallel: {tensor_model_parallel_size: 3}\n") == "model_parallel.tensor_model_parallel_size");
  CHECK(refused("distributed: {dp_size: 2, ep_size: 2}\n") == "distributed.ep_size");
}

TEST_CASE("a pattern that matches no parameter or module is an error with the nearest name", "[plan]") {
  const auto refused = [](const std::string& own) {
    const auto result = plan_of({}, own);
    INFO(own << to_text(result.problems));
    CHECK_FALSE(result.plan);
    REQUIRE(result.problems.size() == 1);
    CHECK(result.problems[0].id == "bad-value");
    CHECK(result.problems[0].where.line > 0);
    return result.problems[0];
  };
  const auto group =
      refused("optimizer: {lr: 1.0e-3, param_group_overrides: [{pattern: q_poj.weight, lr_mult: 0.1}]}\n");
  CHECK(group.key == "optimizer.param_group_overrides.0.pattern");
  CHECK(group.message == "no parameter of this model matches 'q_poj.weight'");
  CHECK(group.help == "did you mean 'q_proj.weight'?");
  CHECK(refused("optimizer: {lr: 1.0e-3, param_group_overrides: [{pattern: q_poj, lr_mult: 0.1}]}\n").help ==
        "did you mean 'q_proj'?");
  const auto filter = refused("fp8: {enabled: true, filter_fqns: [lm_haed]}\n");
  CHECK(filter.key == "fp8.filter_fqns");
  CHECK(filter.help == "did you mean 'lm_head'?");
  CHECK(plan_of({}, "optimizer: {lr: 1.0e-3, param_group_overrides: [{pattern: 'norm', wd_mult: 0}]}\n").plan);
  CHECK(plan_of({}, "fp8: {enabled: true, filter_fqns: [lm_head, layers.1.]}\n").plan);
}

}  // namespace automodel
