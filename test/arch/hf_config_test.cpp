#include "arch/hf_config.h"

#include <cmath>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "arch/counts.h"
#include "arch/families.h"
#include "arch/modules.h"
#include "base/diagnostic.h"
#include "golden_file.h"

namespace automodel::arch {
namespace {

constexpr const char* kSmall =
    R"("hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 12, "num_attention_heads": 4, "vocab_size": 512)";

std::string small(const std::string& type, const std::string& more = "") {
  return R"({"model_type": ")" + type + R"(", )" + kSmall + (more.empty() ? "" : ", " + more) + "}";
}

ModelSpec spec_of(const std::string& text) {
  const auto parsed = parse_hf_config(text, "config.json");
  INFO(to_text(parsed.errors));
  REQUIRE(parsed.spec);
  return *parsed.spec;
}

std::vector<std::string> ids(const Diagnostics& problems) {
  std::vector<std::string> out;
  for (const auto& problem : problems) out.push_back(problem.id);
  return out;
}

std::string sliding_layers(const ModelSpec& spec) {
  std::string out;
  for (const auto kind : spec.attention) out += kind == LayerAttention::kSliding ? 's' : 'f';
  return out;
}

using Ids = std::vector<std::string>;

}  // namespace

TEST_CASE("an infinite time-step limit is read in Python's and in transformers' notation", "[arch]") {
  for (const std::string limit : {"[0.1, Infinity]", R"([0.1, {"__float__": "Infinity"}])"}) {
    CAPTURE(limit);
    const auto parsed = parse_hf_config(
        R"({"model_type": "mamba2", "architectures": ["Infinity"], "hidden_size": 32, "num_hidden_layers": 1,
            "vocab_size": 9, "num_heads": 4, "head_dim": 16, "n_groups": 1, "time_step_limit": )" +
            limit + "}",
        "config.json", {});
    INFO(to_text(parsed.errors));
    REQUIRE(parsed.spec);
    CHECK(parsed.spec->architecture == "Infinity");
    CHECK(parsed.spec->recurrence->least_step == 0.1);
    CHECK(parsed.spec->recurrence->most_step == 0);  // none
  }
}

TEST_CASE("all problems in a config are reported together, each with its location", "[arch]") {
  const auto parsed = parse_hf_config(
      "{\n  \"model_type\": \"llama\",\n  \"hidden_size\": \"64\",\n  \"num_hidden_layers\": 0,\n"
      "  \"num_attention_heads\": 6,\n  \"num_key_value_heads\": 4,\n  \"hidden_act\": \"sillu\",\n"
      "  \"vocab_size\": 512,\n  \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": -1}\n}",
      "m/config.json");
  CHECK_FALSE(parsed.spec);
  CHECK(ids(parsed.errors) == Ids{"bad-type", "bad-value", "missing-key", "indivisible", "bad-value", "bad-value",
                                  "missing-key", "missing-key"});
  CHECK(to_text(parsed.errors[0]) ==
        "m/config.json:3:3: error[bad-type]: 'hidden_size' is \"64\"\n    help: it must be a whole number");
  CHECK(to_text(parsed.errors[1]) ==
        "m/config.json:4:3: error[bad-value]: 'num_hidden_layers' is 0\n    help: it must be from 1 to 16384");
  CHECK(parsed.errors[2].key == "intermediate_size");
  CHECK(parsed.errors[4].help == "did you mean 'silu'?");
  CHECK(parsed.errors[5].key == "rope_scaling.factor");
  CHECK(parsed.errors[5].where.line == 9);
}

TEST_CASE("text that is not a JSON object is refused with the location of the error", "[arch]") {
  const auto broken = parse_hf_config("{\"a\": 1,\n \"b\": }", "c.json");
  REQUIRE(ids(broken.errors) == Ids{"bad-json"});
  CHECK(broken.errors[0].where == SourceLocation{"c.json", 2, 7});
  CHECK(ids(parse_hf_config("[1]", "c.json").errors) == Ids{"bad-json"});
  CHECK(ids(parse_hf_config("", "c.json").errors) == Ids{"bad-json"});
  const auto deep =
      parse_hf_config("{\"a\": " + std::string(2'000'000, '[') + std::string(2'000'000, ']') + "}", "c.json");
  REQUIRE(ids(deep.errors) == Ids{"bad-json"});
  CHECK(deep.errors[0].message == "the configuration nests more than 100 levels");
  CHECK(ids(parse_hf_config("{\"hidden_size\": 1e999}", "c.json").errors) == Ids{"bad-json"});
}

TEST_CASE("a model of an unknown family is planned from its sizes if allowed, else refused", "[arch]") {
  const auto planned = parse_hf_config(small("lama", R"("num_local_experts": 4, "num_experts_per_tok": 2)"), "c.json");
  REQUIRE(planned.spec);
  CHECK_FALSE(planned.spec->plan_only.empty());
  CHECK(ids(planned.warnings) == Ids{"unknown-model-type"});
  CHECK(planned.warnings[0].help.starts_with("did you mean 'llama'? known: llama, mistral"));
  CHECK(planned.spec->is_moe(11));
  CHECK(count_parameters(*planned.spec).total() > 0);
  CHECK(layout_of(*planned.spec).layer_fqn(3) == "model.layers.3");

  const auto refused = parse_hf_config(small("lama"), "c.json", {false, false});
  CHECK(ids(refused.errors) == Ids{"unknown-model-type"});
  CHECK(ids(parse_hf_config(R"({"model_type": "x"})", "c.json").errors) ==
        Ids{"missing-key", "missing-key", "missing-key", "missing-key"});
}

TEST_CASE("an encoder is refused, not planned as a causal language model", "[arch]") {
  for (const auto* type : {"bert", "xlm-roberta", "siglip_vision_model"}) {
    const auto refused = parse_hf_config(small(type), "c.json");
    CHECK_FALSE(refused.spec);
    CHECK(ids(refused.errors) == Ids{"unsupported-model"});
  }
}

