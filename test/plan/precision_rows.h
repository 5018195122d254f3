// The rows of docs/precision.md as recipes: what the plan decides (plan/precision_test.cpp) and what the tensors of a
// run have (parity/types.cpp).
#pragma once

#include <string>

#include <fmt/format.h>

namespace automodel::test {

struct PrecisionRow {
  const char* device = "cpu";
  const char* config = "";          ///< further keys of config.json
  const char* model = "";           ///< of `model`
  const char* distributed = "";     ///< of `distributed`
  const char* model_parallel = "";  ///< of `model_parallel`
  const char* optimizer = "";       ///< of `optimizer`
  const char* types;                ///< compute, master, gradient, reduce, message, logits, autocast
  const char* moments = "";         ///< first and second; empty: the masters'
  const char* warning = "";
};

/// The row as a recipe of a model with 4 layers of width 16. `mesh`: keys of `distributed` beside the row's own.
inline std::string recipe_of(const PrecisionRow& row, const std::string& mesh = "") {
  const std::string comma = *row.model != '\0' ? ", " : "",
                    and_mesh = *row.distributed != '\0' && !mesh.empty() ? ", " : "";
  return fmt::format(
      "device: {}\nmodel: {{{}{}config: {{{}model_type: llama, hidden_size: 16, intermediate_size: 32, "
      "num_hidden_layers: 4, num_attention_heads: 2, vocab_size: 64, max_position_embeddings: 64}}}}\n"
      "dataset: {{_target_: mock, vocab_size: 64, seq_length: 16, num_samples: 64}}\n"
      "hardware: {{profile: {}}}\n"
      "step_scheduler: {{global_batch_size: 8, local_batch_size: {}, max_steps: 4, num_epochs: null}}\n"
      "distributed: {{{}{}{}}}\nmodel_parallel: {{{}}}\noptimizer: {{{}}}\n",
      row.device, row.model, comma, row.config, std::string(row.device) == "cuda" ? "h100" : "cpu",
      mesh.empty() ? 8 : 4, row.distributed, and_mesh, mesh, row.model_parallel, row.optimizer);
}

inline const PrecisionRow kPrecisionRows[] = {
    // The types of the weights.
    {.types = "f32 f32 f32 f32 f32 f32 -"},
    {.device = "cuda", .types = "b16 f32 f32 f32 b16 b16 -"},
    {.device = "cuda", .distributed = "strategy: ddp", .types = "b16 f32 f32 f32 b16 b16 -"},
    {.config = "torch_dtype: bfloat16, ", .types = "b16 f32 f32 f32 b16 b16 -"},
    {.config = "torch_dtype: bfloat16, ", .model = "torch_dtype: float32", .types = "f32 f32 f32 f32 f32 f32 -"},
    {.model = "torch_dtype: float64", .types = "f64 f64 f64 f64 f64 f64 -"},
    {.config = "torch_dtype: bfloat16, ",
     .model_parallel = "params_dtype: float32",
     .types = "f32 f32 f32 f32 f32 f32 -"},
    {.device = "cuda", .model_parallel = "params_dtype: float32", .types = "f32 f32 f32 f32 f32 f32 -"},
    {.device = "cuda", .model_parallel = "params_dtype: float16", .types = "f16 f32 f32 f32 f16 f16 -"},
    // Compute types.
    {.model_parallel = "bf16: true", .types = "b16 f32 f32 f32 b16 b16 -"},
    {.model_parallel = "fp16: true", .types = "f16 f32 f32 f32 f16 f16 -"},
    {.device = "cuda", .model_parallel = "fp16: true", .types = "f16 f32 f32 f32 f16 f16 -"},
    {.distributed = "mp_policy: {param_dtype: bfloat16, reduce_dtype: float32}", .types = "b16 f32 f32 f32 b16 b16 -"},
    {.distributed = "mp_policy: {param_dtype: bfloat16}", .types = "b16 f32 f32 b16 b16 b16 -"},
    {.distributed = "mp_policy: {param_dtype: bfloat16, reduce_dtype: float32, output_dtype: float32}",
     .types = "b16 f32 f32 f32 f32 f32 -"},
    // Messages.
    {.model_parallel = "pipeline_dtype: bfloat16", .types = "f32 f32 f32 f32 b16 f32 -"},
    // Autocast.
    {.distributed = "autocast_dtype: bfloat16", .types = "f32 f32 f32 f32 f32 f32 b16"},
    {.distributed = "autocast_dtype: bfloat16",
     .model_parallel = "enable_autocast: true",
     .types = "f32 f32 f32 f32 f32 f32 b16"},
    {.model_parallel = "enable_autocast: true, autocast_dtype: bfloat16", .types = "f32 f32 f32 f32 f32 f32 b16"},
    {.model_parallel = "enable_autocast: true, pipeline_dtype: bfloat16", .types = "f32 f32 f32 f32 b16 f32 b16"},
    {.model_parallel = "enable_autocast: true", .types = "f32 f32 f32 f32 f32 f32 -", .warning = "no-effect"},
    {.model_parallel = "autocast_dtype: bfloat16", .types = "f32 f32 f32 f32 f32 f32 -", .warning = "no-effect"},
    // Masters are float32 under every strategy.
    {.distributed = "strategy: megatron_fsdp", .model_parallel = "bf16: true", .types = "b16 f32 f32 b16 b16 b16 -"},
    {.distributed = "strategy: megatron_fsdp, grad_reduce_in_fp32: true",
     .model_parallel = "bf16: true",
     .types = "b16 f32 f32 f32 b16 b16 -"},
    {.distributed = "strategy: megatron_fsdp, preserve_fp32_weights: true",
     .model_parallel = "bf16: true",
     .types = "b16 f32 f32 b16 b16 b16 -"},
    {.distributed = "strategy: megatron_fsdp, preserve_fp32_weights: false",
     .model_parallel = "bf16: true",
     .types = "b16 b16 f32 b16 b16 b16 -",
     .warning = "low-precision-masters"},
    {.distributed = "strategy: ddp", .model_parallel = "bf16: true", .types = "b16 f32 f32 f32 b16 b16 -"},
    {.model_parallel = "bf16: true",
     .optimizer = "main_params_dtype: bfloat16",
     .types = "b16 b16 f32 f32 b16 b16 -",
     .warning = "low-precision-masters"},
    // Low-precision gradients.
    {.distributed = "strategy: ddp",
     .model_parallel = "bf16: true",
     .optimizer = "main_grads_dtype: bfloat16",
     .types = "b16 f32 b16 b16 b16 b16 -"},
    {.distributed = "mp_policy: {param_dtype: bfloat16, reduce_dtype: float32}",
     .optimizer = "_target_: adam, main_grads_dtype: torch.bfloat16",
     .types = "b16 f32 b16 f32 b16 b16 -"},
    {.device = "cuda", .optimizer = "main_grads_dtype: bfloat16", .types = "b16 f32 b16 b16 b16 b16 -"},
    {.distributed = "strategy: megatron_fsdp, grad_reduce_in_fp32: false",
     .model_parallel = "bf16: true",
     .types = "b16 f32 b16 b16 b16 b16 -"},
    {.distributed = "strategy: megatron_fsdp, grad_reduce_in_fp32: true",
     .model_parallel = "bf16: true",
     .optimizer = "main_grads_dtype: bfloat16",
     .types = "b16 f32 b16 f32 b16 b16 -"},
    // Moments.
    {.optimizer = "exp_avg_dtype: bfloat16", .types = "f32 f32 f32 f32 f32 f32 -", .moments = "b16 f32"},
    {.model = "torch_dtype: bfloat16",
     .optimizer = "_target_: transformer_engine.pytorch.optimizers.FusedAdam, exp_avg_dtype: torch.bfloat16, "
                  "exp_avg_sq_dtype: torch.bfloat16, master_weights: true",
     .types = "b16 f32 f32 f32 b16 b16 -",
     .moments = "b16 b16"},
};

}  // namespace automodel::test
