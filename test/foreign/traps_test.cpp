// What a converter could get wrong silently, and files of strangers.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "arch/modules.h"
#include "foreign/conversion.h"
#include "planned.h"
#include "temporary_folder.h"

namespace automodel::foreign {
namespace {

using nlohmann::json;

std::optional<std::string> no_variable(const std::string& /*name*/) {
  return {};
}

/// Converts a file of this name and text.
Conversion convert_text(const std::string& format, const std::string& name, const std::string& text,
                        Request request = {.world_size = 8}) {
  const test::TemporaryFolder folder;
  request.files = {{format, folder.write(name, text).string()}};
  if (!request.environment) request.environment = no_variable;
  return convert(request);
}

bool says(const std::vector<Finding>& findings, const std::string& key) {
  return std::ranges::any_of(findings, [&](const Finding& each) { return each.key.find(key) != std::string::npos; });
}

std::string ids(const Diagnostics& problems) {
  std::string out;
  for (const auto& each : problems) out += std::string(each.id) + " ";
  return out;
}

/// Bytes of weights, gradients and optimizer states per trained parameter, on one rank.
double bytes_per_parameter(const Conversion& made) {
  INFO(to_text(made.problems));
  REQUIRE(made.problems.empty());
  const auto plan = test::planned(made.recipe + "  profile: h100\n", {.world_size = 1, .cuda_available = true});
  const auto& memory = plan.estimate->memory.ranks[0].most();
  return (memory.weights + memory.gradients + memory.optimizer) / 494032768.0;  // of Qwen2.5-0.5B
}

constexpr const char* kAxolotl =
    "base_model: Qwen/Qwen2.5-0.5B\nmicro_batch_size: 1\nlearning_rate: 2e-5\nsequence_len: 128\n";
constexpr const char* kTrl =
    "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: x\nper_device_train_batch_size: 1\nmax_length: 128\n";

}  // namespace

TEST_CASE("LLaMA-Factory leaves towers and projectors of models with pictures as they are", "[foreign]") {
  const auto trained = [](const std::string& model, const std::string& more) {
    const auto made = convert_text("llamafactory", "l.yaml",
                                   "stage: sft\nfinetuning_type: full\nbf16: true\ncutoff_len: 128\n"
                                   "per_device_train_batch_size: 1\nmodel_name_or_path: " +
                                       model + "\n" + more,
                                   {.world_size = 1});
    INFO(to_text(made.problems));
    REQUIRE(made.problems.empty());
    INFO(made.recipe);
    const auto plan = test::planned(made.recipe + "  profile: h100\n", {.world_size = 1, .cuda_available = true});
    CHECK((!plan.features || !plan.features->cached));  // which is this program's alone
    std::int64_t tower = 0, projector = 0, decoder = 0;
    for (const auto& each : arch::parameters(plan.model->layout)) {
      if (plan.frozen && plan.frozen->names.contains(each.fqn)) continue;
      auto& sum = each.role != arch::Role::kTower ? decoder
                  : each.fqn.find("merger") != std::string::npos || each.fqn.find("projector") != std::string::npos
                      ? projector
                      : tower;
      sum += each.shape.elements();
    }
    return std::array{tower > 0, projector > 0, decoder > 0};
  };
  using Trained = std::array<bool, 3>;  // tower, projector, decoder
  for (const auto* model : {"Qwen/Qwen2.5-VL-3B-Instruct", "google/gemma-3-4b-it"}) {
    CAPTURE(model);
    CHECK(trained(model, "") == Trained{false, false, true});
    CHECK(trained(model, "freeze_multi_modal_projector: false\n") == Trained{false, true, true});
    CHECK(trained(model, "freeze_vision_tower: false\n") == Trained{true, false, true});
    CHECK(trained(model, "freeze_vision_tower: false\nfreeze_multi_modal_projector: false\n") ==
          Trained{true, true, true});
    CHECK(trained(model, "freeze_multi_modal_projector: false\nfreeze_language_model: true\n")[1]);
  }
  const auto text = convert_text("llamafactory", "l.yaml",
                                 "stage: sft\nfinetuning_type: full\nmodel_name_or_path: Qwen/Qwen2.5-0.5B\n"
                                 "freeze_vision_tower: true\n");
  CHECK(says(text.findings.ignored, "freeze_vision_tower"));
  CHECK(text.recipe.find("freeze_config") == std::string::npos);
  CHECK(convert_text("llamafactory", "l.yaml", "stage: sft\nfinetuning_type: full\n").recipe.find("freeze_config") ==
        std::string::npos);  // of no model
  const auto adapters = [](const std::string& more) {
    return convert_text("llamafactory", "l.yaml", "stage: sft\nfinetuning_type: lora\n" + more).recipe;
  };
  using Catch::Contains;
  CHECK_THAT(adapters("lora_target: all\nmodel_name_or_path: google/gemma-3-4b-it\n"),
             Contains("exclude_modules: ['*lm_head', '*model.vision_tower*', '*model.multi_modal_projector*']") &&
                 !Contains("freeze_config"));
  CHECK_THAT(adapters("lora_target: all\nfreeze_vision_tower: false\nmodel_name_or_path: google/gemma-3-4b-it\n"),
             Contains("exclude_modules: ['*lm_head', '*model.multi_modal_projector*']"));
  CHECK_THAT(adapters("lora_target: q_proj,v_proj\nmodel_name_or_path: google/gemma-3-4b-it\n"),
             Contains("freeze_vision_tower: true"));
  CHECK_THAT(adapters("lora_target: all\nmodel_name_or_path: Qwen/Qwen2.5-0.5B\n"),
             Contains("exclude_modules: ['*lm_head']"));
  const test::TemporaryFolder folder;  // of a model, known by its config.json
  const auto local = "lora_target: all\nmodel_name_or_path: " + folder.path().string() + "\n";
  folder.write("config.json", R"({"model_type": "qwen2_5_vl", "vision_config": {}})");
  CHECK_THAT(adapters(local), Contains("['*lm_head', '*model.visual*']"));
  CHECK_THAT(adapters(local + "freeze_vision_tower: false\n"), Contains("['*lm_head', '*model.visual.merger*']"));
  CHECK_THAT(adapters(local + "freeze_multi_modal_projector: false\n"),
             Contains("['*lm_head', '*model.visual.blocks*', '*model.visual.deepstack_merger_list*']"));
  // Of one in the cache of downloads, too.
  folder.write("hub/models--a--b/refs/main", "c");
  folder.write("hub/models--a--b/snapshots/c/config.json", R"({"model_type": "qwen2_5_vl", "vision_config": {}})");
  setenv("HF_HUB_CACHE", (folder.path() / "hub").c_str(), 1);
  CHECK_THAT(adapters("lora_target: all\nmodel_name_or_path: a/b\n"), Contains("'*model.visual*'"));
  CHECK_THAT(adapters("lora_target: all\nmodel_name_or_path: a/c\n"), Contains("exclude_modules: ['*lm_head']"));
  unsetenv("HF_HUB_CACHE");
  folder.write("config.json", R"({"model_type": "qwen2_5_vl", "vision_config": {}, "x": )" + std::string(200000, '['));
  CHECK_THAT(adapters(local), Contains("exclude_modules: ['*lm_head']"));
}

TEST_CASE("torchtune's recipes are known by the commands in their comments, and ranks must divide", "[foreign]") {
  using Catch::Contains;
  const std::string tune =
      "model: {_component_: torchtune.models.llama3_1.llama3_1_8b}\ntokenizer: {max_seq_len: 128}\nbatch_size: 1\n"
      "dataset: {packed: false}\noptimizer: {_component_: torch.optim.AdamW, lr: 1e-5}\n";
  CHECK(!convert_text("torchtune", "t.yaml", "# tune run full_finetune_distributed --config x\n" + tune)
             .findings.refused);
  const auto pairs =
      convert_text("torchtune", "t.yaml", "# tune run --nproc_per_node 2 lora_dpo_distributed --config x\n" + tune);
  REQUIRE(pairs.findings.refused);
  CHECK_THAT(pairs.findings.refused->key, Contains("lora_dpo_distributed"));
  const auto copies = convert_text("torchtune", "t.yaml",
                                   "# tune run --nproc_per_node 8 full_finetune_distributed --config x\n" + tune +
                                       "data_parallel_replicate_dim: 3\n");
  REQUIRE(copies.findings.refused);
  CHECK_THAT(copies.findings.refused->reason, Contains("3 does not divide the 8 data-parallel ranks"));
}

TEST_CASE("Megatron's dispatchers, short forms and the keys of its test files beside the arguments are read",
          "[foreign]") {
  using Catch::Contains;
  const std::string megatron =
      "--num-layers\n2\n--hidden-size\n64\n--num-attention-heads\n4\n--swiglu\n--normalization\nRMSNorm\n"
      "--position-embedding-type\nrope\n--disable-bias-linear\n--hidden-dropout\n0\n--attention-dropout\n0\n"
      "--micro-batch-size\n1\n--seq-length\n64\n--vocab-size\n128\n--bf16\n--num-experts\n4\n"
      "--moe-router-topk\n2\n--moe-ffn-hidden-size\n64\n--expert-model-parallel-size\n2\n";
  const auto made_of = [&](const std::string& more) {
    const auto made = convert_text("megatron", "m.args", megatron + more, {.world_size = 8, .allow_inexact = true});
    INFO(to_text(made.problems));
    CHECK(made.problems.empty());
    CHECK(!says(made.findings.ignored, "swiglu"));
    return made.recipe;
  };
  CHECK_THAT(made_of(""), !Contains("deduplicated"));
  CHECK_THAT(made_of("--moe-token-dispatcher-type\nalltoall\n"), !Contains("deduplicated"));
  CHECK_THAT(made_of("--moe-token-dispatcher-type\nflex\n"), Contains("dispatcher: deduplicated"));
  CHECK_THAT(made_of("--moe-token-dispatcher-type\nflex\n--moe-enable-deepep\n"), Contains("dispatcher: deduplicated"));
  const auto functional = convert_text("megatron", "m.yaml",
                                       "ENV_VARS: {SOME_VARIABLE: 1}\nTEST_TYPE: regular\nMODE: pretraining\n"
                                       "METRICS: [iteration-time]\nMODEL_ARGS:\n  --num-layers: 2\n");
  for (const auto* key : {"SOME_VARIABLE", "ENV_VARS", "TEST_TYPE", "MODE", "METRICS"}) {
    CAPTURE(key);
    CHECK(!says(functional.findings.ignored, key));
    CHECK(!says(functional.findings.not_expressed, key));
  }
  const auto short_form = convert_text("megatron", "m.args", megatron + "--recompute-activations\n",
                                       {.world_size = 8, .allow_inexact = true});
  CHECK(*short_form.resolved.recompute == "selective");
  CHECK(short_form.resolved.recompute_modules == std::vector<std::string>{"core_attn"});
}

TEST_CASE("LLaMA-Factory's defaults are its own, on Megatron too", "[foreign]") {
  using Catch::Contains;
  const auto mca = [&](const std::string& more) {
    const Request request{.world_size = 8, .environment = [](const std::string& name) {
                            return name == "USE_MCA" ? std::optional<std::string>("1") : std::nullopt;
                          }};
    return convert_text("llamafactory", "l.yaml",
                        "stage: sft\nfinetuning_type: full\nmodel_name_or_path: Qwen/Qwen2.5-0.5B\n"
                        "tensor_model_parallel_size: 2\n" +
                            more,
                        request)
        .recipe;
  };
  CHECK_THAT(mca("bf16: true\n"),
             Contains("tp_size: 2") && !Contains("sequence_parallel") && Contains("grad_reduce_in_fp32: true"));
  CHECK_THAT(mca("bf16: true\nsequence_parallel: true\n"), Contains("sequence_parallel: true"));
  CHECK_THAT(mca("fp16: true\n"), Contains("fp16: true") && !Contains("fp32"));  // Megatron sums in float16 there
  CHECK_THAT(convert_text("llamafactory", "l.yaml",
                          "stage: sft\nfinetuning_type: full\nmodel_name_or_path: Qwen/Qwen2.5-0.5B\n")
                 .recipe,
             Contains("lr: 5e-05  # default of LLaMA-Factory"));
  // Positions of a model with pictures stand in its text_config.
  CHECK_THAT(convert_text("llamafactory", "l.yaml",
                          "stage: sft\nfinetuning_type: full\nmodel_name_or_path: google/gemma-3-4b-it\n")
                 .recipe,
             Contains("google/gemma-3-4b-it") && !Contains("max_position_embeddings"));
}

TEST_CASE("a step of torchtitan's pipeline may run through it several times, and none is a mode", "[foreign]") {
  using Catch::Contains;
  const auto parts = convert_text("torchtitan", "t.toml",
                                  "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 8\n"
                                  "global_batch_size = 64\nseq_len = 128\n[parallelism]\npipeline_parallel_degree = 2\n"
                                  "[activation_checkpoint]\nmode = \"none\"\n",
                                  {.world_size = 8, .vocab_size = 32000});
  INFO(to_text(parts.problems));
  CHECK_THAT(parts.recipe, Contains("global_batch_size: 64") && Contains("local_batch_size: 8"));
  CHECK_THAT(parts.recipe,
             !Contains("activation_checkpointing"));  // "none" is no missing value: the default is another
}

TEST_CASE("words for off and for nothing are told apart", "[foreign]") {
  using Catch::Contains;
  const auto last = convert_text("axolotl", "a.yaml", std::string(kAxolotl) + "max_steps: 0\nnum_epochs: 2\n");
  CHECK_THAT(last.recipe, Contains("num_epochs: 2") && !Contains("max_steps"));
  const auto off = convert_text("axolotl", "a.yaml", std::string(kAxolotl) + "tiled_mlp: off\n");
  CHECK(off.findings.not_expressed.empty());
  CHECK(convert_text("axolotl", "a.yaml", std::string(kAxolotl) + "tiled_mlp: none\n").findings.not_expressed.empty());
  CHECK(!convert_text("axolotl", "a.yaml", std::string(kAxolotl) + "max_steps: None\n").resolved.max_steps);
}

TEST_CASE("files of accelerate and DeepSpeed are read beside a trainer's", "[foreign]") {
  using Catch::Contains;
  const test::TemporaryFolder folder;
  for (const auto& [strategy, type] : {std::pair{"allgather", "all_gather"}, {"alltoall", "p2p"}}) {
    const auto ring = folder.write("ring.yaml", fmt::format("distributed_type: FSDP\nfsdp_config: {{fsdp_version: 2}}\n"
                                                            "parallelism_config: {{parallelism_config_cp_size: 2, "
                                                            "parallelism_config_cp_comm_strategy: {}}}\n",
                                                            strategy));
    const auto made = convert({.files = {{"trl", folder.write("t.yaml", kTrl).string()}, {"accelerate", ring.string()}},
                               .world_size = 8,
                               .environment = no_variable});
    CHECK(made.resolved.cp_comm_type.value_or("") == type);
  }
  for (const bool parallel : {false, true}) {
    const auto degrees = folder.write(
        "mlm.yaml", std::string("distributed_type: MEGATRON_LM\nmegatron_lm_config:\n  megatron_lm_tp_degree: 2\n"
                                "  megatron_lm_pp_degree: 1\n") +
                        (parallel ? "  megatron_lm_sequence_parallelism: true\n" : ""));
    const auto made =
        convert({.files = {{"trl", folder.write("t.yaml", kTrl).string()}, {"accelerate", degrees.string()}},
                 .world_size = 8,
                 .environment = no_variable});
    CHECK(made.resolved.sequence_parallel.value_or(!parallel) == parallel);
  }
  const auto batch = folder.write("batch.json", R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2})");
  const auto passes = convert({.files = {{"deepspeed", batch.string()}},
                               .world_size = 8,
                               .model = "Qwen/Qwen2.5-0.5B",
                               .seq_length = 128,
                               .environment = no_variable});
  INFO(to_text(passes.problems));
  CHECK(passes.resolved.grad_accumulation.value_or(0) == 4);
  const auto zero = folder.write("zero.json", R"({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}})");
  const auto partly = convert_text("llamafactory", "l.yaml",
                                   "stage: sft\nfinetuning_type: full\nmodel_name_or_path: Qwen/Qwen2.5-0.5B\n"
                                   "bf16: true\ndeepspeed: " +
                                       zero.string() + "\n");
  CHECK(says(partly.findings.not_expressed, "zero_hpz_partition_size"));
  CHECK(partly.resolved.zero_stage == 3);
  const auto beside =
      convert({.files = {{"trl", folder.write("t.yaml", kTrl).string()},
                         {"accelerate", folder.write("a.yaml", "distributed_type: DEEPSPEED\n").string()},
                         {"deepspeed", zero.string()}},
               .world_size = 8,
               .environment = no_variable});
  INFO(to_text(beside.findings.problems));
  CHECK(beside.resolved.zero_stage == 3);
  CHECK(says(beside.findings.not_expressed, "zero_hpz_partition_size"));
}

