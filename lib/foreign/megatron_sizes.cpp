#include "foreign/megatron_sizes.h"

#include <fmt/format.h>

namespace automodel::foreign {
namespace {

/// The family of ours that has these layers; where none has, the nearest, which is reported.
void choose_family(Sizes& sizes, Keys& keys, Findings& findings) {
  const bool llama_like =
      sizes.normalization == "RMSNorm" && sizes.gated && sizes.position == "rope" && !sizes.linear_bias;
  const auto say_nearest = [&](std::string name) {
    sizes.model_type = std::move(name);
    findings.cannot(fmt::format("{} {} {}{}", sizes.normalization, sizes.activation, sizes.position,
                                sizes.num_experts ? " with experts" : ""),
                    fmt::format("no family here has this combination: planned as {}, whose layers are the nearest",
                                sizes.model_type));
  };
  if (keys.active("multi_latent_attention")) return say_nearest("deepseek_v3");
  if (keys.active("hybrid_layer_pattern") || keys.active("hybrid_override_pattern"))
    return findings.refuse("hybrid_layer_pattern", "give the model's own configuration with --model NAME");
  if (keys.active("enable_gpt_oss") || keys.shown("softmax_type").ends_with(": learnable"))
    return say_nearest("gpt_oss");
  if (sizes.num_experts) {
    const bool own_width = keys.given("moe_ffn_hidden_size");
    if (!llama_like) return say_nearest("mixtral");
    sizes.model_type = own_width ? "qwen3_moe" : "mixtral";
    if (own_width && !sizes.qk_norm) return say_nearest("qwen3_moe");
  } else if (llama_like) {
    sizes.model_type = sizes.qk_norm ? "qwen3" : sizes.qkv_bias ? "qwen2" : "llama";
  } else if (sizes.activation == "squared_relu" && sizes.position == "rope" && !sizes.linear_bias &&
             sizes.normalization == "LayerNorm") {
    sizes.model_type = "nemotron";
  } else if (sizes.activation == "gelu" && sizes.position == "learned_absolute" && sizes.linear_bias &&
             sizes.normalization == "LayerNorm" && sizes.num_query_groups == sizes.num_attention_heads) {
    sizes.model_type = "gpt2";
  } else {
    say_nearest(sizes.gated ? "llama" : sizes.position == "rope" ? "nemotron" : "gpt2");
  }
}

}  // namespace

Sizes read_megatron_sizes(Keys& keys, std::optional<std::int64_t> vocab_size, std::int64_t tp, Findings& findings) {
  Sizes out;
  const auto need = [&](std::string_view key) {
    const auto value = keys.integer({key});
    if (!value) findings.ask(std::string(key), "the arguments do not say it", "the whole argument list");
    return value.value_or(1);
  };
  out.num_layers = need("num_layers");
  out.hidden_size = need("hidden_size");
  out.num_attention_heads = need("num_attention_heads");
  out.gated = keys.active("swiglu");
  out.activation = out.gated ? "swiglu" : keys.active("squared_relu") ? "squared_relu" : "gelu";
  keys.take("swiglu");
  keys.take("squared_relu");
  const auto wide = out.gated ? times(8, out.hidden_size) / 3 / 64 * 64 : times(4, out.hidden_size);
  out.ffn_hidden_size = keys.integer({"ffn_hidden_size"}).value_or(wide);
  const auto groups = keys.integer({"num_query_groups"});
  const bool grouped =
      keys.given("group_query_attention") ? keys.active("group_query_attention") : groups.value_or(1) > 1;
  keys.take("group_query_attention");
  out.num_query_groups = grouped ? groups.value_or(1) : out.num_attention_heads;
  out.kv_channels =
      keys.integer({"kv_channels"}).value_or(out.hidden_size / std::max<std::int64_t>(1, out.num_attention_heads));
  out.normalization = keys.text({"normalization"}).value_or("LayerNorm");
  out.position = keys.text({"position_embedding_type"}).value_or("learned_absolute");
  out.tied = !keys.active("untie_embeddings_and_output_weights");
  out.linear_bias = !keys.active("disable_bias_linear");
  out.qkv_bias = keys.active("add_qkv_bias");
  out.qk_norm = keys.active("qk_layernorm");
  for (const auto* each : {"untie_embeddings_and_output_weights", "disable_bias_linear", "add_qkv_bias", "qk_layernorm",
                           "num_experts", "multi_latent_attention", "enable_gpt_oss", "softmax_type",
                           "moe_ffn_hidden_size", "hybrid_layer_pattern", "hybrid_override_pattern"})
    keys.take(each);
  if (keys.active("num_experts")) {
    out.num_experts = keys.integer({"num_experts"}).value;
    out.moe_router_topk = keys.integer({"moe_router_topk"}).value_or(2);
    out.moe_ffn_hidden_size = keys.integer({"moe_ffn_hidden_size"}).value_or(out.ffn_hidden_size);
    const auto frequency = keys.text({"moe_layer_freq"}).value_or("1");
    out.moe_layer_freq = 1;
    if (frequency != "1")
      findings.cannot("moe_layer_freq: " + frequency,
                      "layers with and without experts in turn: planned with experts in all");
  }
  keys.take("moe_router_topk");
  keys.take("moe_router_group_topk");
  keys.take("moe_router_num_groups");
  keys.take("moe_layer_freq");
  const auto multiple =
      std::max<std::int64_t>(1, times(keys.integer({"make_vocab_size_divisible_by"}).value_or(128), tp));
  const auto said = keys.integer({"padded_vocab_size", "vocab_size"});
  const bool gpt2 = keys.shown("tokenizer_type").ends_with(": GPT2BPETokenizer");
  const auto vocabulary = said         ? said.value
                          : vocab_size ? vocab_size
                          : gpt2       ? std::optional<std::int64_t>(50257)
                                       : std::nullopt;
  if (vocabulary)
    out.vocab_size = times((*vocabulary - 1) / multiple + 1, multiple);
  else
    findings.ask("vocabulary size", "comes from the tokenizer", "--vocab-size N");
  out.max_position_embeddings = keys.integer({"max_position_embeddings"}).value;
  choose_family(out, keys, findings);
  if (const auto base = keys.number({"rotary_base"}); base && out.position == "rope") out.rope_theta = base.value;
  if (const auto part = keys.number({"rotary_percent"}); part && *part != 1 && out.position == "rope") {
    if (out.model_type == "nemotron")
      out.further.emplace_back("partial_rotary_factor", fmt::format("{}", *part));
    else
      findings.cannot(fmt::format("rotary_percent {}", *part),
                      "part of each head is rotated: planned with all of it, of the same size");
  }
  if (keys.active("use_rope_scaling")) findings.note("use_rope_scaling", "frequencies do not change a plan");
  keys.take("use_rope_scaling");
  keys.take("rope_scaling_factor");
  keys.take("rotary_seq_len_interpolation_factor");
  if (const auto epsilon = keys.number({"norm_epsilon"}))
    out.further.emplace_back(out.model_type == "gpt2"       ? "layer_norm_epsilon"
                             : out.model_type == "nemotron" ? "norm_eps"
                                                            : "rms_norm_eps",
                             fmt::format("{}", *epsilon));
  return out;
}

}  // namespace automodel::foreign