TEST_CASE("the text model of a multimodal config is planned with its nested module names", "[arch]") {
  const auto parsed = parse_hf_config(
      R"({"model_type": "gemma3", "tie_word_embeddings": false, "vision_config": {"hidden_size": 8}, "text_config": )" +
          small("gemma3_text") + "}",
      "c.json");
  REQUIRE(parsed.spec);
  CHECK(parsed.spec->model_type == "gemma3_text");
  CHECK(parsed.spec->nested_in == "gemma3");
  CHECK_FALSE(parsed.spec->tied_embeddings);
  CHECK_FALSE(parsed.spec->plan_only.empty());
  CHECK(ids(parsed.warnings) == Ids{"multimodal"});
  CHECK(layout_of(*parsed.spec).layer_fqn(0) == "model.language_model.layers.0");

  const auto bad = parse_hf_config(
      "{\"model_type\": \"gemma3\", \"hidden_sizes\": 1,\n \"text_config\": {\n\"model_type\": "
      "\"llama\",\n\"hidden_size\": 0}}",
      "c.json");
  REQUIRE_FALSE(bad.errors.empty());
  CHECK(bad.errors[0].key == "text_config.hidden_size");
  CHECK(bad.errors[0].where == SourceLocation{"c.json", 4, 1});
}

TEST_CASE("towers of published multimodal models have their published parameter counts", "[arch]") {
  const auto towers = [](const std::string& text) { return parse_hf_config(text, "c.json").towers; };
  // google/gemma-3-4b-it: 4,300,079,472 parameters in all.
  const auto gemma = towers(R"({"model_type": "gemma3", "text_config": {"hidden_size": 2560, "intermediate_size": 10240,
      "model_type": "gemma3_text", "num_hidden_layers": 34, "sliding_window": 1024}, "vision_config": {
      "hidden_size": 1152, "image_size": 896, "intermediate_size": 4304, "model_type": "siglip_vision_model",
      "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": false}})");
  REQUIRE(gemma.size() == 2);
  CHECK(gemma[0].fqn == "model.vision_tower");
  CHECK(gemma[0].tokens == 4096);
  CHECK(*gemma[0].parameters + *gemma[1].parameters == 419'816'304);
  // llava-hf/llava-1.5-7b-hf: 7,063,427,072, of them 6,738,939,904 of Vicuna with 64 more rows.
  const auto llava = towers(R"({"model_type": "llava", "text_config": {"model_type": "llama", "hidden_size": 4096,
      "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 32064},
      "vision_config": {"hidden_size": 1024, "image_size": 336, "intermediate_size": 4096, "model_type":
      "clip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14}})");
  REQUIRE(llava.size() == 2);
  CHECK(llava[0].what == "CLIP");
  CHECK(*llava[0].parameters == 303'507'456);
  CHECK(llava[0].tokens == 577);
  CHECK(*llava[0].parameters + *llava[1].parameters == 7'063'427'072 - 6'738'939'904);
  // Mistral Small 3.1: 24,011,361,280, of them 23,572,403,200 of the text model.
  const auto mistral = towers(R"({"model_type": "mistral3", "spatial_merge_size": 2, "multimodal_projector_bias": false,
      "text_config": {"model_type": "mistral", "hidden_size": 5120, "intermediate_size": 32768, "num_hidden_layers": 40,
      "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 131072},
      "vision_config": {"model_type": "pixtral", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
      "num_attention_heads": 16, "patch_size": 14, "image_size": 1540}})");
  REQUIRE(mistral.size() == 2);
  CHECK(*mistral[0].parameters + *mistral[1].parameters == 24'011'361'280 - 23'572'403'200);
}

TEST_CASE("a flat Qwen2.5-VL config is read as Qwen2 with a vision tower for pictures of any size", "[arch]") {
  const auto parsed = parse_hf_config(R"({"model_type": "qwen2_5_vl", "architectures":
      ["Qwen2_5_VLForConditionalGeneration"], "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
      "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": false,
      "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}, "vision_config": {"depth": 32, "hidden_size":
      1280, "intermediate_size": 3420, "num_heads": 16, "in_chans": 3, "out_hidden_size": 3584, "patch_size": 14,
      "spatial_merge_size": 2, "temporal_patch_size": 2}})",
                                      "c.json");
  REQUIRE(parsed.spec);
  CHECK(parsed.spec->model_type == "qwen2");
  CHECK(parsed.warnings.empty());
  REQUIRE(parsed.spec->vision);
  CHECK(parsed.spec->vision->any_size());
  CHECK(parsed.spec->vision->window == 4);
  CHECK(parsed.spec->vision->whole_layers == std::vector<int>{7, 15, 23, 31});
  CHECK(layout_of(*parsed.spec).layer_fqn(0) == "model.language_model.layers.0");
  REQUIRE(parsed.towers.size() == 1);
  CHECK(parsed.towers[0].fqn == "model.visual");
  std::int64_t tower = 0;
  for (const auto& parameter : layout_of(*parsed.spec).tower_parameters) tower += parameter.shape.elements();
  CHECK(count_parameters(*parsed.spec).total() + tower == 8'292'166'656);
}

TEST_CASE("a nested Llama has the sizes of Llama 7B unless it names others, as in published LLaVA configs", "[arch]") {
  const auto parsed = parse_hf_config(
      R"({"architectures": ["LlavaForConditionalGeneration"], "ignore_index": -100, "image_token_index": 32000,
          "model_type": "llava", "pad_token_id": 32001, "projector_hidden_act": "gelu",
          "text_config": {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 4096, "model_type": "llama",
                          "rms_norm_eps": 1e-05, "vocab_size": 32064},
          "vision_config": {"hidden_size": 1024, "image_size": 336, "intermediate_size": 4096,
                            "model_type": "clip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 24,
                            "patch_size": 14, "projection_dim": 768, "vocab_size": 32000},
          "vision_feature_layer": -2, "vision_feature_select_strategy": "default", "vocab_size": 32064})",
      "c.json");
  CHECK(parsed.errors.empty());
  REQUIRE(parsed.spec);
  CHECK(parsed.spec->vocab == 32064);
  REQUIRE(parsed.spec->vision);
  CHECK(parsed.spec->vision->tokens() == 576);
  // Vicuna 7B with 64 more rows of both tables, CLIP's ViT-L/14 at 336 pixels, and a projector of two layers.
  std::int64_t elements = 0;
  for (const auto& parameter : parameters(*parsed.spec)) elements += parameter.shape.elements();
  CHECK(elements == 7'063'427'072);
  const auto alone = parse_hf_config(R"({"model_type": "llama", "vocab_size": 32064})", "c.json");
  CHECK(ids(alone.errors).size() == 4);
}