TEST_CASE("the same keys cost 8 or 16 bytes per parameter, depending on trainer and mode", "[foreign]") {
  const Request one{.world_size = 1};
  CHECK(bytes_per_parameter(convert_text("axolotl", "a.yaml", kAxolotl, one)) == Approx(8).epsilon(0.02));
  CHECK(bytes_per_parameter(convert_text(
            "axolotl", "a.yaml",
            std::string(kAxolotl) + "fsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\n", one)) ==
        Approx(8).epsilon(0.02));
  CHECK(bytes_per_parameter(convert_text("trl", "t.yaml", kTrl, one)) == Approx(16).epsilon(0.02));
  CHECK(bytes_per_parameter(convert_text("trl", "t.yaml", std::string(kTrl) + "dtype: bfloat16\n", one)) ==
        Approx(8).epsilon(0.02));
  // 16, and the gathered bfloat16 weights of the largest units.
  for (const auto& upcast :
       {convert_text("trl", "t.yaml", std::string(kTrl) + "fsdp: full_shard auto_wrap\n", one),
        convert_text("trl", "t.yaml", std::string(kTrl) + "dtype: bfloat16\nfsdp: full_shard\n", one),
        convert_text("axolotl", "a.yaml", std::string(kAxolotl) + "fsdp: [full_shard, auto_wrap]\n", one)}) {
    const auto bytes = bytes_per_parameter(upcast);
    CHECK(bytes > 16);
    CHECK(bytes < 18);
  }
  // 16, and the float32 copy of the rank's part of the gradients during the update.
  CHECK(bytes_per_parameter(convert_text(
            "trl", "t.yaml", std::string(kTrl) + "deepspeed: {zero_optimization: {stage: 1}, bf16: {enabled: auto}}\n",
            one)) == Approx(20).epsilon(0.02));
}

