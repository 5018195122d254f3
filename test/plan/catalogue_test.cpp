#include "plan/catalogue.h"

#include <algorithm>
#include <map>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "arch/counts.h"
#include "arch/families.h"
#include "arch/hf_config.h"
#include "estimate/estimated_plan.h"
#include "plan/communicators.h"
#include "temporary_folder.h"

namespace automodel::plan {

TEST_CASE("every model of the catalogue has a unique name and a valid configuration", "[plan]") {
  const auto names = catalogue_names();
  CHECK(names.size() > 100);
  for (const auto name : names) {
    CAPTURE(name);
    const auto text = find_in_catalogue(name);
    REQUIRE(text);
    const auto parsed = arch::parse_hf_config(*text, "catalogue", {});
    INFO(to_text(parsed.errors));
    REQUIRE(parsed.spec);
    CHECK(std::count(names.begin(), names.end(), name) == 1);
  }
}

namespace {
/// Elements of the decoder, and of the tower and the projector beside it.
std::int64_t total_of(const arch::HfConfig& model) {
  std::int64_t out = arch::count_parameters(*model.spec).total();
  for (const auto& parameter : arch::layout_of(*model.spec).tower_parameters) out += parameter.shape.elements();
  if (!model.spec->vision)
    for (const auto& tower : model.towers) out += tower.parameters.value_or(0);
  return out;
}
}  // namespace

TEST_CASE("parameter counts of catalogue models equal the published ones", "[plan]") {
  struct Known {
    const char* name;
    std::int64_t parameters;
  };
  // Totals of the published safetensors; of Qwen3-VL and later of transformers' class, which agree where both are
  // known.
  for (const auto& [name, parameters] : {
           Known{"meta-llama/Llama-2-7b-hf", 6738415616},
           Known{"meta-llama/Llama-3.1-8B", 8030261248},
           Known{"meta-llama/Llama-3.3-70B-Instruct", 70553706496},
           Known{"meta-llama/Llama-3.1-405B", 405853388800},
           Known{"meta-llama/Llama-3.2-1B", 1235814400},
           Known{"meta-llama/Llama-3.2-3B", 3212749824},
           Known{"Qwen/Qwen2.5-0.5B", 494032768},
           Known{"Qwen/Qwen2.5-7B", 7615616512},
           Known{"Qwen/Qwen2.5-32B-Instruct", 32763876352},
           Known{"Qwen/Qwen2.5-72B", 72706203648},
           Known{"Qwen/Qwen3-0.6B", 596049920},
           Known{"Qwen/Qwen3-8B", 8190735360},
           Known{"Qwen/Qwen3-32B", 32762123264},
           Known{"Qwen/Qwen3-30B-A3B", 30532122624},
           Known{"Qwen/Qwen3-235B-A22B", 235093634560},
           Known{"mistralai/Mistral-7B-v0.1", 7241732096},
           Known{"mistralai/Mistral-Nemo-Base-2407", 12247782400},
           Known{"mistralai/Mixtral-8x7B-v0.1", 46702792704},
           Known{"google/gemma-2-2b", 2614341888},
           Known{"google/gemma-2-9b", 9241705984},
           Known{"google/gemma-3-270m", 268098176},
           Known{"google/gemma-3-1b-it", 999885952},
           Known{"google/gemma-3-4b-pt", 4300079472},
           Known{"google/gemma-3-12b-it", 12187325040},
           Known{"google/gemma-3-27b-it", 27432406640},
           Known{"HuggingFaceTB/SmolLM2-135M", 134515008},
           Known{"HuggingFaceTB/SmolLM2-360M", 361821120},
           Known{"HuggingFaceTB/SmolLM2-1.7B", 1711376384},
           Known{"mistralai/Mistral-Small-24B-Base-2501", 23572403200},
           Known{"distilbert/distilgpt2", 81912576},
           Known{"openbmb/MiniCPM5-1B", 1080632832},
           Known{"microsoft/phi-4", 14659507200},
           Known{"microsoft/Phi-3-mini-4k-instruct", 3821079552},
           Known{"deepseek-ai/DeepSeek-V3", 671026419200},
           Known{"microsoft/phi-2", 2779683840},
           Known{"google/gemma-7b", 8537680896},
           Known{"bigcode/starcoder2-7b", 7173923840},
           Known{"zai-org/glm-4-9b-chat-hf", 9399951360},
           Known{"ibm-granite/granite-3.3-2b-instruct", 2533539840},
           Known{"allenai/OLMo-2-0425-1B-Instruct", 1484916736},
           Known{"ByteDance-Seed/Seed-OSS-36B-Instruct", 36151104512},
           Known{"tiiuae/Falcon-H1-7B-Instruct", 7585513568},
           Known{"nvidia/NVIDIA-Nemotron-Nano-9B-v2", 8888227328},
           Known{"nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 31577940288},
           Known{"Qwen/Qwen3-Next-80B-A3B-Instruct", 79674391296},  // without its multi-token-prediction layer
           Known{"Qwen/Qwen1.5-MoE-A2.7B", 14315784192},
           Known{"MiniMaxAI/MiniMax-M2.5", 228689764864},
           Known{"nvidia/Llama-3_3-Nemotron-Super-49B-v1", 49867145216},
           Known{"Qwen/Qwen2.5-VL-3B-Instruct", 3754622976},
           Known{"Qwen/Qwen3-VL-4B-Thinking", 4437815808},
           Known{"Qwen/Qwen3-VL-8B-Instruct", 8767123696},
           Known{"Qwen/Qwen3-VL-30B-A3B-Instruct", 31070754032},
           Known{"Qwen/Qwen3-VL-235B-A22B-Instruct", 235670022896},
           Known{"Qwen/Qwen2.5-VL-7B-Instruct", 8292166656},
           Known{"Qwen/Qwen2.5-VL-32B-Instruct", 33452718336},
           Known{"Qwen/Qwen2.5-VL-72B-Instruct", 73410777344},
           Known{"Qwen/Qwen3-VL-2B-Instruct", 2127532032},
           Known{"deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", 1777088000},
           Known{"deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", 7615616512},
           Known{"deepseek-ai/DeepSeek-R1-Distill-Qwen-14B", 14770033664},
           Known{"deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", 32763876352},
           Known{"Qwen/Qwen3-Coder-30B-A3B-Instruct", 30532122624},
           Known{"Qwen/Qwen3-Coder-480B-A35B-Instruct", 480154875392},
           Known{"mistralai/Codestral-22B-v0.1", 22247282688},
           Known{"mistralai/Mistral-Large-Instruct-2407", 122610069504},
           Known{"mistralai/Mistral-Small-3.1-24B-Base-2503", 24011361280},
           Known{"01-ai/Yi-6B", 6061035520},
           Known{"01-ai/Yi-34B", 34388917248},
           Known{"01-ai/Yi-1.5-9B", 8829407232},
           Known{"codellama/CodeLlama-7b-hf", 6738546688},
           Known{"codellama/CodeLlama-13b-hf", 13016028160},
           Known{"codellama/CodeLlama-34b-hf", 33743970304},
           Known{"deepseek-ai/deepseek-coder-6.7b-base", 6740512768},
           Known{"allenai/OLMo-2-1124-7B", 7298617344},
           Known{"allenai/OLMo-2-1124-13B", 13716198400},
           Known{"allenai/OLMo-2-0325-32B", 32234279936},
           Known{"allenai/OLMoE-1B-7B-0924", 6919161856},
           Known{"HuggingFaceTB/SmolLM3-3B", 3075098624},
           Known{"bigcode/starcoder2-15b", 15957889024},
           Known{"deepseek-ai/DeepSeek-V2-Lite", 15706484224},
           Known{"deepseek-ai/DeepSeek-V2", 235741434880},
           Known{"EleutherAI/pythia-70m", 70426624},
           Known{"EleutherAI/pythia-160m", 162322944},
           Known{"EleutherAI/pythia-410m", 405334016},
           Known{"EleutherAI/pythia-1b", 1011781632},
           Known{"EleutherAI/pythia-1.4b", 1414647808},
           Known{"EleutherAI/pythia-2.8b", 2775208960},
           Known{"EleutherAI/pythia-6.9b", 6857302016},
           Known{"EleutherAI/pythia-12b", 11846072320},
           Known{"EleutherAI/gpt-neox-20b", 20554567680},
           // Without their multi-token-prediction layer.
           Known{"Qwen/Qwen3.5-4B", 4539265536},
           Known{"Qwen/Qwen3.5-9B", 9409813744},
           Known{"Qwen/Qwen3.6-27B", 27356728560},
           Known{"Qwen/Qwen3.8-27B", 27356728560},
           Known{"Qwen/Qwen3.6-35B-A3B", 35107181936},
           Known{"Qwen/Qwen3.5-122B-A10B", 122562817776},
           Known{"Qwen/Qwen3.5-397B-A17B", 396802360816},
           Known{"mistralai/Ministral-3-3B-Reasoning-2512", 3849090048},
           Known{"mistralai/Ministral-3-8B-Reasoning-2512", 8918026240},
           Known{"mistralai/Ministral-3-14B-Reasoning-2512", 13945031680},
           Known{"mistralai/Mistral-Medium-3.5-128B", 127704210176},
           Known{"meta-models/Muse-Glimmer-30B", 29776626688},
           Known{"MiniMaxAI/MiniMax-M3", 427040140160},
       }) {
    CAPTURE(name);
    const auto parsed = arch::parse_hf_config(*find_in_catalogue(name), "catalogue", {});
    REQUIRE(parsed.spec);
    CHECK(total_of(parsed) == parameters);
  }
}

TEST_CASE("decoders of Gemma 4 have as many elements as the published files for llama.cpp", "[plan]") {
  constexpr std::int64_t kFrequencies = 256;  // of RoPE, which those files store
  for (const auto& [name, elements] : std::map<std::string, std::int64_t>{{"google/gemma-4-E2B-it", 4628569635},
                                                                          {"google/gemma-4-26B-A4B-it", 25233142046},
                                                                          {"google/gemma-4-31B-it", 30697345596}}) {
    CAPTURE(name);
    const auto parsed = arch::parse_hf_config(*find_in_catalogue(name), "catalogue", {});
    REQUIRE(parsed.spec);
    CHECK(arch::count_parameters(*parsed.spec).total() == elements - kFrequencies);
  }
}

TEST_CASE("catalogue models without an exact published total have about the published parameter count", "[plan]") {
  struct About {
    const char* name;
    double billions;
    bool trained;
  };
  for (const auto& [name, billions, trained] : {
           About{"nvidia/NVIDIA-Nemotron-3-Nano-4B-BF16", 3.97, true},
           About{"nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16", 120.7, true},
           About{"nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", 550, true},
           About{"nvidia/Llama-3_3-Nemotron-Super-49B-v1_5", 49.9, true},
           About{"Qwen/Qwen3-VL-32B-Instruct", 33.4, true},
           About{"mistralai/Devstral-Small-2-24B-Instruct-2512", 24, true},
           About{"mistralai/Devstral-2-123B-Instruct-2512", 123, true},
           About{"inclusionAI/Ling-mini-2.0", 16.3, true},
           About{"inclusionAI/Ling-flash-2.0", 103, true},
           About{"inclusionAI/Ling-1T", 1000, true},
           About{"deepseek-ai/DeepSeek-V3.2", 671, true},
           About{"deepseek-ai/DeepSeek-V4-Flash", 284, true},
           About{"deepseek-ai/DeepSeek-V4-Pro", 1600, true},
           About{"zai-org/GLM-5.2", 744, true},
           About{"tencent/Hy-MT2-30B-A3B", 30, true},
           About{"tencent/Hy3-preview", 295, true},
           About{"XiaomiMiMo/MiMo-V2-Flash", 309, true},
           About{"stepfun-ai/Step-3.5-Flash", 196, true},
           About{"mistralai/Mistral-Small-4-119B-2603", 119, true},
           About{"baichuan-inc/Baichuan2-7B-Chat", 7.5, true},
           About{"CohereLabs/North-Micro-Vision-Instruct", 2.5, false},
           About{"MiniMaxAI/MiniMax-M3", 427, true},
           About{"moonshotai/Kimi-VL-A3B-Instruct", 16, false},
           About{"moonshotai/Kimi-K2.5", 1000, false},
           About{"Qwen/Qwen3-Omni-30B-A3B-Instruct", 31, false},  // the thinker, without its audio encoder
           About{"stepfun-ai/Step-3.7-Flash", 198, true},
           About{"thinkingmachines/Inkling", 975, false},                           // without its tower, as the next
           About{"nvidia/Nemotron-3-Nano-Omni-30B-A3B-Reasoning-BF16", 31, false},  // without its encoders
       }) {
    CAPTURE(name);
    const auto parsed = arch::parse_hf_config(*find_in_catalogue(name), "catalogue", {});
    REQUIRE(parsed.spec);
    CHECK(parsed.spec->plan_only.empty() == trained);
    CHECK(static_cast<double>(total_of(parsed)) == Approx(billions * 1e9).epsilon(0.03));
  }
}

TEST_CASE("towers of models that are only planned have as many elements as transformers' classes", "[plan]") {
  using Elements = std::vector<std::int64_t>;
  for (const auto& [name, elements] : std::map<std::string, Elements>{
           {"moonshotai/Kimi-K2.5", {416866032, 54277888}}, {"CohereLabs/North-Micro-Vision-Instruct", {538631408}}}) {
    CAPTURE(name);
    const auto parsed = arch::parse_hf_config(*find_in_catalogue(name), "catalogue", {});
    Elements found;
    for (const auto& tower : parsed.towers) found.push_back(tower.parameters.value_or(0));
    CHECK(found == elements);
  }
}

TEST_CASE("a model name close to one in the catalogue gets that one as a suggestion", "[plan]") {
  const auto help = [](const std::string& name) {
    const auto loaded = config::read_recipe(
        "model: {pretrained_model_name_or_path: " + name + "}\ndataset: {_target_: mock, seq_length: 64}\n",
        "recipe.yaml", {}, {});
    const auto result = estimate::make_plan(loaded, {});
    REQUIRE(result.plan);
    REQUIRE(result.plan->warnings.size() == 1);
    return result.plan->warnings[0].help;
  };
  CHECK(help("meta-llama/Llama-3.1-8b").starts_with("did you mean 'meta-llama/Llama-3.1-8B'? otherwise give"));
  CHECK(help("someone/some-model").starts_with("give"));
}

TEST_CASE("an unknown model is planned without stages and refused for training", "[plan]") {
  const auto loaded = config::read_recipe(
      "model: {pretrained_model_name_or_path: someone/some-model}\ndataset: {_target_: mock, seq_length: 64}\n"
      "distributed: {pp_size: 4, pipeline: {pp_schedule: 1F1B}}\n"
      "step_scheduler: {global_batch_size: 8, local_batch_size: 8}\n",
      "recipe.yaml", {}, {});
  REQUIRE(loaded.problems.empty());
  const auto result = estimate::make_plan(loaded, {});
  REQUIRE(result.plan);
  REQUIRE(result.plan->warnings.size() == 1);
  CHECK(result.plan->warnings[0].id == "model-unknown");
  CHECK(result.plan->warnings[0].help.find("--model.config PATH") != std::string::npos);
  REQUIRE(result.plan->pipeline);
  CHECK(result.plan->pipeline->schedule.proof.ok());
  CHECK(result.plan->pipeline->stages.empty());
  CHECK(traffic_of(*result.plan, Channel::kPipeline).ring);
  const auto training = estimate::make_plan(loaded, {.training = true});
  REQUIRE_FALSE(training.plan);
  CHECK(training.problems[0].id == "model-not-found");
}

namespace {
constexpr std::string_view kMock = "dataset: {_target_: mock, vocab_size: 64, seq_length: 64}\n";
constexpr std::string_view kWithBias =
    "model_type: deepseek_v3, hidden_size: 64, intermediate_size: 64, num_hidden_layers: 2, num_attention_heads: 4, "
    "vocab_size: 64, n_routed_experts: 4, num_experts_per_tok: 2, n_group: 1, topk_group: 1, moe_intermediate_size: "
    "16, "
    "first_k_dense_replace: 0, q_lora_rank: 16, kv_lora_rank: 16, qk_nope_head_dim: 8, qk_rope_head_dim: 4, "
    "v_head_dim: 8";
constexpr std::string_view kDense =
    "model_type: llama, hidden_size: 64, intermediate_size: 64, num_hidden_layers: 2, num_attention_heads: 4, "
    "vocab_size: 64";

estimate::PlanResult planned(const std::string& text) {
  const auto loaded = config::read_recipe(text + std::string(kMock), "recipe.yaml", {}, {});
  INFO(to_text(loaded.problems));
  REQUIRE(loaded.problems.empty());
  return estimate::make_plan(loaded, {});
}
}  // namespace

TEST_CASE("a configuration class that transformers lacks provides its defaults", "[plan]") {
  const auto result = planned(
      "model: {_target_: nemo_automodel.NeMoAutoModelForCausalLM.from_config, config: {_target_: "
      "nemo_automodel.components.models.deepseek_v4.config.DeepseekV4Config, num_hidden_layers: 7}}\n");
  REQUIRE(result.plan);
  CHECK(result.plan->model->spec.hidden == 4096);
  CHECK(result.plan->model->spec.layers == 7);
  CHECK(result.plan->model->spec.rope.kind == arch::RopeKind::kDefault);  // YaRN is the published model's
  CHECK(result.plan->model->spec.compressed->rates == std::vector<int>{128, 128, 128, 4, 128, 4, 128});
}

TEST_CASE("text_config replaces keys of the decoder where they are", "[plan]") {
  test::TemporaryFolder folder;
  const std::string sizes =
      R"("hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 64)";
  const std::string vision = R"("vision_config": {"depth": 2})";
  folder.write("nested/config.json", R"({"model_type": "qwen3_vl", )" + vision +
                                         R"(, "text_config": {"model_type": "qwen3_vl_text", )" + sizes + "}}");
  folder.write("flat/config.json", R"({"model_type": "qwen2_5_vl", )" + vision + ", " + sizes + "}");
  folder.write("both/config.json", R"({"model_type": "qwen2_5_vl", )" + vision + ", " + sizes +
                                       R"(, "text_config": {"num_hidden_layers": 4}})");
  folder.write("text/config.json", R"({"model_type": "llama", )" + sizes + "}");
  const auto model = [&](const std::string& name, const std::string& keys) {
    return planned(
        fmt::format("model: {{pretrained_model_name_or_path: {}, {}}}\n", (folder.path() / name).native(), keys));
  };
  for (const std::string name : {"nested", "flat", "both"}) {
    CAPTURE(name);
    auto result = model(name, "text_config: {num_hidden_layers: 2, use_cache: false, num_mtp_modules: 1}");
    INFO(to_text(result.problems));
    REQUIRE(result.plan);
    CHECK(result.plan->model->spec.layers == 2);
    CHECK(result.plan->model->spec.hidden == 64);
    CHECK(result.plan->model->config_text.find(R"("num_hidden_layers": 4)") == std::string::npos);
    CHECK(result.plan->model->config_text.find("use_cache") == std::string::npos);
    result =
        planned(fmt::format("model: {{config: {{_target_: transformers.AutoConfig.from_pretrained, "
                            "pretrained_model_name_or_path: {}, text_config: {{num_hidden_layers: 3}}}}}}\n",
                            (folder.path() / name).native()));
    REQUIRE(result.plan);
    CHECK(result.plan->model->spec.layers == 3);
  }
  CHECK(model("text", "text_config: {use_cache: false}").plan);
  const auto one = [](const estimate::PlanResult& result) {
    REQUIRE(result.problems.size() == 1);
    CHECK(result.problems[0].id == "unknown-key");
    return result.problems[0].key + ": " + result.problems[0].help;
  };
  CHECK(one(model("text", "text_config: {num_hidden_layers: 2}")) == "model.text_config: write its keys under model");
  CHECK(one(model("nested", "num_hidden_layers: 2")) ==
        "model.num_hidden_layers: write model.text_config.num_hidden_layers");
  CHECK(model("flat", "num_hidden_layers: 2").plan->model->spec.layers == 2);
  // RoPE: what would change nothing, or take away more than it says.
  const std::string rope = R"({"rope_type": "llama3", "rope_theta": 500000, "factor": 8})";
  folder.write("rope/config.json", R"({"model_type": "llama", )" + sizes + R"(, "rope_parameters": )" + rope + "}");
  folder.write("old/config.json", R"({"model_type": "llama", "rope_theta": 500000, )" + sizes + "}");
  const auto refused = [&](const std::string& name, const std::string& keys) {
    std::string out;
    for (const auto& problem : model(name, keys).problems) out += problem.key + ": " + problem.help + "\n";
    return out;
  };
  CHECK(refused("rope", "rope_theta: 100").starts_with("model.rope_theta: write model.rope_parameters with all"));
  CHECK(refused("rope", "rope_scaling: {rope_type: linear, factor: 4}") ==
        "model.rope_scaling: write 'rope_theta: 500000' in rope_scaling, too\n");
  CHECK(refused("rope", "rope_parameters: {rope_theta: 100}") ==
        "model.rope_parameters: write 'rope_type: \"llama3\"' in rope_parameters, too\n");
  CHECK(refused("rope", "rope_parameters: {rope_type: default, rope_theta: 100}").empty());
  CHECK(refused("rope", "rope_theta: 100, rope_scaling: {type: linear, factor: 4}").empty());
  CHECK(model("old", "rope_theta: 100").plan->model->spec.rope.theta == 100);
  CHECK(refused("old", "rope_scaling: {rope_type: linear, factor: 4}").empty());
  // A model's own configuration class may set what is not its decoder's.
  const auto specific = [&](const std::string& keys) {
    return planned(
        fmt::format("model: {{config: {{_target_: transformers.Qwen3VLConfig.from_pretrained, "
                    "pretrained_model_name_or_path: {}, {}}}}}\n",
                    (folder.path() / "nested").native(), keys));
  };
  const auto made = specific("image_token_id: 7, text_config: {num_hidden_layers: 2, own_key: 1}");
  INFO(to_text(made.problems));
  REQUIRE(made.plan);
  CHECK(made.plan->model->spec.layers == 2);
  CHECK(made.plan->model->config_text.find(R"("image_token_id": 7)") != std::string::npos);
  CHECK(one(specific("num_attention_heads: 2")) ==
        "model.config.num_attention_heads: write model.config.text_config.num_attention_heads");
  folder.write("nested/config.json", R"({"model_type": "qwen3_vl", )" + vision +
                                         R"(, "text_config": {"model_type": "qwen3_vl_text", "own_key": 1, )" + sizes +
                                         "}}");
  CHECK(one(specific("own_key: 2")) == "model.config.own_key: write model.config.text_config.own_key");
}

TEST_CASE("layers of multi-token prediction are set like other keys of the decoder", "[plan]") {
  test::TemporaryFolder folder;
  const std::string decoder =
      R"("model_type": "glm4_moe", "hidden_size": 64, "intermediate_size": 64, "moe_intermediate_size": 64, )"
      R"("num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 64, )"
      R"("n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "first_k_dense_replace": 1, )"
      R"("max_position_embeddings": 64)";
  folder.write("flat/config.json", "{" + decoder + "}");
  folder.write("nested/config.json",
               R"({"model_type": "some_vl", "vision_config": {"depth": 2}, "text_config": {)" + decoder + "}}");
  const auto layers = [&](const std::string& name, const std::string& keys) {
    const auto result = planned(
        fmt::format("model: {{pretrained_model_name_or_path: {}, {}}}\n", (folder.path() / name).native(), keys));
    INFO(to_text(result.problems));
    REQUIRE(result.plan);
    CHECK(result.plan->ignored.empty());
    return result.plan->model->spec.mtp_layers;
  };
  CHECK(layers("flat", "num_nextn_predict_layers: 2") == 2);
  CHECK(layers("nested", "text_config: {num_nextn_predict_layers: 2}") == 2);
  CHECK(layers("nested", "num_nextn_predict_layers: 2") == 2);  // as an argument of NeMo AutoModel's classes
}

