// What single keys of other trainers' files become, beyond the recorded configurations: a row per key.
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "foreign/conversion.h"
#include "temporary_folder.h"

namespace automodel::foreign {
namespace {

/// The recipe, and a line for each finding: what a person gets to know.
std::string outcome(const Conversion& made) {
  std::string out = made.recipe + "\n";
  const auto& found = made.findings;
  if (found.refused) out += fmt::format("refused {}: {}\n", found.refused->key, found.refused->reason);
  for (const auto& each : found.not_expressed) out += fmt::format("cannot {}: {}\n", each.key, each.reason);
  for (const auto& each : found.notes) out += fmt::format("note {}: {}\n", each.key, each.reason);
  for (const auto& each : found.ignored) out += fmt::format("ignores {}\n", each.key);
  for (const auto& each : found.missing) out += fmt::format("asks {}: {}\n", each.key, each.option);
  return out + to_text(found.problems);
}

struct File {
  std::string format, name, text;
};

std::string outcome_of(const std::vector<File>& files, Request request) {
  const test::TemporaryFolder folder;
  for (const auto& each : files) request.files.push_back({each.format, folder.write(each.name, each.text).string()});
  request.allow_inexact = true;
  request.environment = [](const std::string& /*name*/) { return std::nullopt; };
  return outcome(convert(request));
}

struct Row {
  std::string keys;
  std::vector<std::string> says, says_not = {};
};

void check(const std::string& format, const std::string& name, const std::string& before, const std::vector<Row>& rows,
           const Request& request = {.world_size = 8}, const std::vector<File>& beside = {}) {
  for (const auto& row : rows) {
    auto files = beside;
    files.push_back({format, name, before + row.keys});
    const auto out = outcome_of(files, request);
    CAPTURE(row.keys);
    for (const auto& words : row.says) CHECK_THAT(out, Catch::Contains(words));
    for (const auto& words : row.says_not) CHECK_THAT(out, !Catch::Contains(words));
  }
}

constexpr const char* kModel = "Qwen/Qwen2.5-0.5B";
const std::string kAxolotl =
    fmt::format("base_model: {}\nmicro_batch_size: 2\nlearning_rate: 2e-5\nsequence_len: 128\n", kModel);
const std::string kTrl =
    fmt::format("model_name_or_path: {}\ndataset_name: x\nper_device_train_batch_size: 1\nmax_length: 128\n", kModel);
const std::string kFactory = fmt::format("stage: sft\nmodel_name_or_path: {}\nbf16: true\ncutoff_len: 128\n", kModel);
const std::string kFactory1 = fmt::format("model: {}\ntrain_dataset: x\ncutoff_len: 128\n", kModel);
const std::string kMegatron =
    "--num-layers 8\n--hidden-size 64\n--num-attention-heads 4\n--swiglu\n--normalization RMSNorm\n"
    "--position-embedding-type rope\n--disable-bias-linear\n--hidden-dropout 0\n--attention-dropout 0\n"
    "--micro-batch-size 1\n--global-batch-size 64\n--seq-length 64\n--vocab-size 128\n--bf16\n";
const std::string kTitan =
    "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 8\nseq_len = 128\n";

}  // namespace

TEST_CASE("keys of axolotl", "[foreign]") {
  check("axolotl", "a.yaml", kAxolotl,
        {{"bf16: false\n", {"torch_dtype: float32"}, {"bf16: true"}},
         {"adapter: ia3\n", {"refused adapter: ia3: only LoRA adapters"}},
         {"dp_shard_size: 2\ndp_replicate_size: 3\n", {"refused dp_shard_size x dp_replicate_size = 6", "not 8"}},
         {"dp_shard_size: 4\ndp_replicate_size: 2\nfsdp_version: 2\n", {"dp_replicate_size: 2"}, {"refused"}},
         {"gradient_checkpointing: offload\n", {"cannot gradient_checkpointing", "activation_checkpointing: \"full\""}},
         {"selective_checkpointing: true\n", {"activation_checkpointing: \"selective\""}},
         {"batch_size: 8\n", {"global_batch_size: 64"}},
         {"batch_size: 8\ngradient_accumulation_steps: 2\n", {"global_batch_size: 32"}},
         {"context_parallel_size: 2\nsample_packing: true\n", {"refused context_parallel_size with sample_packing"}},
         {"chunked_cross_entropy: true\n", {"_target_: chunked_ce"}},
         {"fsdp: [full_shard]\nfsdp_config: {reshard_after_forward: false}\n", {"reshard_after_forward: false"}},
         {"fsdp: [full_shard]\nfsdp_config: {reshard_after_forward: [1]}\n", {"must be a word"}},
         {"fsdp: [full_shard]\nfsdp_config: {fsdp_sharding_strategy: 2}\n", {"reshard_after_forward: false"}},
         {"fsdp: [shard_grad_op, offload]\n", {"reshard_after_forward: false", "offload_policy: {}"}},
         {"fsdp: [hybrid_shard]\n", {"asks fsdp: --gpus-per-node N"}}});
  const std::vector<Row> hybrid = {{"fsdp: [hybrid_shard]\n", {"dp_replicate_size: 2"}, {"asks"}},
                                   {"fsdp: [full_shard]\n", {"strategy: fsdp2"}, {"dp_replicate_size"}}};
  check("axolotl", "a.yaml", kAxolotl, hybrid, {.world_size = 8, .ranks_per_node = 4});
  check("axolotl", "a.yaml", kAxolotl,
        {{"fsdp: [hybrid_shard]\n", {"refused fsdp: 10 ranks do not fill machines of 4"}}},
        {.world_size = 10, .ranks_per_node = 4});
  check("axolotl", "a.yaml", kAxolotl, {{"fsdp: [hybrid_shard]\n", {"strategy: fsdp2"}, {"asks", "dp_replicate_size"}}},
        {.world_size = 4, .ranks_per_node = 8});
}

TEST_CASE("keys of accelerate", "[foreign]") {
  const std::string zero = "distributed_type: DEEPSPEED\nmixed_precision: bf16\ndeepspeed_config:\n  zero_stage: ";
  check(
      "accelerate", "acc.yaml", "",
      {{zero + "3\n  offload_optimizer_device: cpu\n  offload_param_device: cpu\n",
        {"strategy: fsdp2", "with everything in host memory", "offload_policy: {}", "main_grads_dtype: bfloat16"}},
       {zero + "2\n  offload_optimizer_device: cpu\n",
        {"zero_dp_strategy: 2", "cannot accelerate.deepspeed_config.offload_optimizer_device: the optimizer"}},
       {zero + "2\n  offload_param_device: nvme\n", {"cannot accelerate.deepspeed_config.offload_param_device: nvme"}},
       {zero + "0\n", {"strategy: megatron_fsdp", "zero_dp_strategy: 0", "with masters beside the weights"}},
       {zero + "4\n", {"refused accelerate.deepspeed_config.zero_stage: 4"}},
       {zero + "1\n  gradient_clipping: 0.5\n", {"max_norm: 0.5"}},
       {"distributed_type: FSDP\nmixed_precision: fp8\n", {"cannot mixed_precision: fp8", "param_dtype: bfloat16"}},
       {"distributed_type: FSDP\nmixed_precision: bf16\nfsdp_config: {fsdp_sharding_strategy: NO_SHARD}\n",
        {"zero_dp_strategy: 0", "bf16: true"},
        {"autocast_dtype"}}},
      {.world_size = 8}, {{"trl", "t.yaml", kTrl}});
  const std::string megatron =
      "distributed_type: MEGATRON_LM\nmixed_precision: bf16\nmegatron_lm_config:\n  megatron_lm_tp_degree: 1\n";
  check("accelerate", "acc.yaml", megatron,
        {{"",
          {"zero_dp_strategy: 0", "grad_reduce_in_fp32: true", "stack: transformer_engine"},
          {"pp_size", "activation_checkpointing"}},
         {"  megatron_lm_use_distributed_optimizer: true\n", {"zero_dp_strategy: 1"}},
         {"  megatron_lm_pp_degree: 2\n  megatron_lm_num_micro_batches: 6\n",
          {"pp_size: 2", "pp_schedule: 1f1b", "local_batch_size: 6", "global_batch_size: 24"}},
         {"  megatron_lm_recompute_activations: true\n",
          {"recompute_modules: [core_attn]  # megatron_lm_recompute_activations"}},
         {"  megatron_lm_gradient_clipping: 0.25\n", {"max_norm: 0.25"}}},
        {.world_size = 8}, {{"trl", "t.yaml", kTrl}});
  // Alone it knows accumulation steps too.
  check("accelerate", "acc.yaml", zero, {{"1\n  gradient_accumulation_steps: 4\n", {"asks model"}}});
}

TEST_CASE("keys of TRL", "[foreign]") {
  check("trl", "t.yaml", kTrl,
        {{"fp16: true\n", {"float16"}},
         {"load_in_4bit: true\n", {"refused load_in_4bit: quantized weights train only under adapters"}},
         {"fsdp: no_shard\n", {"zero_dp_strategy: 0", "bf16: true"}, {"autocast_dtype"}},
         {"fsdp: full_shard\n", {"strategy: fsdp2", "torch_dtype: float32", "param_dtype: bfloat16"}},
         {"neftune_noise_alpha: 5\n", {"neftune:", "noise_alpha: 5"}},
         {"lr_scheduler_type: polynomial\n", {"ignores lr_scheduler_type: polynomial"}}});
}

TEST_CASE("keys of LLaMA-Factory", "[foreign]") {
  check(
      "llamafactory", "l.yaml", kFactory,
      {{"quantization_bit: 3\n", {"refused quantization_bit: 3"}},
       {"quantization_bit: 4\nquantization_method: hqq\n", {"refused quantization_bit: 4: weights of hqq"}},
       {"quantization_bit: 4\nfinetuning_type: full\n", {"refused quantization_bit: 4: quantized weights train only"}},
       {"finetuning_type: freeze\nfreeze_trainable_layers: 3\n",
        {"cannot freeze_trainable_layers: 3", "torch_dtype: float32", "autocast_dtype: bfloat16"}},
       {"finetuning_type: oft\n", {"refused finetuning_type: oft: these adapters have no equivalent"}},
       {"finetuning_type: full\n", {"torch_dtype: float32", "autocast_dtype: bfloat16", "strategy: ddp"}},
       {"finetuning_type: full\npure_bf16: true\n", {"torch_dtype: bfloat16", "main_params_dtype: bfloat16"}},
       {"finetuning_type: full\nfsdp: full_shard\n", {"strategy: fsdp2", "reduce_dtype: bfloat16"}}});
  check("llamafactory", "l.yaml", kFactory1,
        {{"dist_config: {name: fsdp2, offload_params: true, cp_size: 2, cp_mode: ulysses}\n",
          {"strategy: fsdp2", "offload_policy: {}", "cp_size: 2", "cp_comm_type: \"a2a\"", "reduce_dtype: float32"}},
         {"dist_config: {name: fsdp2, cp_size: 2, cp_mode: ring}\n", {"cp_comm_type: \"p2p\""}},
         {"dist_config: {name: fsdp2, dp_replicate_size: 2}\n", {"dp_replicate_size: 2"}},
         {"dist_config: {name: ddp}\n", {"strategy: ddp", "torch_dtype: float32", "autocast_dtype: bfloat16"}},
         {"dist_config: {name: deepspeed}\n", {"asks dist_config.name: deepspeed: --from deepspeed FILE too"}},
         {"dist_config: {name: other}\n", {"refused dist_config.name: other"}},
         {"peft_config: {name: lora, r: 4, target_modules: all}\n",
          {"dim: 4", "alpha: 8", "exclude_modules: ['*lm_head'", "bf16: true"},
          {"autocast"}},
         {"peft_config: {name: lora, lora_alpha: 6, lora_dropout: 0.5, target_modules: [q_proj]}\n",
          {"dim: 8", "alpha: 6", "dropout: 0.5", "target_modules: [\"q_proj\"]"}},
         {"peft_config: {name: oft}\n", {"refused peft_config.name: oft"}},
         {"peft_config: {name: [lora]}\n", {"peft_config.name must be a word"}},
         {"peft_config: lora\n", {"peft_config must be a mapping"}},
         {"peft_config: {name: lora}\nquant_config: {name: bnb, quantization_bit: 8}\n", {"load_in_8bit: true"}},
         {"peft_config: {name: lora}\nquant_config: {name: bnb}\n", {"load_in_4bit: true"}},
         {"peft_config: {name: lora}\nquant_config: {name: gptq}\n", {"refused quant_config.name: gptq"}},
         {"quant_config: {name: bnb}\n", {"refused quant_config.name: bnb: quantized weights train only"}}});
  check("llamafactory", "l.yaml", kFactory1,
        {{"dist_config: {name: deepspeed}\n", {"zero_dp_strategy: 3", "main_grads_dtype: bfloat16"}, {"asks"}}},
        {.world_size = 8},
        {{"deepspeed", "d.json", R"({"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}})"}});
}

TEST_CASE("keys of DeepSpeed", "[foreign]") {
  const std::string start = R"({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, )";
  check("deepspeed", "d.json", start,
        {{R"("sequence_parallel_size": 2, "zero_optimization": {"stage": 3}})",
          {"cp_size: 2", "cp_comm_type: \"a2a\"", "zero_dp_strategy: 3"}},
         {R"("zero_optimization": {"stage": 0}})", {"strategy: megatron_fsdp", "zero_dp_strategy: 0"}},
         {R"("train_batch_size": 12, "gradient_accumulation_steps": 2})",
          {"refused deepspeed.train_batch_size: 12: not a multiple"}},
         {R"("train_batch_size": 16, "gradient_accumulation_steps": 3})",
          {"refused deepspeed.train_batch_size: 16: 1 x 3 x 8 ranks is 24"}},
         {R"("tensor_parallel": {"autotp_size": 4}})", {"tp_size: 4"}}},
        {.world_size = 8, .model = kModel, .seq_length = 128});
}

TEST_CASE("batches that ranks cannot divide", "[foreign]") {
  check("deepspeed", "d.json", R"({"train_batch_size": 12)",
        {{"}", {"refused deepspeed.train_batch_size: 12: cannot be divided over 8"}}},
        {.world_size = 8, .model = kModel, .seq_length = 128});
  check("axolotl", "a.yaml", fmt::format("base_model: {}\nsequence_len: 128\nmicro_batch_size: 1073741824\n", kModel),
        {{"gradient_accumulation_steps: 1073741824\n", {"global_batch_size: 9223372036854775807"}}},
        {.world_size = 1024});
}

TEST_CASE("keys of Megatron-LM", "[foreign]") {
  check(
      "megatron", "m.args", kMegatron,
      {{"", {"strategy: megatron_fsdp", "zero_dp_strategy: 0", "grad_reduce_in_fp32: true"}, {"overlap_param_gather"}},
       {"--use-distributed-optimizer\n", {"zero_dp_strategy: 1", "overlap_param_gather: false"}},
       {"--use-megatron-fsdp\n--data-parallel-sharding-strategy optim_grads\n", {"zero_dp_strategy: 2"}},
       {"--use-megatron-fsdp\n", {"zero_dp_strategy: 3"}},
       {"--use-megatron-fsdp\n--data-parallel-sharding-strategy all\n", {"refused data_parallel_sharding_strategy"}},
       {"--use-torch-fsdp2\n--data-parallel-sharding-strategy optim\n",
        {"strategy: fsdp2", "ignores data_parallel_sharding_strategy"}},
       {"--overlap-param-gather\n", {"refused overlap_param_gather"}},
       {"--context-parallel-size 4\n--cp-comm-type a2a+p2p\n--hierarchical-context-parallel-sizes 2 2\n",
        {"cp_comm_type: \"a2a+p2p\"", "hierarchical_context_parallel_sizes: [2, 2]"}},
       {"--use-distributed-optimizer\n--main-params-dtype fp32\n--main-grads-dtype bf16\n--exp-avg-dtype fp8\n",
        {"cannot exp_avg_dtype: fp8", "main_grads_dtype: bfloat16", "exp_avg_dtype: bfloat16"}},
       {"--recompute-granularity full\n--recompute-method block\n--recompute-num-layers 2\n",
        {"activation_checkpointing: \"full\"", "cannot recompute_method: block, recompute_num_layers: 2"}},
       {"--recompute-granularity full\n--recompute-method uniform\n--recompute-num-layers 2\n",
        {"activation_checkpointing: \"full\"", "cannot recompute_num_layers: 2"}},
       {"--recompute-granularity full\n--recompute-method uniform\n--recompute-num-layers 1\n",
        {"activation_checkpointing: \"full\""},
        {"cannot"}},
       {"--lr-decay-style WSD\n", {"ignores lr_decay_style: WSD"}, {"lr_decay_style:  "}},
       {"--cpu-offloading-num-layers 2\n", {"cpu_offloading: true", "cpu_offloading_num_layers: 2"}},
       {"--hybrid-layer-pattern M*M*\n", {"refused hybrid_layer_pattern"}},
       {"--num-experts 4\n--moe-layer-freq 2\n", {"cannot moe_layer_freq: 2"}}});
  const std::string pipeline = kMegatron + "--pipeline-model-parallel-size 4\n";
  check("megatron", "m.args", pipeline,
        {{"", {"pp_schedule: 1f1b"}, {"layers_per_stage"}},
         {"--decoder-first-pipeline-num-layers 1\n--decoder-last-pipeline-num-layers 3\n",
          {"layers_per_stage: [1, 2, 2, 3]"}},
         {"--decoder-first-pipeline-num-layers 2\n", {"layers_per_stage: [2, 2, 2, 2]"}},
         {"--decoder-last-pipeline-num-layers 5\n", {"layers_per_stage: [1, 1, 1, 5]"}},
         {"--decoder-first-pipeline-num-layers 3\n", {"refused decoder_first_pipeline_num_layers: 8 layers cannot"}},
         {"--decoder-last-pipeline-num-layers 9\n", {"refused decoder_last_pipeline_num_layers"}},
         {"--decoder-last-pipeline-num-layers -1\n", {"refused decoder_last_pipeline_num_layers"}},
         {"--num-layers 7\n", {"refused num_layers: 7: 7 layers cannot be divided over 4 stages"}},
         {"--num-layers 6\n--account-for-embedding-in-pipeline-split\n--account-for-loss-in-pipeline-split\n",
          {"pipeline_model_parallel_layout: \"Et|tt|tt|tL\""}},
         {"--num-layers 7\n--account-for-embedding-in-pipeline-split\n--account-for-loss-in-pipeline-split\n",
          {"7 layers and what counts as one cannot be divided over 4 stages"}},
         {"--pipeline-model-parallel-layout Et|tt|tt|ttmL\n", {"cannot pipeline_model_parallel_layout"}}});
  // Of a rank with virtual stages these are the layers of all of them.
  check("megatron", "m.args",
        kMegatron + "--num-layers 16\n--pipeline-model-parallel-size 4\n--num-virtual-stages-per-pipeline-rank 2\n",
        {{"--decoder-first-pipeline-num-layers 2\n--decoder-last-pipeline-num-layers 6\n",
          {"layers_per_stage: [1, 2, 2, 3, 1, 2, 2, 3]", "MegatronInterleaved"}},
         {"--decoder-first-pipeline-num-layers 1\n", {"refused decoder_first_pipeline_num_layers: 16 layers"}},
         {"--decoder-first-pipeline-num-layers 3\n--decoder-last-pipeline-num-layers 3\n",
          {"refused decoder_first_pipeline_num_layers"}}});
  check("megatron", "m.args", "",
        {{"--num-layers 2 --hidden-size 64 --num-attention-heads 4 --micro-batch-size 1 --seq-length 64 "
          "--vocab-size 128 --bf16\n",
          {"n_layer: 2", "n_embd: 64"}},
         {"torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 "
          "--swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear "
          "--micro-batch-size 1 --seq-length 64 --vocab-size 128 --bf16\n",
          {"model_type: llama", "num_hidden_layers: 2"}},
         {kMegatron + "--global-batch-size 60\n",
          {"refused global_batch_size: 60: not a multiple of 1 sequences on each"}},
         {"# a comment with --num-layers 3 in it\n--num-layers 2\n--hidden-size 64\n--num-attention-heads 4\n"
          "--micro-batch-size 1\n--seq-length 64\n--vocab-size 128\n",
          {"n_layer: 2"}}});
}

TEST_CASE("keys of torchtitan", "[foreign]") {
  check("torchtitan", "t.toml", kTitan,
        {{"[parallelism]\ncontext_parallel_degree = 2\ncontext_parallel_rotate_method = \"alltoall\"\n",
          {"cp_comm_type: \"p2p\""}},
         {"[parallelism]\ncontext_parallel_degree = 2\n", {"cp_comm_type: \"all_gather\""}},
         {"[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule_csv = \"s.csv\"\n",
          {"cannot parallelism.pipeline_parallel_schedule_csv"}},
         {"[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_split_points = [\"layers.3\"]\n",
          {"cannot module_fqns_per_model_part"}},
         {"[activation_checkpoint]\nmode = \"full\"\n", {"activation_checkpointing: \"full\""}}});
  check("torchtitan", "t.toml", "[training]\nseq_len = 128\n[model]\n",
        {{"name = \"flux\"\nflavor = \"dev\"\n", {"refused model.name: flux"}},
         {"name = \"llama3\"\nflavor = \"1B\"\n", {"asks model llama3 1B: --model NAME"}},
         {"name = \"llama3\"\nflavor = \"1B\"\nhf_assets_path = \"./assets/hf/Llama-3.2-1B\"\n",
          {"meta-llama/Llama-3.2-1B"},
          {"asks model"}},
         {"name = \"llama3\"\nflavor = \"8B\"\nconverters = [\"mx\"]\n", {"cannot model.converters: mx"}},
         {"name = \"llama3\"\nflavor = \"8B\"\nconverters = [\"float8\"]\n[float8]\nfilter_fqns = [\"output\"]\n",
          {"fp8:", "enabled: true", "filter_fqns: [\"lm_head\"]"}}});
  const std::string json = R"({"parallelism": {}, "model_spec": {"name": "llama3", "flavor": "8B"}, "training": )";
  check("torchtitan", "t.json", json,
        {{R"({"num_tokens_per_microbatch_per_dp_rank": 100, "max_context_length": 64}})",
          {"refused training.num_tokens_per_microbatch_per_dp_rank: 100: not a multiple of max_context_length"}},
         {R"({"num_tokens_per_microbatch_per_dp_rank": 128, "max_context_length": 64}})",
          {"local_batch_size: 2", "global_batch_size: 16"}},
         {R"({"num_tokens_per_microbatch_per_dp_rank": 64, "max_context_length": 64},
             "activation_checkpoint": {"memory_budget": 0.5}})",
          {"cannot activation_checkpoint.memory_budget"}}});
}

