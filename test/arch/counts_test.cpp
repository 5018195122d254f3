#include "arch/counts.h"

#include <catch2/catch.hpp>

#include "arch/families.h"
#include "arch/hf_config.h"
#include "base/diagnostic.h"
#include "golden_file.h"

namespace automodel::arch {
namespace {

struct Known {
  const char* name;
  std::int64_t total;
  const char* config;
};

// Totals as on the models' pages; sizes as in their published config.json.
constexpr Known kKnown[] = {
    {"Llama-3.1-8B", 8'030'261'248,
     R"({"model_type":"llama","hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,
         "num_key_value_heads":8,"vocab_size":128256})"},
    {"Llama-3.1-70B", 70'553'706'496,
     R"({"model_type":"llama","hidden_size":8192,"intermediate_size":28672,"num_hidden_layers":80,"num_attention_heads":64,
         "num_key_value_heads":8,"vocab_size":128256})"},
    {"Llama-3.1-405B", 405'853'388'800,
     R"({"model_type":"llama","hidden_size":16384,"intermediate_size":53248,"num_hidden_layers":126,
         "num_attention_heads":128,"num_key_value_heads":8,"vocab_size":128256})"},
    {"Llama-3.2-1B", 1'235'814'400,
     R"({"model_type":"llama","hidden_size":2048,"intermediate_size":8192,"num_hidden_layers":16,"num_attention_heads":32,
         "num_key_value_heads":8,"head_dim":64,"vocab_size":128256,"tie_word_embeddings":true})"},
    {"Mistral-7B-v0.1", 7'241'732'096,
     R"({"model_type":"mistral","hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,
         "num_attention_heads":32,"num_key_value_heads":8,"vocab_size":32000,"sliding_window":4096})"},
    {"Mixtral-8x7B", 46'702'792'704,
     R"({"model_type":"mixtral","hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,
         "num_attention_heads":32,"num_key_value_heads":8,"vocab_size":32000,"num_local_experts":8,
         "num_experts_per_tok":2})"},
    {"Qwen2.5-0.5B", 494'032'768,
     R"({"model_type":"qwen2","hidden_size":896,"intermediate_size":4864,"num_hidden_layers":24,"num_attention_heads":14,
         "num_key_value_heads":2,"vocab_size":151936,"tie_word_embeddings":true})"},
    {"Qwen2.5-7B", 7'615'616'512,
     R"({"model_type":"qwen2","hidden_size":3584,"intermediate_size":18944,"num_hidden_layers":28,
         "num_attention_heads":28,"num_key_value_heads":4,"vocab_size":152064})"},
    {"Qwen3-8B", 8'190'735'360,
     R"({"model_type":"qwen3","hidden_size":4096,"intermediate_size":12288,"num_hidden_layers":36,"num_attention_heads":32,
         "num_key_value_heads":8,"head_dim":128,"vocab_size":151936})"},
    {"Qwen3-30B-A3B", 30'532'122'624,
     R"({"model_type":"qwen3_moe","hidden_size":2048,"intermediate_size":6144,"moe_intermediate_size":768,
         "num_hidden_layers":48,"num_attention_heads":32,"num_key_value_heads":4,"head_dim":128,"vocab_size":151936,
         "num_experts":128,"num_experts_per_tok":8,"norm_topk_prob":true})"},
    {"gemma-2-2b", 2'614'341'888,
     R"({"model_type":"gemma2","hidden_size":2304,"intermediate_size":9216,"num_hidden_layers":26,"num_attention_heads":8,
         "num_key_value_heads":4,"head_dim":256,"vocab_size":256000})"},
    {"gemma-2-9b", 9'241'705'984,
     R"({"model_type":"gemma2","hidden_size":3584,"intermediate_size":14336,"num_hidden_layers":42,
         "num_attention_heads":16,"num_key_value_heads":8,"head_dim":256,"vocab_size":256000})"},
    {"gemma-3-1b", 999'885'952,
     R"({"model_type":"gemma3_text","hidden_size":1152,"intermediate_size":6912,"num_hidden_layers":26,
         "num_attention_heads":4,"num_key_value_heads":1,"head_dim":256,"vocab_size":262144})"},
    {"gpt2", 124'439'808, R"({"model_type":"gpt2","n_embd":768,"n_layer":12,"n_head":12,"vocab_size":50257})"},
    {"gpt2-xl", 1'557'611'200, R"({"model_type":"gpt2","n_embd":1600,"n_layer":48,"n_head":25,"vocab_size":50257})"},
    {"Phi-3-mini", 3'821'079'552,
     R"({"model_type":"phi3","hidden_size":3072,"intermediate_size":8192,"num_hidden_layers":32,"num_attention_heads":32,
         "num_key_value_heads":32,"vocab_size":32064})"},
    {"gpt-oss-20b", 20'914'757'184,
     R"({"model_type":"gpt_oss","hidden_size":2880,"intermediate_size":2880,"num_hidden_layers":24,
         "num_attention_heads":64,"num_key_value_heads":8,"head_dim":64,"vocab_size":201088,"num_local_experts":32,
         "num_experts_per_tok":4})"},
    {"gpt-oss-120b", 116'829'156'672,
     R"({"model_type":"gpt_oss","hidden_size":2880,"intermediate_size":2880,"num_hidden_layers":36,
         "num_attention_heads":64,"num_key_value_heads":8,"head_dim":64,"vocab_size":201088,"num_local_experts":128,
         "num_experts_per_tok":4})"},
    {"DeepSeek-V3", 671'026'419'200,
     R"({"model_type":"deepseek_v3","hidden_size":7168,"intermediate_size":18432,"moe_intermediate_size":2048,
         "num_hidden_layers":61,"num_attention_heads":128,"num_key_value_heads":128,"vocab_size":129280,
         "n_routed_experts":256,"n_shared_experts":1,"num_experts_per_tok":8,"n_group":8,"topk_group":4,
         "first_k_dense_replace":3,"q_lora_rank":1536,"kv_lora_rank":512,"qk_nope_head_dim":128,"qk_rope_head_dim":64,
         "v_head_dim":128})"},
};