TEST_CASE("without sharding Megatron and DeepSpeed keep masters too", "[foreign]") {
  const test::TemporaryFolder folder;
  const auto beside = [&](const std::string& format, const std::string& text) {
    return bytes_per_parameter(convert(
        {.files = {{"trl", folder.write("t.yaml", kTrl).string()}, {format, folder.write("f.yaml", text).string()}},
         .world_size = 1,
         .environment = no_variable}));
  };
  // Weights of 2 bytes, gradients summed in float32, masters and moments of 12.
  CHECK(beside("accelerate", "distributed_type: MEGATRON_LM\nmixed_precision: bf16\nmegatron_lm_config: {}\n") ==
        Approx(18).epsilon(0.02));
  CHECK(beside("deepspeed", "zero_optimization: {stage: 0}\nbf16: {enabled: true}\n") == Approx(16).epsilon(0.02));
}

TEST_CASE("defaults differ by trainer", "[foreign]") {
  const auto trl = convert_text("trl", "t.yaml", "model_name_or_path: gpt2\ndataset_name: x\n").resolved;
  CHECK(*trl.dtype == "bfloat16");
  CHECK(*trl.recompute == "full");
  CHECK(*trl.seq_length == 1024);
  CHECK(*trl.lr == 2e-5);
  const auto trainer = convert_text("hf-trainer", "t.args", "--model_name_or_path\ngpt2\n").resolved;
  CHECK(*trainer.dtype == "float32");
  CHECK(*trainer.recompute == "none");
  CHECK(*trainer.lr == 5e-5);
  CHECK_FALSE(trainer.seq_length);
  const auto factory =
      convert_text("llamafactory", "l.yaml", "model_name_or_path: gpt2\nstage: sft\nlora_rank: 4\nbf16: true\n")
          .resolved;
  CHECK((*factory.adapter).alpha == 8);
  CHECK(*factory.recompute == "full");
  CHECK_FALSE(convert_text("llamafactory", "l.yaml", "model_name_or_path: gpt2\nstage: sft\nquantization_bit: 4\n")
                  .resolved.quantization.value_or("") == "nf4");
  CHECK(*convert_text("trl", "t.yaml", std::string(kTrl) + "use_peft: true\nload_in_4bit: true\n")
             .resolved.quantization == "nf4");
}