TEST_CASE("adapters on modules with unknown names are planned with a warning", "[plan]") {
  const auto result =
      planned("model: {pretrained_model_name_or_path: thinkingmachines/Inkling}\npeft: {target_modules: ['*wq_a']}\n");
  REQUIRE(result.plan);
  CHECK(result.plan->adapters->elements == 0);
  CHECK(std::any_of(result.plan->warnings.begin(), result.plan->warnings.end(),
                    [](const auto& each) { return each.key == "peft.target_modules"; }));
}

TEST_CASE("patterns that exclude a tower whose modules are unknown are not said to match nothing", "[plan]") {
  for (const auto& [model, warned] : {std::pair("moonshotai/Kimi-K2.5", false), std::pair("Qwen/Qwen3-8B", true)}) {
    const auto result = planned(fmt::format(
        "model: {{pretrained_model_name_or_path: {}}}\npeft: {{exclude_modules: ['*vision*', lm_head]}}\n", model));
    REQUIRE(result.plan);
    CHECK(std::any_of(result.plan->warnings.begin(), result.plan->warnings.end(),
                      [](const auto& each) { return each.key == "peft.exclude_modules"; }) == warned);
  }
}

TEST_CASE("an encoder-decoder model class is refused", "[plan]") {
  const auto result = planned(
      "model: {_target_: nemo_automodel.NeMoAutoModelForSeq2SeqLM.from_pretrained, pretrained_model_name_or_path: "
      "google-t5/t5-small}\n");
  REQUIRE(result.problems.size() == 1);
  CHECK(result.problems[0].id == "unsupported-model");
  CHECK(result.problems[0].key == "model._target_");
}