TEST_CASE("keys of torchtune, and files that do not go together", "[foreign]") {
  const std::string tune =
      "# tune run lora_finetune_single_device --config x\nmodel: {_component_: "
      "torchtune.models.llama3_1.lora_llama3_1_8b}\n"
      "tokenizer: {max_seq_len: 128}\nbatch_size: 1\ndataset: {packed: false}\n"
      "optimizer: {_component_: torch.optim.AdamW, lr: 1e-5}\n";
  check("torchtune", "t.yaml", tune,
        {{"", {"refused lora_finetune_single_device: a recipe for one device, not for 8"}}});
  check("torchtune", "t.yaml", tune, {{"", {"asks model._component_: lora_llama3_1_8b: --model NAME"}, {"refused"}}},
        {.world_size = 1});
  check("torchtune", "t.yaml", tune + "checkpointer: {checkpoint_dir: /tmp/Llama-3.2-1B/}\n",
        {{"", {"meta-llama/Llama-3.2-1B"}, {"asks model"}}}, {.world_size = 1});
  auto several = tune;
  several.replace(several.find("single_device"), 13, "distributed");
  check("torchtune", "t.yaml", several, {{"", {"note lora_finetune_distributed: planned as on one device"}}},
        {.world_size = 1});
  check("axolotl", "a.yaml", kAxolotl,
        {{"", {"error[usage]: --from", "one trainer's configuration, and beside it one of accelerate"}}},
        {.world_size = 8}, {{"trl", "t.yaml", kTrl}});
}

}  // namespace automodel::foreign