TEST_CASE("ranks of tensor, context and Ulysses parallelism do not multiply the batch", "[foreign]") {
  const auto made =
      convert_text("axolotl", "a.yaml", std::string(kAxolotl) + "context_parallel_size: 4\ntensor_parallel_size: 2\n");
  CHECK(made.resolved.dp == 1);
  CHECK(*made.resolved.global_batch == 1);
}

TEST_CASE("a number that contradicts the Trainer's is refused, as there", "[foreign]") {
  const std::string zero = "deepspeed: {train_micro_batch_size_per_gpu: 2, zero_optimization: {stage: 2}}\n";
  CHECK(convert_text("trl", "t.yaml", kTrl + zero).findings.refused);
  CHECK_FALSE(convert_text("trl", "t.yaml",
                           "model_name_or_path: gpt2\ndataset_name: x\nper_device_train_batch_size: 2\n" + zero)
                  .findings.refused);
}

TEST_CASE("switches that do nothing do nothing", "[foreign]") {
  const std::string titan =
      "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[parallelism]\n[float8]\nfilter_fqns = [\"output\"]\n";
  CHECK(*convert_text("torchtitan", "c.toml", titan).resolved.fp8 == "false");
  auto on = titan;
  on.insert(8, "converters = [\"float8\"]\n");
  CHECK(*convert_text("torchtitan", "c.toml", on).resolved.fp8 == "true");
  const auto made = convert_text("megatron", "m.args",
                                 "--num-layers\n2\n--hidden-size\n64\n--num-attention-heads\n4\n--sequence-parallel\n--"
                                 "micro-batch-size\n1\n--seq-length\n64\n");
  CHECK(*made.resolved.sequence_parallel == false);
  CHECK(says(made.findings.ignored, "sequence_parallel"));
  CHECK(says(made.findings.not_expressed, "hidden_dropout: 0.1 (default)"));
}