TEST_CASE("gate_bias_update_factor is refused for models without trained router biases", "[plan]") {
  const auto recipe = [](std::string_view model, std::string_view rest) {
    return fmt::format("model: {{config: {{{}}}, moe_overrides: {{gate_bias_update_factor: 0.001}}}}\n{}", model, rest);
  };
  const auto moved = planned(recipe(kWithBias, ""));
  REQUIRE(moved.plan);
  CHECK(moved.plan->execution.experts.router_bias_step == 0.001);
  for (const auto& text : {recipe(kDense, ""), recipe(kWithBias, "peft: {dim: 4}\n")}) {
    const auto result = planned(text);
    REQUIRE(result.problems.size() == 1);
    CHECK(result.problems[0].id == "router-bias");
    CHECK(result.problems[0].key == "model.moe_overrides.gate_bias_update_factor");
  }
  const auto still = planned(fmt::format("model: {{config: {{{}}}}}\n", kWithBias));
  REQUIRE(still.plan);
  CHECK(still.plan->execution.experts.router_bias_step == 0);
}

TEST_CASE("dion.Muon is refused for models with experts", "[plan]") {
  const auto recipe = [](std::string_view model) {
    return fmt::format("model: {{config: {{{}}}}}\noptimizer: {{_target_: dion.Muon, lr: 1.0e-4}}\n", model);
  };
  CHECK(planned(recipe(kDense)).plan);
  const auto result = planned(recipe(kWithBias));
  REQUIRE(result.problems.size() == 1);
  CHECK(result.problems[0].id == "unsupported-option");
}