TEST_CASE("the size of a tower that the config does not describe is unknown, not guessed", "[arch]") {
  const auto llava =
      parse_hf_config(R"({"model_type": "llava", "text_config": )" + small("llama") +
                          R"(, "vision_config": {"model_type": "clip_vision_model", "hidden_size": 64}})",
                      "c.json");
  REQUIRE(llava.towers.size() == 2);
  CHECK_FALSE(llava.towers[0].parameters);
  CHECK_FALSE(llava.towers[1].parameters);
  CHECK(llava.warnings[0].message.find("model.vision_tower (CLIP, of unknown size)") != std::string::npos);
  const auto omni = parse_hf_config(
      R"({"model_type": "some_omni", "text_config": )" + small("llama") + R"(, "audio_config": {"d_model": 8}})",
      "c.json");
  REQUIRE(omni.towers.size() == 1);
  CHECK(omni.towers[0].fqn.empty());
  CHECK(omni.warnings[0].message.find("another module (audio, of unknown size)") != std::string::npos);
}

TEST_CASE("a masked language model is not planned as a causal one", "[arch]") {
  const auto bert = parse_hf_config(small("bert", R"("architectures": ["BertForMaskedLM"])"), "c.json");
  CHECK_FALSE(bert.spec);
  CHECK(ids(bert.errors) == Ids{"unsupported-model"});
}

TEST_CASE("Gemma 3 4B's published config takes the sizes that it omits from the class's defaults", "[arch]") {
  const auto spec = spec_of(R"({"model_type": "gemma3", "text_config": {"hidden_size": 2560, "intermediate_size": 10240,
      "model_type": "gemma3_text", "num_hidden_layers": 34, "sliding_window": 1024,
      "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}, "vision_config": {"hidden_size": 1152}})");
  CHECK(spec.heads == 8);
  CHECK(spec.kv_heads == 4);
  CHECK(spec.rope.factor == 8);
  CHECK(spec.sliding_rope->kind == RopeKind::kDefault);
  CHECK(count_parameters(spec).total() == 4'300'079'472 - 419'816'304);  // all but vision tower and projector
}

/// A tiny Gemma 4 of six layers, every third with full attention.
std::string gemma4(const std::string& more) {
  return R"({"model_type": "gemma4_text", "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 6,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 128, "global_head_dim": 24,
      "vocab_size_per_layer_input": 128, "hidden_size_per_layer_input": 8, "layer_types": ["sliding_attention",
      "sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"])" +
         more + "}";
}

TEST_CASE("Gemma 4's layers differ in heads, keys and widths, in both spellings", "[arch]") {
  const auto spec = spec_of(gemma4(R"(, "num_kv_shared_layers": 3, "use_double_wide_mlp": true)"));
  CHECK(spec.head_dim_of(1) == 16);
  CHECK(spec.head_dim_of(2) == 24);
  CHECK(spec.kv_heads_of(2) == 2);
  CHECK(spec.has_keys(2));
  CHECK(!spec.has_keys(3));
  CHECK(spec.keys_of(5) == 2);
  CHECK(spec.keys_of(3) == 1);
  CHECK(spec.lends_keys(1));
  CHECK(!spec.lends_keys(0));
  CHECK(spec.ffns == std::vector{64, 64, 64, 128, 128, 128});
  CHECK(spec.rope.kind == RopeKind::kProportional);
  CHECK(spec.rope.rotary_dim == 24);
  CHECK(spec.rope.share == 0.25);
  CHECK(spec.sliding_rope->theta == 10000);
  const auto stretched = spec_of(gemma4(R"(, "rope_parameters": {"full_attention": {"rope_type": "proportional",
      "rope_theta": 1e6, "partial_rotary_factor": 0.25, "factor": 8.0}, "sliding_attention": {"rope_type": "default",
      "rope_theta": 1e4}})"));
  CHECK(stretched.rope.factor == 8);
  const auto equal = spec_of(gemma4(R"(, "attention_k_eq_v": true, "num_global_key_value_heads": 1)"));
  CHECK(equal.kv_heads_of(2) == 1);
  CHECK(equal.kv_heads_of(1) == 2);
  CHECK(equal == spec_of(gemma4(R"(, "attention_k_eq_v": true, "per_layer_config": {"2": {"head_dim": 24,
      "num_key_value_heads": 1}, "5": {"head_dim": 24, "num_key_value_heads": 1}})")));
  for (const auto& [more, key] : std::vector<std::pair<std::string, std::string>>{
           {R"(, "per_layer_config": {"2": {"head_dim": 24}})", "per_layer_config"},
           {R"(, "per_layer_config": {"1": {"head_dim": 24}})", "per_layer_config"},
           {R"(, "num_kv_shared_layers": 6)", "num_kv_shared_layers"},
           {R"(, "num_kv_shared_layers": 4)", "num_kv_shared_layers"},
           {R"(, "attention_k_eq_v": true, "num_global_key_value_heads": 3)", "num_attention_heads"},
           {R"(, "use_bidirectional_attention": "all")", "use_bidirectional_attention"},
           {R"(, "rope_parameters": {"full_attention": {"partial_rotary_factor": 0.5}})", "rope_parameters"},
           {R"(, "vocab_size": 256)", "vocab_size_per_layer_input"},
           {R"(, "enable_moe_block": true, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 8,
               "num_kv_shared_layers": 3, "use_double_wide_mlp": true)",
            "use_double_wide_mlp"},
           {R"(, "enable_moe_block": true, "num_experts": 4, "top_k_experts": 5, "moe_intermediate_size": 8)",
            "top_k_experts"}}) {
    INFO(more);
    const auto parsed = parse_hf_config(gemma4(more), "config.json");
    REQUIRE(parsed.errors.size() == 1);
    CHECK(parsed.errors[0].key == key);
  }
}