TEST_CASE("every n-th layer recomputed whole is reported", "[foreign]") {
  const std::string titan =
      "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[parallelism]\n[activation_checkpoint]\nmode = "
      "\"selective\"\nselective_ac_option = \"2\"\n";
  CHECK(says(convert_text("torchtitan", "c.toml", titan).findings.not_expressed, "selective_ac_option"));
}

TEST_CASE("the number of ranks is never taken from a file", "[foreign]") {
  const auto made = convert_text("accelerate", "a.yaml", "distributed_type: MULTI_GPU\nnum_processes: 8\n", {});
  CHECK(made.resolved.dp == 0);
  CHECK(ids(made.problems).find("from-missing") != std::string::npos);
  CHECK(to_text(made.problems).find("--world-size N") != std::string::npos);
}

TEST_CASE("what is not expressed is an error unless it is allowed", "[foreign]") {
  const std::string text = std::string(kAxolotl) + "optimizer: adamw_bnb_8bit\n";
  const auto refused = convert_text("axolotl", "a.yaml", text);
  CHECK(ids(refused.problems) == "from-inexact ");
  CHECK(refused.recipe.empty());
  const auto allowed = convert_text("axolotl", "a.yaml", text, {.world_size = 8, .allow_inexact = true});
  CHECK(allowed.problems.empty());
  CHECK(allowed.recipe.find("Not expressed: optimizer: adamw_bnb_8bit") != std::string::npos);
  const auto low_rank = std::string(kAxolotl) + "optimizer: galore_adamw\n";
  CHECK(ids(convert_text("axolotl", "a.yaml", low_rank).problems) == "from-refused ");
  CHECK(convert_text("axolotl", "a.yaml", low_rank, {.world_size = 8, .accept_adamw = true, .allow_inexact = true})
            .problems.empty());
}

