#include "foreign/recipe_text.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/utf8.h"
#include "config/value.h"

namespace automodel::foreign {
namespace {

using config::to_json;
using config::Value;

class Lines {
 public:
  void section(const std::string& name) { pending_ = name; }
  /// `value` is YAML text. The section's line is written before its first key.
  void add(const std::string& key, const std::string& value, const std::string& from) {
    if (!pending_.empty()) text_ += pending_ + ":\n";
    pending_.clear();
    const bool broken = value.find_first_of("\n\r") != std::string::npos;  // words of a stranger's file
    put("  " + key + (value.empty() ? ":" : ": " + (broken ? shown(value) : value)), from);
  }
  void top(const std::string& key, const std::string& value, const std::string& from) { put(key + ": " + value, from); }
  void comment(const std::string& text) { text_ += "# " + printable(text) + "\n"; }
  template <class T>
  void add(const std::string& key, const Setting<T>& setting) {
    if (setting) add(key, shown(*setting), setting.key);
  }
  std::string take() { return std::move(text_); }

  static std::string shown(const std::string& text) { return to_json(Value(text)); }
  static std::string shown(std::int64_t number) { return fmt::format("{}", number); }
  static std::string shown(bool flag) { return flag ? "true" : "false"; }
  static std::string shown(double number) { return config::number_text(number); }