TEST_CASE("DeepSeek V4's layers are read from published configs and from those of transformers", "[arch]") {
  const std::string sizes =
      R"({"model_type": "deepseek_v4", "hidden_size": 64, "moe_intermediate_size": 32, "num_hidden_layers": 5,
          "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 32, "o_groups": 2, "o_lora_rank": 8,
          "q_lora_rank": 16, "n_routed_experts": 8, "num_experts_per_tok": 2, "vocab_size": 512, "rope_theta": 9000,)";
  const auto published = spec_of(sizes + R"("qk_rope_head_dim": 8, "num_hash_layers": 2, "compress_rope_theta": 7000,
      "compress_ratios": [0, 0, 4, 128, 4, 0], "rope_scaling": {"type": "yarn", "factor": 16,
      "original_max_position_embeddings": 65536}})");
  const auto own = spec_of(sizes + R"("partial_rotary_factor": 0.25, "layer_types": ["sliding_attention",
      "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention",
      "compressed_sparse_attention"], "mlp_layer_types": ["hash_moe", "hash_moe", "moe", "moe", "moe"],
      "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}, "rope_parameters":
      {"main": {"rope_type": "default", "rope_theta": 9000, "partial_rotary_factor": 0.25}, "compress": {"rope_type":
      "yarn", "rope_theta": 7000, "partial_rotary_factor": 0.25, "factor": 16, "attention_factor": 1.0,
      "original_max_position_embeddings": 65536}}})");
  CHECK(published == own);
  CHECK(own.compressed->rates == std::vector{0, 0, 4, 128, 4});
  CHECK((own.compressed->is_sparse(2) && !own.compressed->is_sparse(3) && !own.compressed->is_sparse(0)));
  CHECK(own.moe->table_layers == std::vector{true, true, false, false, false});
  CHECK(own.rope.theta == 7000);
  CHECK(own.rope.kind == RopeKind::kYarn);
  CHECK(own.rope.rotary_dim == 8);
  CHECK(own.sliding_rope->theta == 9000);
  CHECK(own.sliding_rope->kind == RopeKind::kDefault);
  CHECK(own.mtp_layers == 1);
  // Layers without either list: two heavily compressed ones, then both kinds in turn.
  CHECK(spec_of(sizes + R"("qk_rope_head_dim": 8})").compressed->rates == std::vector{128, 128, 128, 4, 128});

  for (const auto& [more, id] :
       std::map<std::string, std::string>{{R"("num_key_value_heads": 2)", "bad-value"},
                                          {R"("o_groups": 3)", "indivisible"},
                                          {R"("compress_rates": {"compressed_sparse_attention": 128})", "bad-value"},
                                          {R"("compress_ratios": [0, 0, 4])", "bad-value"},
                                          {R"("compress_ratios": [0, 0, 5, 4, 4])", "bad-value"},
                                          {R"("layer_types": ["full_attention", "a", "b", "c", "d"])", "bad-value"},
                                          {R"("mlp_layer_types": ["moe"])", "bad-value"},
                                          {R"("scoring_func": "cosine")", "bad-value"},
                                          {R"("n_routed_experts": 513)", "bad-value"},
                                          {R"("output_router_logits": true)", "bad-value"},
                                          {R"("index_head_dim": 4)", "bad-value"},
                                          {R"("attention_bias": true)", "bad-value"}}) {
    CAPTURE(more);
    const auto parsed = parse_hf_config(sizes + R"("qk_rope_head_dim": 8, )" + more + "}", "config.json");
    CHECK_FALSE(parsed.spec);
    CHECK(ids(parsed.errors) == Ids{id});
  }
}

TEST_CASE("MiMo-V2-Flash's and Laguna's layers differ in heads", "[arch]") {
  const std::string mimo = small("mimo_v2_flash", R"("num_key_value_heads": 1, "head_dim": 24, "v_head_dim": 16,
      "moe_intermediate_size": 32, "n_routed_experts": 8, "num_experts_per_tok": 2)");
  const auto more = [](std::string text, const std::string& keys) {
    text.back() = ',';
    return text + keys + "}";
  };
  const auto spec = spec_of(mimo);
  CHECK(sliding_layers(spec) == "fssssfsssssf");
  CHECK(std::pair(spec.kv_heads_of(0), spec.kv_heads_of(1)) == std::pair(1, 2));
  CHECK(std::pair(spec.query_width(1), spec.value_width(1)) == std::pair(4 * 24, 4 * 16));
  CHECK(spec.rope.rotary_dim == 8);
  CHECK(spec.sliding_rope->rotary_dim == 8);
  CHECK(std::pair(spec.rope.theta, spec.sliding_rope->theta) == std::pair(5e6, 1e4));
  CHECK(std::pair(spec.sliding_window, spec.value_scale) == std::pair(129, 0.707));
  CHECK(spec_of(more(mimo, R"("sliding_window_size": 128, "attention_value_scale": null)")).value_scale == 1);
  for (const auto& [keys, id] : std::map<std::string, std::string>{{R"("num_key_value_heads": 4)", "indivisible"},
                                                                   {R"("v_head_dim": 32)", "bad-value"}})
    CHECK(ids(parse_hf_config(more(mimo, keys), "config.json").errors) == Ids{id});

  const std::string types = R"("layer_types": ["full_attention", "sliding_attention", "sliding_attention",
      "full_attention", "sliding_attention", "sliding_attention", "full_attention", "sliding_attention",
      "sliding_attention", "full_attention", "sliding_attention", "sliding_attention"])";
  const std::string laguna = small("laguna", types + R"(, "num_key_value_heads": 2, "head_dim": 16, "num_experts": 8,
      "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32)");
  const auto per_layer = [&](const std::string& numbers) {
    return more(laguna, R"("num_attention_heads_per_layer": )" + numbers);
  };
  const auto heads = spec_of(per_layer("[4, 6, 6, 4, 6, 6, 4, 6, 6, 4, 6, 6]"));
  CHECK(std::pair(heads.heads_of(0), heads.heads_of(1)) == std::pair(4, 6));
  CHECK_FALSE(spec_of(laguna).full_heads);
  CHECK(std::pair(heads.rope.rotary_dim, heads.sliding_rope->rotary_dim) == std::pair(8, 16));
  CHECK(spec_of(more(laguna, R"("gating": "per-head")")).output_gate == OutputGate::kHeadSoftplus);
  CHECK(spec_of(more(laguna, R"("gating": "per-element")")).output_gate == OutputGate::kChannelSoftplus);
  CHECK(spec_of(more(laguna, R"("gating": false)")).output_gate == OutputGate::kChannelSoftplus);
  CHECK(ids(parse_hf_config(more(laguna, R"("gating": "none")"), "config.json").errors) == Ids{"bad-value"});
  CHECK(ids(parse_hf_config(per_layer("[4, 6]"), "config.json").errors) == Ids{"bad-value"});
  CHECK(ids(parse_hf_config(per_layer("[4, 6, 8, 4, 6, 6, 4, 6, 6, 4, 6, 6]"), "config.json").errors) ==
        Ids{"bad-value"});
  CHECK(ids(parse_hf_config(per_layer("[4, 5, 6, 4, 6, 6, 4, 6, 6, 4, 6, 6]"), "config.json").errors) ==
        Ids{"indivisible"});
}