ModelSpec spec_of(const char* config) {
  const auto parsed = parse_hf_config(config, "config.json", {false, true});
  INFO(to_text(parsed.errors));
  REQUIRE(parsed.spec);
  return *parsed.spec;
}

/// A decoder described by Megatron's arguments.
ModelSpec megatron_spec(const nlohmann::json& args) {
  const bool moe = !args["num_experts"].is_null();
  ModelSpec spec;
  spec.model_type = moe ? "mixtral" : "llama";
  spec.hidden = args["hidden_size"];
  spec.layers = args["num_layers"];
  spec.heads = args["num_attention_heads"];
  spec.kv_heads = args["group_query_attention"].get<bool>() ? args["num_query_groups"].get<int>() : spec.heads;
  spec.head_dim = args["kv_channels"];
  spec.vocab = args["padded_vocab_size"];
  spec.norm = args["normalization"] == "RMSNorm" ? NormKind::kRmsNorm : NormKind::kLayerNorm;
  spec.norm_bias = spec.norm == NormKind::kLayerNorm;
  spec.gated_mlp = args["swiglu"];
  spec.tied_embeddings = !args["untie_embeddings_and_output_weights"].get<bool>();
  spec.ffn = moe ? args["moe_ffn_hidden_size"] : args["ffn_hidden_size"];
  spec.attention.assign(static_cast<std::size_t>(spec.layers), LayerAttention::kFull);
  spec.moe_layers.assign(static_cast<std::size_t>(spec.layers), moe);
  if (moe) {
    auto& experts = spec.moe.emplace();
    experts.experts = args["num_experts"];
    experts.top_k = args["moe_router_topk"];
    experts.ffn = spec.ffn;
  }
  return spec;
}

/// Bytes of Megatron's most loaded shard, from our counts: tensor parallelism shards matrices, not norms and routers.
double most_loaded_bytes(const ModelSpec& spec, const nlohmann::json& args) {
  const auto counts = count_parameters(spec);
  const double tp = args["tensor_model_parallel_size"];
  const double pp = args["pipeline_model_parallel_size"];
  const auto embedding = static_cast<double>(counts.of(Role::kEmbedding));
  const auto cut = static_cast<double>(counts.of(Role::kAttention) + counts.of(Role::kMlp));
  const auto whole = static_cast<double>(counts.of(Role::kNorm) + counts.of(Role::kRouter));
  const double dense =
      (cut / pp + embedding) / tp + whole / pp + (pp == 1 ? static_cast<double>(counts.of(Role::kHead)) / tp : 0);
  const double etp = args["expert_tensor_parallel_size"];
  const double ep = args["expert_model_parallel_size"];
  const double experts = static_cast<double>(counts.of(Role::kExpert)) / (pp * etp * ep);
  const bool sharded = args["use_distributed_optimizer"];
  const double expert_dp = static_cast<int>(args["world_size"].get<double>() / (etp * ep * pp));
  return dense * (sharded ? 6 + 12 / args["data_parallel_size"].get<double>() : 18) +
         experts * (sharded && experts > 0 ? 6 + 12 / expert_dp : 18);
}

}  // namespace