 private:
  void put(const std::string& line, const std::string& from) {
    text_ += from.empty() ? line + "\n" : fmt::format("{}  # {}\n", line, printable(from, 200));
  }
  std::string text_ = {}, pending_ = {};
};

bool has_low_masters(const Resolved& in) {
  return in.master_dtype && *in.master_dtype != "float32";
}

void write_batch(const Resolved& in, Lines& out) {
  out.section("step_scheduler");
  out.add("global_batch_size", in.global_batch);
  if (*in.pp > 1) {
    const Setting<std::int64_t> whole = {*in.global_batch / in.dp,
                                         "all microbatches of a step on a data-parallel rank"};
    out.add("local_batch_size", in.local_batch_size ? in.local_batch_size : whole);
  } else {
    out.add("local_batch_size", in.micro_batch);
  }
  if (in.max_steps && *in.max_steps > 0) {
    out.add("max_steps", in.max_steps);
    out.add("num_epochs", "null", "max_steps ends the run");
  } else if (in.epochs) {
    out.add("num_epochs", in.epochs);
  }
}

void write_sizes(const Sizes& sizes, Lines& out) {
  out.add("config", "", "");
  const auto key = [&](const std::string& name, const std::string& value) { out.add("  " + name, value, ""); };
  const auto number = [&](const std::string& name, std::int64_t value) { key(name, Lines::shown(value)); };
  key("model_type", sizes.model_type);
  const bool gpt2 = sizes.model_type == "gpt2";
  number(gpt2 ? "n_embd" : "hidden_size", sizes.hidden_size);
  number(gpt2 ? "n_layer" : "num_hidden_layers", sizes.num_layers);
  number(gpt2 ? "n_head" : "num_attention_heads", sizes.num_attention_heads);
  number(gpt2 ? "n_inner" : "intermediate_size", sizes.ffn_hidden_size);
  if (!gpt2) {
    number("num_key_value_heads", sizes.num_query_groups);
    number("head_dim", sizes.kv_channels);
  }
  if (sizes.vocab_size) number("vocab_size", *sizes.vocab_size);
  if (sizes.max_position_embeddings)
    number(gpt2 ? "n_positions" : "max_position_embeddings", *sizes.max_position_embeddings);
  if (sizes.rope_theta && !gpt2) key("rope_theta", Lines::shown(*sizes.rope_theta));
  if (sizes.num_experts) {
    number(sizes.model_type == "mixtral" || sizes.model_type == "gpt_oss" ? "num_local_experts"
           : sizes.model_type == "deepseek_v3"                            ? "n_routed_experts"
                                                                          : "num_experts",
           *sizes.num_experts);
    number("num_experts_per_tok", sizes.moe_router_topk.value_or(2));
    if (sizes.model_type != "mixtral" && sizes.moe_ffn_hidden_size)
      number("moe_intermediate_size", *sizes.moe_ffn_hidden_size);
  }
  if (!gpt2 && sizes.model_type == "llama" && sizes.linear_bias) {
    key("attention_bias", "true");
    key("mlp_bias", "true");
  }
  key("tie_word_embeddings", Lines::shown(sizes.tied));
  for (const auto& [name, value] : sizes.further) key(name, value);
}

void write_model(const Resolved& in, Lines& out) {
  out.section("model");
  if (in.sizes && in.catalogue_name.empty()) {
    write_sizes(*in.sizes, out);
  } else if (in.model) {
    const auto& name = in.catalogue_name.empty() ? *in.model : in.catalogue_name;
    out.add("pretrained_model_name_or_path", Lines::shown(name),
            name == *in.model ? in.model.key : fmt::format("{}: {}", in.model.key, *in.model));
    if (in.seq_length && in.sizes_exceeded)
      out.add("max_position_embeddings", Lines::shown(*in.seq_length), "the length is above the model's own limit");
  }
  // FSDP2 of PyTorch keeps parameters, gradients and moments in the type of the weights: the masters'.
  const bool masters = in.stack == "pytorch" && in.planned_as_fsdp2() && !in.adapter && in.master_dtype;
  if (masters)
    out.add("torch_dtype", *in.master_dtype, in.master_dtype.key);
  else if (!in.weights_dtype.empty() && !in.weights_by_model_parallel())
    out.add("torch_dtype", in.weights_dtype, in.dtype.key);
}

void write_distributed(const Resolved& in, Lines& out) {
  const bool host = in.offloads_all();
  const auto strategy = in.planned_strategy();
  out.section("distributed");
  out.add("strategy", strategy,
          strategy == in.strategy.value_or("ddp") ? in.strategy.key
          : host                                  ? in.strategy.key + ", with everything in host memory"
                                                  : in.strategy.key + ", with masters beside the weights");
  if (strategy == "megatron_fsdp")
    out.add("zero_dp_strategy", Lines::shown(std::int64_t{in.zero_stage}), in.strategy.key);
  const auto axis = [&](const char* key, const Setting<std::int64_t>& size) {
    if (size.value_or(1) > 1) out.add(key, size);
  };
  axis("dp_replicate_size", in.dp_replicate);
  axis("tp_size", in.tp);
  axis("pp_size", in.pp);
  axis("cp_size", in.cp);
  axis("ep_size", in.ep);
  if (in.recompute && *in.recompute != "none" && in.recompute_modules.empty())
    out.add("activation_checkpointing", in.recompute);
  if (strategy == "fsdp2") {
    if (in.dtype) {
      const auto& reduce = in.reduce_dtype ? in.reduce_dtype : in.grad_accum_dtype ? in.grad_accum_dtype : in.dtype;
      if (!in.weights_by_model_parallel())
        out.add("mp_policy", fmt::format("{{param_dtype: {}, reduce_dtype: {}}}", *in.dtype, *reduce), in.dtype.key);
    }
    if (host) out.add("offload_policy", "{}", in.offload.key);
    out.add("reshard_after_forward", in.reshard_after_forward);
    if (in.grad_accumulation.value_or(1) > 1) out.add("defer_fsdp_grad_sync", in.defer_gradient_sync);
    if (in.async_tp.value_or(false)) out.add("enable_async_tensor_parallel", in.async_tp);
  }
  if (strategy == "ddp" && !in.weights_dtype.empty() && in.dtype && in.weights_dtype != *in.dtype)
    out.add("autocast_dtype", *in.dtype, in.dtype.key);
  if (strategy == "megatron_fsdp") {
    if (in.grad_accum_dtype.value_or("") == "float32" && in.dtype.value_or("float32") != "float32")
      out.add("grad_reduce_in_fp32", "true", in.grad_accum_dtype.key);
    out.add("overlap_grad_reduce", in.overlap_grad_reduce);
    if (in.zero_stage > 0) out.add("overlap_param_gather", in.overlap_param_gather);
  }
  if (*in.pp == 1) return;
  out.add("pipeline", "", "");
  const auto option = [&](const char* key, const std::string& value, const std::string& from) {
    out.add(std::string("  ") + key, value, from);
  };
  option("pp_schedule", in.pp_schedule.value_or("1f1b"), in.pp_schedule.key);
  if (in.micro_batch) option("pp_microbatch_size", Lines::shown(*in.micro_batch), in.micro_batch.key);
  if (!in.pipeline_layout.empty())
    option("pipeline_model_parallel_layout", Lines::shown(in.pipeline_layout), "where stages begin");
  if (!in.layers_per_stage.empty())
    option("layers_per_stage", fmt::format("[{}]", fmt::join(in.layers_per_stage, ", ")), "where stages begin");
}

void write_model_parallel(const Resolved& in, Lines& out) {
  out.section("model_parallel");
  if (in.weights_by_model_parallel()) out.add(*in.dtype == "float16" ? "fp16" : "bf16", "true", in.dtype.key);
  if (in.sequence_parallel.value_or(false) && !in.async_tp.value_or(false))
    out.add("sequence_parallel", in.sequence_parallel);
  out.add("expert_tensor_parallel_size", in.etp);
  if (in.vpp.value_or(1) > 1) out.add("virtual_pipeline_model_parallel_size", in.vpp);
  out.add("cp_comm_type", in.cp_comm_type);
  if (!in.recompute_modules.empty())
    out.add("recompute_modules", fmt::format("[{}]", fmt::join(in.recompute_modules, ", ")), in.recompute.key);
  if (in.grad_fusion.value_or(false) && in.dtype.value_or("float32") != "float32")
    out.add("gradient_accumulation_fusion", in.grad_fusion);
  for (const auto& [key, value] : in.model_parallel) out.add(key, value, key);
}

void write_data(const Resolved& in, Lines& out) {
  out.section("dataset");
  out.add("_target_", "mock", "rows of the full length; for training, name the data here");
  out.add("seq_length", in.seq_length);
  if (in.sizes && in.sizes->vocab_size) out.add("vocab_size", Lines::shown(*in.sizes->vocab_size), "the model's");
  if (in.packing == Packing::kDocuments && in.seq_length) {
    out.section("packed_sequence");
    out.add("packed_sequence_size", Lines::shown(*in.seq_length), in.packing_key);
  }
}

/// Whether the projector, Qwen's merger, is a module of the tower.
bool projects_within(const Resolved& in) {
  return in.projector.starts_with(in.vision_tower + ".");
}

/// Patterns of the tower and the projector that have no adapters, each behind a comma.
std::string frozen_names(const Resolved& in) {
  const auto pattern = [](const std::string& module) { return fmt::format(", '*{}*'", module); };
  const bool tower = in.freeze_vision_tower.value_or(false), projector = in.freeze_projector.value_or(false);
  if (!tower) return projector ? pattern(in.projector) : "";
  if (!projects_within(in)) return pattern(in.vision_tower) + (projector ? pattern(in.projector) : "");
  if (projector) return pattern(in.vision_tower);
  return pattern(in.vision_tower + ".blocks") + pattern(in.vision_tower + ".deepstack_merger_list");
}

void write_adapter(const Resolved& in, Lines& out) {
  if (in.adapter) {
    const auto& adapter = *in.adapter;
    out.section("peft");
    out.add("dim", Lines::shown(adapter.dim), in.adapter.key);
    out.add("alpha", Lines::shown(adapter.alpha), "");
    if (adapter.dropout > 0) out.add("dropout", Lines::shown(adapter.dropout), "");
    if (adapter.dora) out.add("use_dora", "true", "");
    if (adapter.targets.empty())
      out.add("exclude_modules", "['*lm_head'" + frozen_names(in) + "]", "all linear layers but the output head");
    else
      out.add("target_modules", to_json(Value(Value::List(adapter.targets.begin(), adapter.targets.end()))), "");
  }
  if (in.quantization) {
    out.section("quantization");
    out.add(*in.quantization == "int8" ? "load_in_8bit" : "load_in_4bit", "true", in.quantization.key);
    if (*in.quantization == "nf4") out.add("bnb_4bit_use_double_quant", "false", in.quantization.key);
  }
  if (in.neftune) {
    out.section("neftune");
    out.add("noise_alpha", in.neftune);
  }
}

/// Of a model with pictures. Beside adapters nothing of the model trains; those that are named by their last
/// components alone must not be the tower's.
void write_frozen_towers(const Resolved& in, Lines& out) {
  if (!in.freeze_vision_tower) return;
  if (in.adapter && (*in.adapter).targets.empty() && !in.freeze_language_model.value_or(false)) return;
  const bool tower = *in.freeze_vision_tower, projector = in.freeze_projector.value_or(false),
             within = projects_within(in), parted = within && tower && !projector;
  out.section("freeze_config");
  out.add("freeze_vision_tower", Lines::shown(tower && !(parted && !in.adapter)), in.freeze_vision_tower.key);
  if (in.freeze_language_model.value_or(false)) out.add("freeze_language_model", in.freeze_language_model);
  if (in.adapter) return;
  const auto names = [&](const char* key, const std::string& module) {
    out.add(key, fmt::format("[{{glob: {}}}]", Lines::shown(module + "*")), in.freeze_projector.key);
  };
  if (parted) {
    names("freeze_modules", in.vision_tower);
    names("unfreeze_modules", in.projector);
  } else if (projector && !(within && tower)) {
    names("freeze_modules", in.projector);
  }
}

void write_optimizer(const Resolved& in, Lines& out) {
  const auto& name = in.optimizer.value_or("adamw");
  out.section("optimizer");
  out.add("_target_", name == "muon" ? "torch.optim.Muon" : name, in.optimizer.key);
  out.add("lr", in.lr);
  out.add("weight_decay", in.weight_decay);
  const bool adam = name == "adamw" || name == "adam";
  if (adam) {
    if (in.betas)
      out.add("betas", fmt::format("[{}, {}]", Lines::shown((*in.betas)[0]), Lines::shown((*in.betas)[1])),
              in.betas.key);
    out.add("eps", in.eps);
    if (has_low_masters(in)) out.add("main_params_dtype", *in.master_dtype, in.master_dtype.key);
    const auto sums = in.grad_accum_dtype   ? in.grad_accum_dtype
                      : has_low_masters(in) ? in.master_dtype
                                            : Setting<std::string>{};
    if (sums && *sums != "float32") out.add("main_grads_dtype", *sums, sums.key);
    const auto& states = in.optimizer_states;
    if (states.starts_with("8bit") || states.starts_with("4bit") || (states == "bfloat16" && !has_low_masters(in)))
      for (const auto* moment : {"exp_avg_dtype", "exp_avg_sq_dtype"}) out.add(moment, "bfloat16", states + " states");
  }
  if (in.lr_decay_style) {
    out.section("lr_scheduler");
    out.add("lr_decay_style", in.lr_decay_style);
    out.add("lr_warmup_steps",
            in.warmup_steps ? in.warmup_steps : Setting<std::int64_t>{0, "no number of steps is given"});
    out.add("lr_decay_steps", in.decay_steps);
    out.add("min_lr", in.min_lr);
  }
  out.section("clip_grad_norm");
  if (in.no_clipping)
    out.add("max_norm", "null", in.max_grad_norm.key);
  else
    out.add("max_norm", in.max_grad_norm);
}

}  // namespace

std::string recipe_text(const Resolved& in, const Findings& findings, const std::string& origin) {
  Lines out;
  out.comment("Made from " + origin + ". Comments name the keys that values come from.");
  for (const auto& each : findings.not_expressed) out.comment("Not expressed: " + each.key + ": " + each.reason);
  for (const auto& each : findings.notes) out.comment("Note: " + each.key + ": " + each.reason);
  out.top("device", "cuda", "");
  if (in.seed) out.top("seed", Lines::shown(*in.seed), in.seed.key);
  write_batch(in, out);
  write_model(in, out);
  write_distributed(in, out);
  write_model_parallel(in, out);
  write_data(in, out);
  write_adapter(in, out);
  if (in.fused_linear_ce.value_or(false) || in.chunked_ce.value_or(false)) {
    out.section("loss_fn");
    out.add("_target_", in.fused_linear_ce.value_or(false) ? "fused_linear_ce" : "chunked_ce",
            in.fused_linear_ce ? in.fused_linear_ce.key : in.chunked_ce.key);
  }
  write_optimizer(in, out);
  if (in.fp8 && *in.fp8 != "false") {
    out.section("fp8");
    out.add("enabled", "true", in.fp8.key);
    if (!in.fp8_filter.empty())
      out.add("filter_fqns", to_json(Value(Value::List(in.fp8_filter.begin(), in.fp8_filter.end()))), "");
  }
  write_frozen_towers(in, out);
  if (!in.freeze_all_but.empty()) {
    out.section("freeze_config");
    out.add("freeze_modules", "[{glob: '*'}]", "");
    std::string kept;
    for (const auto& each : in.freeze_all_but)
      kept += fmt::format("{}{{glob: {}}}", kept.empty() ? "" : ", ", Lines::shown(each));
    out.add("unfreeze_modules", "[" + kept + "]", "");
  }
  out.section("hardware");
  out.add("stack", in.stack, "the trainer's software");
  if (!in.dispatcher.empty()) out.add("dispatcher", in.dispatcher, "");
  return out.take();
}

}  // namespace automodel::foreign