TEST_CASE("Muse-Glimmer's layers without RoPE are counted from the last", "[arch]") {
  const auto muse = [](const std::string& more = "") { return small("muse_glimmer_text", more); };
  const auto rotated = [](const ModelSpec& spec) {
    std::string out;
    for (int layer = 0; layer < spec.layers; ++layer) out += spec.has_rope(layer) ? 'r' : '-';
    return out;
  };
  const auto spec = spec_of(muse());
  CHECK(sliding_layers(spec) == "sssfsssfsssf");
  CHECK(rotated(spec) == "rrr-rrr-rrr-");
  CHECK(spec_of(muse(R"("num_hidden_layers": 5)")).rope_layers == std::vector{false, true, true, true, false});
  CHECK(std::pair(spec.head_dim, spec.sliding_window) == std::pair(128, 2048));
  CHECK(std::pair(spec.norm_eps, spec.branch_norm_eps) == std::pair(1e-5, 1e-8));
  CHECK(spec.attention_scale == Approx(3.87 / std::sqrt(128.0)));
  CHECK(std::pair(spec.logit_softcap, spec.rope.theta) == std::pair(20.0, 1e4));
  CHECK(spec.logit_scale == Approx(1 / std::sqrt(26.0)));
  CHECK(spec_of(muse(R"("qk_scale_factor": 2, "head_dim": 16)")).attention_scale == 0.5);
  const std::string own = R"("num_hidden_layers": 3, "rope_parameters": {"rope_theta": 500.0}, "layer_rope_theta": )";
  CHECK(rotated(spec_of(muse(own + "[500.0, 0, 500]"))) == "r-r");
  for (const auto& bad : {own + "[500, 0]", own + "[500, 0, 1e4]", std::string(R"("qk_scale_factor": 0)"),
                          std::string(R"("post_norm_eps": 0)"), std::string(R"("final_logit_softcapping": 0)")}) {
    CAPTURE(bad);
    CHECK(ids(parse_hf_config(muse(bad), "config.json").errors) == Ids{"bad-value"});
  }
  // transformers nests it with a tower; the decoder alone has Llama's names.
  const auto layout = layout_of(spec);
  CHECK(layout.layer(0).back().name == "post_feedforward_layernorm.weight");
  CHECK(layout.kinds.size() == 1);
  CHECK_FALSE(layout.kinds[0].has(Part::kQueryNorm));
  CHECK(layout.kinds[0].module(Part::kAttentionGate) == "self_attn.gate_proj");
}

TEST_CASE("Step 3.5's layers are read from published configs and from those of transformers", "[arch]") {
  const auto with = [](const std::string& keys, const std::string& rest) {
    return R"({"model_type": "step3p5", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 5, "vocab_size":
      512, "num_attention_heads": 4, "head_dim": 16, "moe_intermediate_size": 32, "share_expert_dim": 24,
      "max_position_embeddings": 262144, "moe_router_scaling_factor": 3.0, "sliding_window": 8)" +
           (keys.empty() ? "" : ", " + keys) + ", " + rest + "}";
  };
  // The sixth entry is of a layer for multi-token prediction.
  const std::string lists = R"("num_attention_groups": 2, "moe_num_experts": 8, "moe_top_k": 2, "layer_types":
      ["full_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
      "sliding_attention"], "rope_theta": [5e6, 1e4, 1e4, 1e4, 5e6, 1e4], "partial_rotary_factors": [0.5, 1, 1, 1, 0.5,
      1], "rope_scaling": {"rope_type": "llama3", "factor": 2.0, "original_max_position_embeddings": 131072,
      "low_freq_factor": 1.0, "high_freq_factor": 32.0}, "swiglu_limits": [0, null, 0, 7, 7, 0],
      "swiglu_limits_shared": [16, 0, 0, 0, 16, 0])";
  const std::string published = lists + R"(, "attention_other_setting": {"attention_type": "sliding_attention",
      "num_attention_heads": 6, "num_attention_groups": 2, "head_dim": 16}, "moe_layers_enum": "1, 2,3,4")";
  const std::string by_kind = R"("num_key_value_heads": 2, "n_routed_experts": 8, "num_experts_per_tok": 2,
      "num_nextn_predict_layers": 1, "layer_types": ["full_attention", "sliding_attention", "sliding_attention",
      "sliding_attention", "full_attention"], "mlp_layer_types": ["dense", "sparse", "sparse", "sparse", "sparse"],
      "num_sliding_attention_heads": 6, "per_layer_config": {"1": {"num_attention_heads": 6}}, "rope_parameters":
      {"full_attention": {"rope_type": "llama3", "rope_theta": 5e6, "partial_rotary_factor": 0.5, "factor": 2.0,
      "original_max_position_embeddings": 131072, "low_freq_factor": 1.0, "high_freq_factor": 32.0},
      "sliding_attention": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0}},
      "swiglu_limits": [0, 0, 0, 7, 7], "swiglu_limits_shared": [16, 0, 0, 0, 16])";
  const auto spec = spec_of(with("", published));
  CHECK(spec == spec_of(with("", by_kind)));
  CHECK(sliding_layers(spec) == "fsssf");
  CHECK(std::pair(spec.heads_of(0), spec.heads_of(1)) == std::pair(4, 6));
  CHECK(std::pair(spec.rope.theta, spec.sliding_rope->theta) == std::pair(5e6, 1e4));
  CHECK(std::pair(spec.rope.rotary_dim, spec.sliding_rope->rotary_dim) == std::pair(8, 16));
  CHECK(std::pair(spec.rope.kind, spec.sliding_rope->kind) == std::pair(RopeKind::kLlama3, RopeKind::kDefault));
  CHECK(spec.moe_layers == std::vector{false, true, true, true, true});
  CHECK(spec.expert_limits == std::vector<double>{0, 0, 0, 7, 7});
  CHECK(spec.mlp_limits == std::vector<double>{16, 0, 0, 0, 16});
  CHECK(spec.mtp_layers == 1);
  CHECK(spec.moe->scaling == 3);
  // Folders that leave those layers out may keep their entries.
  CHECK(spec_of(with(R"("num_nextn_predict_layers": 0)", published)) == spec);
  CHECK(spec_of(with(R"("num_nextn_predict_layers": 3)", published)).mtp_layers == 3);
  CHECK(spec_of(with(R"("moe_layers_enum": [3])", lists)).moe_layers == std::vector{false, false, false, true, false});
  CHECK(spec_of(with("", lists)).moe_layers == std::vector{false, false, false, true, true});
  CHECK_FALSE(spec_of(with("", lists)).full_heads);
  CHECK(spec_of(with(R"("query_pre_attn_scalar": 64)", lists)).attention_scale == 0.125);
  for (const auto& [keys, id] : std::map<std::string, std::string>{
           {R"("yarn_only_types": ["sliding_attention"])", "bad-value"},
           {R"("use_head_wise_attn_gate": false)", "bad-value"},
           {R"("moe_router_activation": "softmax")", "bad-value"},
           {R"("moe_layers_enum": "1,two")", "bad-value"},
           {R"("num_sliding_attention_heads": 5)", "indivisible"},
           {R"("per_layer_config": {"1": {"num_attention_heads": 6}})", "bad-value"},
           {R"("attention_other_setting": {"num_attention_heads": 6, "num_attention_groups": 3})", "bad-value"},
           {R"("rope_parameters": {"rope_type": "default"})", "bad-value"}}) {
    CAPTURE(keys);
    for (const auto& found : ids(parse_hf_config(with(keys, lists), "config.json").errors)) CHECK(found == id);
    CHECK_FALSE(parse_hf_config(with(keys, lists), "config.json").spec);
  }
  const auto changed = [&](const std::string& from, const std::string& to) {
    auto text = with("", lists);
    text.replace(text.find(from), from.size(), to);
    return ids(parse_hf_config(text, "config.json").errors);
  };
  CHECK(changed("[5e6, 1e4, 1e4, 1e4, 5e6, 1e4]", "[5e6, 1e4, 1e4, 2e4, 5e6, 1e4]") == Ids{"bad-value"});
  CHECK(changed("[0, null, 0, 7, 7, 0]", "[0, 7]") == Ids{"bad-value"});
  CHECK(changed(R"("sliding_window": 8, )", "") == Ids{"missing-key"});
}