TEST_CASE("keys that nobody knows are listed", "[foreign]") {
  const auto made = convert_text("axolotl", "a.yaml", std::string(kAxolotl) + "no_such_key: 3\n");
  CHECK(made.problems.empty());
  CHECK(says(made.findings.ignored, "no_such_key"));
}

TEST_CASE("arguments override the file", "[foreign]") {
  const std::string titan =
      "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[parallelism]\n[training]\nlocal_batch_size = 1\n";
  const auto made = convert_text(
      "torchtitan", "c.toml", titan,
      {.arguments = {"--training.local-batch-size", "4", "--parallelism.tensor_parallel_degree=2"}, .world_size = 8});
  CHECK(*made.resolved.micro_batch == 4);
  CHECK(*made.resolved.tp == 2);
  const auto tuned =
      convert_text("axolotl", "a.yaml", kAxolotl, {.arguments = {"micro_batch_size=3"}, .world_size = 8});
  CHECK(*tuned.resolved.micro_batch == 3);
}

TEST_CASE("scripts and programs are refused, not executed", "[foreign]") {
  for (const auto& [format, name, text] :
       {std::tuple{"megatron", "run.sh", "torchrun pretrain_gpt.py --num-layers 2\n"},
        std::tuple{"hf-trainer", "run", "#!/bin/bash\ntouch ran\n"},
        std::tuple{"torchtitan", "config_registry.py", "import os\n"}}) {
    const auto made = convert_text(format, name, text);
    CHECK(ids(made.problems) == "from-format ");
  }
}

