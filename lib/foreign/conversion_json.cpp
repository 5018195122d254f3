#include <fmt/format.h>

#include "base/json_writer.h"
#include "foreign/conversion.h"

namespace automodel::foreign {
namespace {

/// Of a Setting or a std::optional: null if it holds nothing.
template <class Optional>
void member(JsonWriter& json, std::string_view name, const Optional& item) {
  json.key(name);
  if (item)
    json.value(*item);
  else
    json.value(nullptr);
}

void write_sizes(JsonWriter& json, const Sizes& sizes) {
  json.begin_object();
  json.member("num_layers", sizes.num_layers);
  json.member("hidden_size", sizes.hidden_size);
  json.member("ffn_hidden_size", sizes.ffn_hidden_size);
  json.member("num_attention_heads", sizes.num_attention_heads);
  json.member("num_query_groups", sizes.num_query_groups);
  json.member("kv_channels", sizes.kv_channels);
  json.member("gated", sizes.gated);
  json.member("activation", sizes.activation);
  json.member("normalization", sizes.normalization);
  json.member("position", sizes.position);
  json.member("tied", sizes.tied);
  json.member("linear_bias", sizes.linear_bias);
  member(json, "vocab_size", sizes.vocab_size);
  if (sizes.num_experts) {
    member(json, "num_experts", sizes.num_experts);
    member(json, "moe_router_topk", sizes.moe_router_topk);
    member(json, "moe_ffn_hidden_size", sizes.moe_ffn_hidden_size);
    member(json, "moe_layer_freq", sizes.moe_layer_freq);
  }
  json.end_object();
}

void write_adapter(JsonWriter& json, const Setting<Adapter>& adapter) {
  if (!adapter) return json.value(nullptr);
  json.begin_object();
  json.member("dim", (*adapter).dim);
  json.member("alpha", (*adapter).alpha);
  json.member("dropout", (*adapter).dropout);
  json.key("targets");
  if ((*adapter).targets.empty())
    json.value("all-linear-except-output-head");
  else
    json.value((*adapter).targets);
  json.end_object();
}

void write_packing(JsonWriter& json, Packing packing) {
  json.key("packing");
  if (packing == Packing::kUnknown) return json.value(nullptr);
  if (packing == Packing::kConcatenated) return json.value("concatenated");
  json.value(packing == Packing::kDocuments);
}

void write_resolved(JsonWriter& json, const Resolved& in) {
  json.begin_object();
  member(json, "model", in.model);
  if (in.model_name_flavor) {
    json.key("model_name_flavor");
    json.value(std::vector<std::string>{in.model_name_flavor->first, in.model_name_flavor->second});
  }
  if (!in.builder.empty()) json.member("builder", in.builder);
  member(json, "tp", in.tp);
  member(json, "pp", in.pp);
  member(json, "cp", in.cp);
  member(json, "ep", in.ep);
  member(json, "dp", in.dp > 0 ? std::optional<std::int64_t>(in.dp) : std::nullopt);
  member(json, "etp", in.etp);
  member(json, "vpp", in.vpp);
  member(json, "dp_replicate", in.dp_replicate);
  member(json, "sequence_parallel", in.sequence_parallel);
  member(json, "async_tp", in.async_tp);
  member(json, "cp_comm_type", in.cp_comm_type);
  member(json, "strategy", in.strategy);
  json.member("zero_stage", in.zero_stage);
  member(json, "micro_batch", in.micro_batch);
  member(json, "grad_accumulation", in.grad_accumulation);
  member(json, "global_batch", in.global_batch);
  member(json, "local_batch_size", in.local_batch_size);
  member(json, "tokens_per_microbatch", in.tokens_per_microbatch);
  member(json, "tokens_per_step", in.tokens_per_step);
  member(json, "global_batch_schedule", in.global_batch_schedule);
  member(json, "seq_length", in.seq_length);
  write_packing(json, in.packing);
  member(json, "dtype", in.dtype);
  member(json, "master_dtype", in.master_dtype);
  member(json, "reduce_dtype", in.reduce_dtype);
  member(json, "grad_accum_dtype", in.grad_accum_dtype);
  json.key("fp8");
  const auto fp8 = in.fp8.value_or("false");
  if (fp8 == "true" || fp8 == "false")
    json.value(fp8 == "true");
  else
    json.value(fp8);
  member(json, "recompute", in.recompute);
  member(json, "recompute_option", in.recompute_option);
  member(json, "offload", in.offload);
  member(json, "optimizer", in.optimizer);
  json.key("optimizer_states");
  if (in.optimizer_states.empty())
    json.value(nullptr);
  else
    json.value(in.optimizer_states);
  member(json, "lr", in.lr);
  member(json, "min_lr", in.min_lr);
  member(json, "weight_decay", in.weight_decay);
  json.key("betas");
  if (in.betas)
    json.value(std::vector<double>((*in.betas).begin(), (*in.betas).end()));
  else
    json.value(nullptr);
  json.key("adapter");
  write_adapter(json, in.adapter);
  member(json, "quantization", in.quantization);
  if (in.freeze_vision_tower) member(json, "freeze_vision_tower", in.freeze_vision_tower);
  if (in.freeze_projector) member(json, "freeze_projector", in.freeze_projector);
  if (in.freeze_language_model) member(json, "freeze_language_model", in.freeze_language_model);
  member(json, "fused_linear_ce", in.fused_linear_ce);
  json.member("account_for_embedding_in_pipeline_split", in.account_for_embedding);
  json.member("account_for_loss_in_pipeline_split", in.account_for_loss);
  json.key("sizes");
  if (in.sizes)
    write_sizes(json, *in.sizes);
  else
    json.value(nullptr);
  json.end_object();
}

void write_finding(JsonWriter& json, const std::string& key, const std::string& reason) {
  json.begin_object();
  json.member("key", key);
  json.member("reason", reason);
  json.end_object();
}

void write_findings(JsonWriter& json, std::string_view name, const std::vector<Finding>& findings,
                    const std::vector<Missing>& missing = {}) {
  json.key(name);
  json.begin_array();
  for (const auto& each : findings) write_finding(json, each.key, each.reason);
  for (const auto& each : missing) write_finding(json, each.key, each.reason);
  json.end_array();
}

}  // namespace

std::string to_json(const Conversion& conversion) {
  JsonWriter json;
  json.begin_object();
  json.member("format", conversion.format);
  json.key("resolved");
  write_resolved(json, conversion.resolved);
  write_findings(json, "ignored", conversion.findings.ignored);
  write_findings(json, "not_expressed", conversion.findings.not_expressed, conversion.findings.missing);
  write_findings(json, "notes", conversion.findings.notes);
  json.end_object();
  return json.take();
}

}  // namespace automodel::foreign