TEST_CASE("MiniMax-M3's layers are read from published configs and from those of transformers", "[arch]") {
  const auto with = [](const std::string& keys) {
    return R"({"model_type": "minimax_m3_vl_text", "hidden_size": 64, "dense_intermediate_size": 128,
      "intermediate_size": 16, "shared_intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 512, "num_local_experts": 8, "num_experts_per_tok": 2)" +
           (keys.empty() ? "" : ", " + keys) + "}";
  };
  const std::string marks = R"("sparse_attention_freq": [0, 1, 1])",
                    sparse = R"("sparse_attention_config": {"use_sparse_attention": true, "sparse_index_dim": 12,
      "sparse_num_index_heads": 2, "sparse_topk_blocks": 3, "sparse_block_size": 4, "sparse_score_type": "max",
      "sparse_init_block": 0, "sparse_local_block": 2, "sparse_disable_index_value": [0, 1, 1], )" +
                             marks + "}",
                    rotated = R"("rotary_dim": 8, "partial_rotary_factor": 0.5, "rope_theta": 700)";
  const auto published = rotated + R"(, "moe_layer_freq": [0, 1, 1], "hidden_act": "swigluoai", "use_gemma_norm": true,
      "qk_norm_type": "per_head", "num_mtp_modules": 7, )" +
                         sparse;
  const auto spec = spec_of(with(published));
  CHECK(spec == spec_of(with(R"("rope_parameters": {"rope_theta": 700, "partial_rotary_factor": 0.5}, "rotary_dim": 64,
      "hidden_act": "silu", "mlp_layer_types": ["dense", "sparse", "sparse"], "layer_types": ["full_attention",
      "minimax_m3_sparse", "minimax_m3_sparse"], "index_n_heads": 2, "index_head_dim": 12, "index_block_size": 4,
      "index_topk_blocks": 3, "index_local_blocks": 2, "num_mtp_modules": 7)")));
  CHECK(*spec.index ==
        TokenIndex{.top_k = 12, .block = 4, .local = 2, .heads = 2, .dim = 12, .layers = {false, true, true}});
  CHECK_FALSE(spec.index->reuses(0));
  CHECK(spec.moe_layers == std::vector{false, true, true});
  CHECK(std::tuple(spec.ffn, spec.moe->ffn, spec.moe->shared_ffn) == std::tuple(128, 16, 24));
  CHECK(std::pair(spec.rope.rotary_dim, spec.rope.theta) == std::pair(8, 700.0));
  CHECK(std::pair(spec.moe->swiglu_alpha, spec.moe->swiglu_limit) == std::pair(1.702, 7.0));
  CHECK(spec.mtp_layers == 7);
  CHECK_FALSE(spec_of(with(rotated)).index);  // no layer has one
  CHECK(spec_of(with("")).moe_layers == std::vector{true, true, true});
  for (const auto& [keys, id] : std::map<std::string, std::string>{
           {R"("rotary_dim": 8)", "bad-value"},
           {R"("hidden_act": "gelu")", "bad-value"},
           {R"("use_gemma_norm": false)", "bad-value"},
           {R"("use_qk_norm": false)", "bad-value"},
           {R"("qk_norm_type": "all_heads")", "bad-value"},
           {R"("attention_output_gate": true)", "bad-value"},
           {R"("n_shared_experts": 2)", "bad-value"},
           {R"("scoring_func": "softmax")", "bad-value"},
           {R"("use_routing_bias": false)", "bad-value"},
           {R"("router_jitter_noise": 0.1)", "bad-value"},
           {R"("swiglu_limit": 0)", "bad-value"},
           {R"("moe_layer_freq": [0, 1])", "bad-value"},
           {R"("layer_types": ["full_attention", "full_attention", "sliding_attention"])", "bad-value"},
           {R"("sparse_attention_config": {"use_sparse_attention": false, )" + marks + "}", "bad-value"},
           {R"("sparse_attention_config": {"sparse_score_type": "mean", )" + marks + "}", "bad-value"},
           {R"("sparse_attention_config": {"sparse_init_block": 1, )" + marks + "}", "bad-value"},
           {R"("sparse_attention_config": {"sparse_disable_index_value": [0, 1, 0], )" + marks + "}", "bad-value"},
           {R"("sparse_attention_config": {"sparse_index_dim": 8, )" + marks + "}", "bad-value"},
           {R"("sparse_attention_config": {"sparse_num_index_heads": 3, )" + marks + "}", "indivisible"}}) {
    CAPTURE(keys);
    CHECK(ids(parse_hf_config(with(keys), "config.json").errors) == Ids{id});
  }
  const auto layout = layout_of(spec);
  CHECK(layout.kinds.size() == 2);
  CHECK(layout.kinds[1].module(Part::kIndexQuery) == "self_attn.index_q_proj");
  CHECK(layout.kinds[1].module(Part::kSharedGate) == "block_sparse_moe.shared_experts.gate_proj");
}

TEST_CASE("a quantized model is plan-only with a reason, and an encoder-decoder model is refused", "[arch]") {
  const auto quantized = parse_hf_config(small("llama", R"("quantization_config": {"quant_method": "fp8"})"), "c.json");
  REQUIRE(quantized.spec);
  CHECK(quantized.spec->plan_only == "its stored weights are quantized (fp8)");
  CHECK(ids(quantized.warnings) == Ids{"quantized"});
  CHECK(ids(parse_hf_config(small("t5", R"("is_encoder_decoder": true)"), "c.json").errors) ==
        Ids{"unsupported-model"});
  CHECK(spec_of(small("llama")).plan_only.empty());
}

TEST_CASE("a mistyped key is an error in a hand-written config", "[arch]") {
  const auto text = small("llama", R"("rope_tetha": 5e5, "use_cache": false)");
  CHECK(parse_hf_config(text, "c.json").errors.empty());
  const auto strict = parse_hf_config(text, "c.json", {false, true});
  REQUIRE(ids(strict.errors) == Ids{"unknown-key"});
  CHECK(strict.errors[0].help == "did you mean 'rope_theta'?");

  const auto below = [](std::string_view rope) {
    Ids out;
    const auto parsed =
        parse_hf_config(small("llama", fmt::format("\"rope_scaling\": {}", rope)), "c.json", {false, true});
    for (const auto& error : parsed.errors) out.push_back(std::string(error.id) + " " + error.key + ": " + error.help);
    return out;
  };
  CHECK(below(R"({"rope_type": "yarn", "factor": 4, "beta_fst": 16})") ==
        Ids{"unknown-key rope_scaling.beta_fst: did you mean 'beta_fast'?"});
  CHECK(below(R"({"rope_type": "linear", "factor": 4, "low_freq_factor": 1})").size() == 1);
  CHECK(below(R"({"type": "yarn", "factor": 4, "original_max_position_embeddings": 64, "mscale": 1,
                  "mscale_all_dim": 1, "beta_slow": 1})")
            .empty());
  CHECK(below(R"({"type": "mrope", "mrope_section": [16, 24, 24]})").empty());
}