TEST_CASE("well-known models have their published parameter counts", "[arch]") {
  for (const auto& known : kKnown) {
    CAPTURE(known.name);
    CHECK(count_parameters(spec_of(known.config)).total() == known.total);
  }
}

TEST_CASE("active parameters exclude the experts that a token does not use", "[arch]") {
  const auto active = [](const std::string& name) {
    for (const auto& known : kKnown)
      if (name == known.name) {
        const auto spec = spec_of(known.config);
        return static_cast<double>(active_parameters(spec, count_parameters(spec)));
      }
    return 0.0;
  };
  CHECK(active("Mixtral-8x7B") == Approx(12.88e9).epsilon(1e-3));
  CHECK(active("DeepSeek-V3") == Approx(37.55e9).epsilon(1e-3));
  CHECK(active("Llama-3.1-8B") == 8'030'261'248.0);
}

TEST_CASE("weight bytes and FLOPs per token match Megatron Core where the definitions agree", "[arch][golden]") {
  std::size_t compared = 0;
  for (const auto& row : golden::load("arch/megatron_memory.json")) {
    const auto& args = row["args"];
    const bool plain_moe = args["num_experts"].is_null() ||
                           (args["moe_layer_freq"] == 1 && args["moe_shared_expert_intermediate_size"].is_null() &&
                            args["moe_latent_size"].is_null());
    if (args["multi_latent_attention"].get<bool>() || !plain_moe) continue;
    CAPTURE(row["model"].get<std::string>());
    const auto spec = megatron_spec(args);
    const auto layout = layout_of(spec);
    // Megatron does not count the router.
    const double router = 6.0 * static_cast<double>(count_parameters(spec).of(Role::kRouter));
    double forward = head_flops_per_token(spec);
    for (int layer = 0; layer < spec.layers; ++layer)
      forward += layer_flops_per_token(spec, layout, layer, args["seq_length"]);
    CHECK(3 * forward - router == Approx(row["flops_per_token"].get<double>()).epsilon(1e-12));
    CHECK(most_loaded_bytes(spec, args) == Approx(row["weight_and_optimizer_bytes"].get<double>()).epsilon(1e-12));
    ++compared;
  }
  CHECK(compared == 11);
}

TEST_CASE("a sliding window and causal masking change only the attention FLOPs", "[arch]") {
  auto spec = spec_of(kKnown[4].config);  // Mistral, window 4096
  const auto layout = layout_of(spec);
  const double causal = layer_flops_per_token(spec, layout, 0, 4096);
  CHECK(layer_flops_per_token(spec, layout, 0, 4096, false) - causal == 2.0 * 8192 * 2048);
  // 8192 tokens: the first 4096 see 2048 keys on average, the others 4096.
  CHECK(layer_flops_per_token(spec, layout, 0, 8192) - causal == 2.0 * 8192 * (3072 - 2048));
  spec.sliding_window = 0;
  CHECK(layer_flops_per_token(spec, layout, 0, 8192) - causal == 2.0 * 8192 * (4096 - 2048));
}

TEST_CASE("two stages' parameters add up to the model's, plus a copy of a tied output head", "[arch]") {
  for (const auto& known : kKnown) {
    CAPTURE(known.name);
    const auto spec = spec_of(known.config);
    const auto layout = layout_of(spec);
    ParameterCounts sum;
    sum += count_parameters(layout, {true, 0, 5, false, false});
    sum += count_parameters(layout, {false, 5, spec.layers, true, true});
    const auto copy = spec.tied_embeddings ? std::int64_t{spec.vocab} * spec.hidden : 0;
    CHECK(sum.total() == known.total + copy);
  }
}

}  // namespace automodel::arch