TEST_CASE("files of strangers end with a problem, not with the program", "[foreign]") {
  std::string deep(100'000, '[');
  CHECK(ids(convert_text("deepspeed", "d.json", deep).problems) == "yaml-syntax ");
  std::string tables = "[model]\na = " + std::string(100'000, '[') + "\n";
  CHECK(ids(convert_text("torchtitan", "c.toml", tables).problems) == "yaml-syntax ");
  CHECK(ids(convert_text("torchtitan", "c.toml", "[model\n").problems) == "yaml-syntax ");
  CHECK(ids(convert_text("axolotl", "a.yaml", std::string(std::size_t{5} << 20, '#')).problems) == "missing-file ");
  CHECK(ids(convert_text("axolotl", "a.yaml", "- 1\n").problems) == "from-format ");
  CHECK(ids(convert_text("axolotl", "a.yaml", "base_model: gpt2\nmicro_batch_size: many\n").problems) == "bad-type ");
  for (const auto* huge : {"1e300", "999999999999999", "-1", "0"})
    CHECK_FALSE(
        convert_text(
            "axolotl", "a.yaml",
            fmt::format("base_model: gpt2\nmicro_batch_size: {}\nsequence_len: 1\ngradient_accumulation_steps: {}\n",
                        huge, huge))
            .problems.empty());
  for (const auto* none :
       {"--tensor-model-parallel-size\n0", "--num-layers\n999999999999999\n--pipeline-model-parallel-size\n1048576",
        "--num-attention-heads\n0", "--pipeline-model-parallel-size\n-1"})
    CHECK_FALSE(convert_text("megatron", "m.args",
                             fmt::format("--num-layers\n2\n--hidden-size\n64\n--micro-batch-size\n1\n{}\n", none))
                    .problems.empty());
  CHECK(ids(convert_text("megatron", "m.args", "--num-layers\n").problems) == "bad-type ");
}

TEST_CASE("a configuration names only configurations, and no variables of this environment", "[foreign]") {
  CHECK(ids(convert_text("axolotl", "a.yaml", std::string(kAxolotl) + "deepspeed: /etc/hostname\n").problems) ==
        "from-format ");
  CHECK(ids(convert_text("axolotl", "a.yaml", std::string(kAxolotl) + "deepspeed: missing/zero3.json\n").problems) ==
        "missing-file ");
  const test::TemporaryFolder folder;
  folder.write("zero.json", R"({"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}})");
  const auto file = folder.write("examples/one/a.yaml", std::string(kAxolotl) + "deepspeed: zero.json\n").string();
  const auto made = convert({.files = {{"axolotl", file}}, .world_size = 8});
  CHECK(made.problems.empty());
  CHECK(made.resolved.zero_stage == 3);
}

TEST_CASE("words of a file cannot become keys of the recipe", "[foreign]") {
  const std::string words = "\"bfloat16\\nseed: 7\"";
  for (const auto& made : {convert_text("trl", "t.yaml", std::string(kTrl) + "dtype: " + words + "\n"),
                           convert_text("axolotl", "a.yaml", "base_model: " + words + "\nmicro_batch_size: 1\n")}) {
    INFO(to_text(made.problems));
    REQUIRE_FALSE(made.recipe.empty());
    CHECK(made.recipe.find("\nseed") == std::string::npos);
  }
}

TEST_CASE("the trainer's own refusals are kept", "[foreign]") {
  CHECK(convert_text("axolotl", "a.yaml", std::string(kAxolotl) + "load_in_4bit: true\n").findings.refused);
  CHECK(convert_text("axolotl", "a.yaml", std::string(kAxolotl) + "fsdp: [full_shard]\ndeepspeed: {}\n",
                     {.world_size = 8})
            .findings.refused);
  CHECK(convert_text("torchtitan", "c.toml",
                     "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[parallelism]\ndata_parallel_shard_degree = 3\n")
            .findings.refused);
  CHECK(convert_text("llamafactory", "l.yaml",
                     "model_name_or_path: gpt2\nstage: sft\nfinetuning_type: full\ntensor_model_parallel_size: 2\n")
            .findings.refused);
}

TEST_CASE("gradients between passes are whole where the trainer keeps them so", "[foreign]") {
  const std::string sharded =
      std::string(kAxolotl) +
      "gradient_accumulation_steps: 2\nfsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\n";
  CHECK(convert_text("axolotl", "a.yaml", sharded).recipe.find("defer_fsdp_grad_sync: true") != std::string::npos);
  const auto each = sharded + "accelerator_config: {gradient_accumulation_kwargs: {sync_each_batch: true}}\n";
  CHECK(convert_text("axolotl", "a.yaml", each).recipe.find("defer_fsdp_grad_sync: false") != std::string::npos);
}

TEST_CASE("files of strangers are refused before they are taken apart", "[foreign]") {
  const auto refused = [](const std::string& format, const std::string& name, const std::string& text) {
    CHECK(recognise(name, text).empty());
    const auto made = convert_text(format, name, text);
    return made.problems.empty() ? "" : std::string(made.problems[0].id) + ": " + made.problems[0].message;
  };
  std::string sections, many, values = "a = [";
  for (int i = 0; i < 1'000'000; ++i) sections += "a.";
  for (int i = 0; i < 300'000; ++i) many += fmt::format("--k{}\n", i);
  for (int i = 0; i < 210'000; ++i) values += "1,";
  // A table for each dot would end the stack when the tree is destroyed, and a search for each argument takes minutes.
  CHECK(refused("torchtitan", "t.toml", sections + "a = 1\n") == "yaml-syntax: the TOML file has more than 2000 dots");
  // Arrays in inline tables carry the depth from one line to the next.
  std::string lines = "x = [\n";
  for (int line = 0; line < 10; ++line) lines += "{" + sections.substr(0, 1998) + "a = [\n";
  CHECK(refused("torchtitan", "t.toml", lines) == "yaml-syntax: the TOML file has more than 2000 dots");
  CHECK(refused("torchtitan", "t.toml", values + "]\n") == "yaml-syntax: the TOML file has more than 200000 values");
  CHECK(refused("megatron", "m.args", many) == "from-format: the file has more than 10000 arguments");
  CHECK(refused("megatron", "m.args", "--" + sections + "a 1\n").starts_with("from-missing"));
}

TEST_CASE("a recipe of ours is not taken for another trainer's file", "[foreign]") {
  CHECK(recognise("r.yaml", "model: {pretrained_model_name_or_path: gpt2}\nstep_scheduler: {max_steps: 1}\n").empty());
  CHECK(recognise("r.yaml", "model:\n  config: {model_type: llama}\nmodel_parallel: {bf16: true}\n").empty());
  CHECK(recognise("r.yaml", "").empty());
}

TEST_CASE("a stage of the embedding alone becomes a layout", "[foreign]") {
  const auto made = convert_text("megatron", "m.args",
                                 "--num-layers\n6\n--hidden-size\n64\n--num-attention-heads\n4\n--micro-batch-"
                                 "size\n1\n--seq-length\n64\n--vocab-size\n128\n"
                                 "--pipeline-model-parallel-size\n4\n--num-virtual-stages-per-pipeline-rank\n2\n--"
                                 "account-for-embedding-in-pipeline-split\n"
                                 "--account-for-loss-in-pipeline-split\n--bf16\n");
  CHECK(made.resolved.pipeline_layout == "E|t|t|t|t|t|t|L");
}

}  // namespace automodel::foreign