TEST_CASE("what transformers does not read, or reads otherwise, is not computed in silence", "[arch]") {
  const auto problems = [](const std::string& type, const std::string& more) {
    const auto parsed = parse_hf_config(small(type, more), "c.json");
    return parsed.errors.empty() ? std::string() : to_text(parsed.errors);
  };
  const auto whole = problems("llama", R"("rope_parameters": {"rope_theta": 100.0, "partial_rotary_factor": 0.5})");
  CHECK(whole.find("rotate whole heads") != std::string::npos);
  CHECK(problems("llama", R"("partial_rotary_factor": 1.0)").empty());
  CHECK(problems("phi3", R"("partial_rotary_factor": 0.5)").empty());
  CHECK(problems("phi3", R"("partial_rotary_factor": 0.2)").find("rotate 3 dimensions") != std::string::npos);
  CHECK(problems("gemma3_text", R"("attn_logit_softcapping": null)").empty());
  CHECK(problems("gemma3_text", R"("attn_logit_softcapping": 5.0)").find("soft cap") != std::string::npos);

  const std::string experts =
      R"("num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16, "num_key_value_heads": 2, "rotary_dim": 8)";
  CHECK(spec_of(small("minimax_m2", experts)).rope.rotary_dim == 8);
  CHECK(problems("minimax_m2", experts + R"(, "partial_rotary_factor": 0.5)").empty());
  CHECK(problems("minimax_m2", experts + R"(, "partial_rotary_factor": 0.25)").find("4 dim") != std::string::npos);

  const std::string both = R"("original_max_position_embeddings": 32, "num_key_value_heads": 2, "num_local_experts": 4,
      "num_experts_per_tok": 2, "max_position_embeddings": 64, "rope_scaling": {"type": "longrope", "short_factor":
      [1,1,1,1,1,1,1,1], "long_factor": [2,2,2,2,2,2,2,2], "original_max_position_embeddings": 16})";
  CHECK(spec_of(small("phimoe", both)).rope.original_max_positions == 16);
  CHECK(spec_of(small("phi3", both)).rope.original_max_positions == 32);

  const auto gemma = [](const std::string& word) { return spec_of(small("gemma", R"("hidden_act": ")" + word + '"')); };
  CHECK(gemma("gelu").activation == Activation::kGeluTanh);
  CHECK(gemma("relu").activation == Activation::kRelu);
  for (const std::string type : {"qwen3_next", "qwen3_5_text", "mamba2", "bamba"}) {
    CAPTURE(type);
    CHECK(problems(type, R"("hidden_act": "gelu")").find("'hidden_act' is 'gelu'") != std::string::npos);
    CHECK(problems(type, R"("hidden_act": "swish")").find("'hidden_act'") == std::string::npos);
  }
}

TEST_CASE("RoPE settings are read in the formats of transformers 4 and 5", "[arch]") {
  const auto rope = [](const std::string& more) { return spec_of(small("llama", more)).rope; };
  CHECK(rope("").theta == 10000);
  CHECK(rope("").rotary_dim == 16);
  CHECK(rope(R"("rope_theta": 5e5)").theta == 5e5);
  CHECK(rope(R"("rope_theta": 1, "rope_parameters": {"rope_theta": 7.0})").theta == 7);
  CHECK(spec_of(small("phi3", R"("partial_rotary_factor": 0.25)")).rope.rotary_dim == 4);
  const auto linear =
      rope(R"("rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": {"rope_type": "yarn"})");
  CHECK(linear.kind == RopeKind::kLinear);
  CHECK(linear.factor == 2);
  const auto llama3 = rope(R"("max_position_embeddings": 4096, "rope_scaling": {"rope_type": "llama3", "factor": 8,
      "low_freq_factor": 1, "high_freq_factor": 4})");
  CHECK(llama3.original_max_positions == 4096);
  const auto yarn = rope(R"("rope_parameters": {"rope_type": "yarn", "factor": 4.0, "mscale": 0, "beta_fast": null,
      "original_max_position_embeddings": 128})");
  CHECK(yarn.beta_fast == 32);
  CHECK_FALSE(yarn.mscale);
  CHECK(yarn.original_max_positions == 128);
  CHECK(rope(R"("rope_scaling": null)").kind == RopeKind::kDefault);

  const auto longrope =
      spec_of(small("phi3", R"("max_position_embeddings": 1024, "original_max_position_embeddings": 256,
      "rope_scaling": {"type": "su", "short_factor": [1,1,1,1,1,1,1,1], "long_factor": [2,2,2,2,2,2,2,2],
                       "original_max_position_embeddings": 77})"))
          .rope;
  CHECK(longrope.kind == RopeKind::kLongRope);
  CHECK(longrope.factor == 4);
  CHECK(longrope.original_max_positions == 256);
  const auto short_list = parse_hf_config(
      small("phi3", R"("rope_scaling": {"type": "longrope", "short_factor": [1], "long_factor": [1]})"), "c.json");
  CHECK(ids(short_list.errors) == Ids{"bad-value", "bad-value"});
  CHECK(parse_hf_config(small("llama", R"("rope_scaling": {"rope_type": "yarm", "factor": 2})"), "c").errors[0].help ==
        "did you mean 'yarn'?");
}