TEST_CASE("a recipe with unsupported parts can be planned but not trained", "[plan]") {
  const auto loaded = config::read_recipe(
      "model: {pretrained_model_name_or_path: meta-llama/Llama-3.2-1B}\n"
      "dataset: {_target_: nemo_automodel.components.datasets.llm.seq2seq.make_seq2seq_dataset, split: train}\n"
      "packed_sequence: {packed_sequence_size: 2048}\nqat: {enabled: true}\nfp8: {enabled: "
      "false}\n_part: &part {a: 1}\n",
      "recipe.yaml", {}, {});
  INFO(to_text(loaded.problems));
  REQUIRE(loaded.problems.empty());
  const auto result = estimate::make_plan(loaded, {});
  REQUIRE(result.plan);
  CHECK(result.plan->batch.length == 2048);
  std::vector<std::string> keys;
  for (const auto& each : result.plan->unsupported) keys.push_back(each.key);
  std::sort(keys.begin(), keys.end());
  CHECK(keys == std::vector<std::string>{"dataset", "qat"});
  const auto training = estimate::make_plan(loaded, {.training = true});
  REQUIRE_FALSE(training.plan);
}

TEST_CASE("Hugging Face cache keys beside an inline configuration give a warning", "[plan]") {
  const auto warned = [](const std::string& model) {
    const auto loaded = config::read_recipe("model: {" + model + "}\n", "recipe.yaml", {}, {});
    REQUIRE(loaded.problems.empty());
    std::vector<std::string> out;
    for (const auto& each : estimate::make_plan(loaded, {}).warnings)
      if (each.id == "no-effect") out.push_back(each.key);
    return out;
  };
  const std::string keys = ", revision: main, cache_dir: cache";
  const std::string inline_config =
      "config: {model_type: llama, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 2, "
      "num_attention_heads: 8, num_key_value_heads: 2, vocab_size: 256, max_position_embeddings: 128}";
  CHECK(warned(inline_config).empty());
  CHECK(warned(inline_config + keys) == std::vector<std::string>{"model.revision", "model.cache_dir"});
  CHECK(warned("pretrained_model_name_or_path: meta-llama/Llama-3.2-1B" + keys).empty());
}

}  // namespace automodel::plan