TEST_CASE("full or sliding-window attention per layer follows layer_types, else the family's rule", "[arch]") {
  CHECK(sliding_layers(spec_of(small("llama"))) == "ffffffffffff");
  CHECK(sliding_layers(spec_of(small("mistral", R"("sliding_window": 8)"))) == "ssssssssssss");
  CHECK(sliding_layers(spec_of(small("mistral", R"("sliding_window": null)"))) == "ffffffffffff");
  CHECK(sliding_layers(spec_of(small("phi3"))) == "ffffffffffff");
  CHECK(sliding_layers(spec_of(small("gemma2"))) == "sfsfsfsfsfsf");
  CHECK(sliding_layers(spec_of(small("gemma3_text"))) == "sssssfsssssf");
  CHECK(sliding_layers(spec_of(small("gemma3_text", R"("sliding_window_pattern": 3)"))) == "ssfssfssfssf");
  CHECK(sliding_layers(spec_of(small("qwen2", R"("max_window_layers": 10)"))) == "ffffffffffff");
  CHECK(sliding_layers(spec_of(small("qwen2", R"("max_window_layers": 10, "use_sliding_window": true)"))) ==
        "ffffffffffss");
  const auto listed = parse_hf_config(small("gemma2", R"("layer_types": ["full_attention"])"), "c.json");
  CHECK(ids(listed.errors) == Ids{"bad-value"});
}

TEST_CASE("a null key differs from an absent one where transformers distinguishes them", "[arch]") {
  CHECK(spec_of(small("gemma2")).logit_softcap == 30);
  CHECK(spec_of(small("gemma2", R"("final_logit_softcapping": null)")).logit_softcap == 0);
  CHECK(spec_of(small("gemma2")).tied_embeddings);
  CHECK_FALSE(spec_of(small("qwen3")).tied_embeddings);
  CHECK(spec_of(small("qwen3")).head_dim == 128);
  CHECK(spec_of(small("llama", R"("num_key_value_heads": null)")).kv_heads == 4);
  CHECK(spec_of(small("llama", R"("torch_dtype": "bfloat16", "eos_token_id": [4, 5], "pad_token_id": -1)")).dtype ==
        DType::kBFloat16);
}

TEST_CASE("MoE layers are read from the config, and impossible expert settings are refused", "[arch]") {
  const std::string experts = R"("num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 16)";
  const auto moe_layers = [](const ModelSpec& spec) {
    std::string out;
    for (const bool moe : spec.moe_layers) out += moe ? 'm' : 'd';
    return out;
  };
  CHECK(moe_layers(spec_of(small("qwen3_moe", experts))) == "mmmmmmmmmmmm");
  CHECK(moe_layers(spec_of(small("qwen3_moe", experts + R"(, "decoder_sparse_step": 2, "mlp_only_layers": [3])"))) ==
        "dmdddmdmdmdm");
  const auto too_many = parse_hf_config(
      small("mixtral", R"("num_local_experts": 2, "num_experts_per_tok": 3, "router_jitter_noise": 0.1)"), "c.json");
  CHECK(ids(too_many.errors) == Ids{"bad-value", "bad-value"});
  const auto layer = parse_hf_config(small("qwen3_moe", experts + R"(, "mlp_only_layers": [12])"), "c.json");
  CHECK(layer.errors[0].help == "the layers are 0 to 11");
}

TEST_CASE("any value under any key gives either a model or errors, never an exception", "[arch][property]") {
  const std::vector<nlohmann::json> values = {nullptr,
                                              "x",
                                              "",
                                              -1,
                                              0,
                                              1,
                                              7,
                                              1e30,
                                              -0.5,
                                              true,
                                              nlohmann::json::array(),
                                              {1, 2},
                                              {"a"},
                                              nlohmann::json::object(),
                                              {{"rope_type", "yarn"}}};
  std::size_t accepted = 0;
  std::size_t refused = 0;
  const auto try_config = [&](const nlohmann::json& config) {
    const auto text = config.dump();
    CAPTURE(text);
    const auto parsed = parse_hf_config(text, "c.json");
    CHECK(parsed.spec.has_value() == parsed.errors.empty());
    if (!parsed.spec) {
      ++refused;
      return;
    }
    ++accepted;
    CHECK(count_parameters(*parsed.spec).total() > 0);
    CHECK(parsed.spec->attention.size() == static_cast<std::size_t>(parsed.spec->layers));
  };
  for (const auto& row : golden::load("arch/hf_models.json")) {
    for (const auto& [key, value] : row["config"].items())
      for (const auto& other : values) {
        auto config = row["config"];
        config[key] = other;
        try_config(config);
        if (!value.is_object()) continue;
        for (const auto& [inner, ignored] : value.items()) {
          auto nested = row["config"];
          nested[key][inner] = other;
          try_config(nested);
        }
      }
  }
  CHECK(accepted > 1000);
  CHECK(refused > 1000);
}

TEST_CASE("every model family is found by its type and has a description and an architecture", "[arch]") {
  for (const Family* family : families()) {
    CHECK(find_family(family->model_type) == family);
    CHECK_FALSE(family->doc.empty());
    CHECK_FALSE(family->architecture.empty());
  }
  CHECK(find_family("gemma3") == nullptr);
}

}  // namespace automodel::arch
