// torchtitan: TOML up to 0.2.2, JSON from 0.3.0 on (b5bcd76c), whose sizes after 0.3.0 are in tokens.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "foreign/model_name.h"
#include "foreign/trainers.h"

namespace automodel::foreign {
namespace {

constexpr const char* kTrainer = "torchtitan";
constexpr auto kNoEffect = std::to_array<KeyReason>({
    {"job", "logging"},
    {"profiling", "logging"},
    {"profiler", "logging"},
    {"metrics", "logging"},
    {"checkpoint", "saving"},
    {"comm", "time limits"},
    {"compile", "which kernel computes, not what"},
    {"validation", "validation"},
    {"validator", "validation"},
    {"debug", "checks"},
    {"dump_folder", "logging"},
    {"fault_tolerance", "restarts"},
    {"experimental", "code to load"},
    {"override", "code to load"},
    {"tokenizer", "which tokens are read"},
    {"dataloader", "which tokens are read"},
    {"memory_estimation", "a check"},
    {"hf_assets_path", "read"},
    {"float8", "model.converters does not switch it on"},
    {"quantize", "model.converters does not switch it on"},
    {"mx", "model.converters does not switch it on"},
});

struct Flavor {
  std::string_view family, flavor, model;
};
constexpr auto kFlavors = std::to_array<Flavor>({
    {"llama3", "8B", "meta-llama/Llama-3.1-8B"},
    {"llama3", "70B", "meta-llama/Llama-3.1-70B"},
    {"llama3", "405B", "meta-llama/Llama-3.1-405B"},
    {"qwen3", "0.6B", "Qwen/Qwen3-0.6B"},
    {"qwen3", "1.7B", "Qwen/Qwen3-1.7B"},
    {"qwen3", "4B", "Qwen/Qwen3-4B"},
    {"qwen3", "8B", "Qwen/Qwen3-8B"},
    {"qwen3", "14B", "Qwen/Qwen3-14B"},
    {"qwen3", "32B", "Qwen/Qwen3-32B"},
    {"qwen3", "30B-A3B", "Qwen/Qwen3-30B-A3B"},
    {"qwen3", "235B-A22B", "Qwen/Qwen3-235B-A22B"},
    {"deepseek_v3", "671B", "deepseek-ai/DeepSeek-V3"},
    {"gpt_oss", "20b", "openai/gpt-oss-20b"},
    {"gpt_oss", "120b", "openai/gpt-oss-120b"},
});

/// torchtitan's own "16B" of deepseek_v3 (torchtitan/models/deepseek_v3/__init__.py of 0.2.2): latent attention of
/// DeepSeek-V2-Lite, a vocabulary of 102400.
Sizes deepseek_16b() {
  Sizes out{.num_layers = 27,
            .hidden_size = 2048,
            .ffn_hidden_size = 10944,
            .num_attention_heads = 16,
            .num_query_groups = 16,
            .kv_channels = 128,
            .gated = true,
            .activation = "swiglu",
            .normalization = "RMSNorm",
            .position = "rope",
            .tied = false,
            .linear_bias = false};
  out.vocab_size = 102400;
  out.num_experts = 64;
  out.moe_router_topk = 6;
  out.moe_ffn_hidden_size = 1408;
  out.moe_layer_freq = 1;
  out.model_type = "deepseek_v3";
  out.further = {{"q_lora_rank", "null"},        {"kv_lora_rank", "512"}, {"qk_nope_head_dim", "128"},
                 {"qk_rope_head_dim", "64"},     {"v_head_dim", "128"},   {"n_shared_experts", "2"},
                 {"first_k_dense_replace", "1"}, {"n_group", "1"},        {"topk_group", "1"}};
  return out;
}

std::string last_part(std::string path) {
  while (path.ends_with('/')) path.pop_back();
  return path.substr(path.rfind('/') + 1);
}

/// JSON holds every layer; those of Llama's kind are read from the first.
void read_layers(Keys model, Resolved& out, Findings& findings) {
  const auto* layers = model.node({"layers"});
  if (layers == nullptr || layers->items.empty()) return;
  const auto& first = layers->items[0];
  Keys layer(&first, findings, "layers.0");
  auto attention = layer.section("attention"), mlp = layer.section("feed_forward");
  auto qkv = attention.section("qkv_linear");
  if (layer.given("moe") || !mlp.given("w1") || !attention.given("n_heads"))
    return findings.ask("model_spec.model", "layers with experts or of another kind are not read from JSON",
                        "--model NAME");
  Sizes sizes{
      .gated = true, .activation = "swiglu", .normalization = "RMSNorm", .position = "rope", .linear_bias = false};
  sizes.num_layers = static_cast<std::int64_t>(layers->items.size());
  sizes.hidden_size = model.integer({"dim"}).value_or(0);
  sizes.vocab_size = model.integer({"vocab_size"}).value;
  sizes.num_attention_heads = attention.integer({"n_heads"}).value_or(1);
  sizes.num_query_groups =
      qkv.integer({"n_kv_heads"}).value_or(attention.integer({"n_kv_heads"}).value_or(sizes.num_attention_heads));
  sizes.kv_channels =
      qkv.integer({"head_dim"}).value_or(sizes.hidden_size / std::max<std::int64_t>(1, sizes.num_attention_heads));
  sizes.ffn_hidden_size = mlp.section("w1").integer({"out_features"}).value_or(0);
  sizes.tied = model.flag({"enable_weight_tying"}).value_or(false);
  sizes.qk_norm = attention.given("qk_norm");
  auto rope = attention.section("rope");
  sizes.rope_theta = rope.number({"theta"}).value;
  sizes.max_position_embeddings = rope.integer({"max_context_length"}).value;
  sizes.model_type = sizes.qk_norm ? "qwen3" : "llama";
  out.sizes = sizes;
}

void read_model(Keys& keys, bool json, Resolved& out, Findings& findings) {
  auto spec = json ? keys.section("model_spec") : keys.section("model");
  const auto name = spec.text({"name"}).value_or(""), flavor = spec.text({"flavor"}).value_or("");
  out.model_name_flavor = {name, flavor};
  const auto assets = keys.text({"hf_assets_path"}), inside = spec.text({"hf_assets_path", "tokenizer_path"});
  const auto folder = last_part((assets ? assets : inside).value_or(""));
  const auto key = json ? "model_spec" : "model.name, model.flavor";
  const auto* row =
      std::ranges::find_if(kFlavors, [&](const Flavor& each) { return each.family == name && each.flavor == flavor; });
  if (name == "flux" || name == "llama3_siglip2" || name == "vlm")
    findings.refuse("model.name: " + name, "diffusion and vision models have no equivalent");
  if (name == "deepseek_v3" && flavor == "16B") {
    out.model = {fmt::format("deepseek-ai/{} (sizes by the flavor)", folder.empty() ? "deepseek-moe-16b-base" : folder),
                 key};
    out.sizes = deepseek_16b();
  } else if (row != kFlavors.end()) {
    const auto known = with_last_part(folder);
    out.model = {known.empty() ? std::string(row->model) : known, known.empty() ? key : "hf_assets_path"};
  } else if (json) {
    read_layers(spec.section("model"), out, findings);
  } else if (const auto known = with_last_part(folder); !known.empty() && flavor != "debugmodel") {
    out.model = {known, "hf_assets_path"};
  } else {
    findings.ask(fmt::format("model {} {}", name, flavor), "TOML does not hold the sizes of this flavor",
                 "--model NAME");
  }
  const auto converters = spec.list({"converters"});
  const bool float8 =
      std::ranges::any_of(converters, [](const auto& each) { return each.find("float8") != std::string::npos; });
  if (std::ranges::any_of(converters, [](const auto& each) { return each.find("mx") != std::string::npos; }))
    findings.cannot("model.converters: mx", "microscaled formats: planned in bfloat16");
  out.fp8 = {float8 ? "true" : "false", "model.converters"};
  if (float8) {
    auto options =
        keys.given("float8") ? keys.section("float8") : keys.section("quantize").section("linear").section("float8");
    for (const auto& each : options.list({"filter_fqns"}))
      out.fp8_filter.push_back(each == "output" ? "lm_head" : each);
  }
  spec.no_effect(std::array{KeyReason{"*", "read from the flavor"}});
}

void read_mesh(Keys mesh, const Surroundings& around, bool json, Keys compile, Resolved& out, Findings& findings) {
  const auto size = [&](const char* key) { return mesh.ranks({key}).or_default(1, kTrainer); };
  out.tp = size("tensor_parallel_degree");
  out.pp = size("pipeline_parallel_degree");
  out.cp = size("context_parallel_degree");
  out.ep = size("expert_parallel_degree");
  if (*out.ep > 1) out.etp = size("expert_tensor_parallel_degree");
  mesh.take("expert_tensor_parallel_degree");
  const auto copies = size("data_parallel_replicate_degree");
  if (*copies > 1) out.dp_replicate = copies;
  const auto shard = mesh.integer({"data_parallel_shard_degree"}).or_default(-1, kTrainer);
  const auto others = times(times(*out.tp, *out.pp), times(*out.cp, *copies));
  const auto shards = *shard > 0                            ? *shard
                      : around.world_size > 0 && others > 0 ? std::max<std::int64_t>(1, around.world_size / others)
                                                            : 2;
  if (*shard > 0 && around.world_size > 0 && times(*shard, others) != around.world_size)
    findings.refuse(
        fmt::format("data_parallel_shard_degree: {}", *shard),
        fmt::format("the degrees multiply to {}, not to {} ranks", times(*shard, others), around.world_size));
  const bool sharded = shards > 1 || *out.cp > 1;
  out.strategy = {sharded ? "fsdp2" : "ddp", shard.key};
  out.zero_stage = sharded ? 3 : 0;
  out.defer_gradient_sync = {false, "torchtitan reduces gradients after every pass (its PR 1710)"};
  const auto sequence = mesh.flag({"enable_sequence_parallel"}).or_default(true, kTrainer);
  out.sequence_parallel = {*out.tp > 1 && *sequence, *sequence ? "tensor_parallel_degree" : sequence.key};
  if (*out.tp > 1 && (mesh.flag({"enable_async_tensor_parallel"}).value_or(false) ||
                      compile.flag({"enable_async_tensor_parallel"}).value_or(false)))
    out.async_tp = {true, "enable_async_tensor_parallel"};
  mesh.take("enable_async_tensor_parallel");
  if (*out.cp > 1)
    out.cp_comm_type = {
        mesh.text({"context_parallel_rotate_method"}).value_or("allgather") == "alltoall" ? "p2p" : "all_gather",
        out.cp.key};
  const auto reshard = mesh.text({"fsdp_reshard_after_forward"}).or_default("default", kTrainer);
  if (*reshard != "default") out.reshard_after_forward = {*reshard == "always", reshard.key};
  const auto schedule = mesh.text({"pipeline_parallel_schedule"}).or_default("1F1B", kTrainer);
  if (*out.pp > 1) {
    out.pp_schedule = schedule;
    if (mesh.active("pipeline_parallel_schedule_csv"))
      findings.cannot(mesh.shown("pipeline_parallel_schedule_csv"),
                      "give the table as distributed.pipeline.pp_schedule_csv");
    if (mesh.active("module_fqns_per_model_part") || mesh.active("pipeline_parallel_split_points"))
      findings.cannot("module_fqns_per_model_part", "stages of the file's own: planned evenly split");
    const auto first = mesh.integer({"pipeline_parallel_first_stage_less_layers"}).or_default(1, kTrainer),
               last = mesh.integer({"pipeline_parallel_last_stage_less_layers"}).or_default(1, kTrainer);
    if (*first > 0 || *last > 0)
      findings.note("pipeline_parallel_*_stage_less_layers",
                    "planned with layers split evenly; there the first and last stage have fewer");
  }
  mesh.no_effect(std::array{
      KeyReason{"*", json ? "how the mesh is made, or of pipelines" : "of pipelines, or how the mesh is made"}});
}

void read_batch(Keys& training, Keys& mesh, const Surroundings& around, Resolved& out, Findings& findings) {
  out.packing = Packing::kConcatenated;
  const auto tokens = training.integer({"num_tokens_per_microbatch_per_dp_rank"});
  const auto ranks = times(times(*out.tp, *out.pp), *out.cp);
  const auto dp = around.world_size > 0 && ranks > 0 ? around.world_size / ranks : 0;
  if (tokens) {
    out.seq_length = training.integer({"max_context_length"});
    const auto microbatches = *out.pp > 1 ? mesh.ranks({"num_pp_microbatches"}).value_or(1) : 1;
    mesh.take("num_pp_microbatches");
    if (!out.seq_length || *out.seq_length < 1 || *tokens % *out.seq_length != 0)
      return findings.refuse(training.shown("num_tokens_per_microbatch_per_dp_rank"),
                             "not a multiple of max_context_length");
    out.tokens_per_microbatch = tokens;
    out.micro_batch = {*tokens / *out.seq_length, "num_tokens_per_microbatch_per_dp_rank / max_context_length"};
    const auto step = training.integer({"num_tokens_per_train_step"}).or_default(-1, kTrainer);
    const auto whole = *step > 0 ? *step : times(times(*tokens, microbatches), dp);
    if (dp > 0) {
      out.tokens_per_step = {whole, step.key};
      out.global_batch = {whole / *out.seq_length, "num_tokens_per_train_step / max_context_length"};
    }
    return;
  }
  out.seq_length = training.integer({"seq_len"}).or_default(2048, kTrainer);
  out.local_batch_size = training.integer({"local_batch_size", "batch_size"}).or_default(8, kTrainer);
  out.micro_batch =
      *out.pp > 1 ? mesh.integer({"pipeline_parallel_microbatch_size"}).or_default(1, kTrainer) : out.local_batch_size;
  mesh.take("pipeline_parallel_microbatch_size");
  const auto global = training.integer({"global_batch_size"}).or_default(-1, kTrainer);
  if (dp > 0)
    out.global_batch = {*global > 0 ? *global : times(*out.local_batch_size, dp),
                        *global > 0 ? global.key : "local_batch_size x data-parallel ranks"};
}

std::string type_name(const std::string& text) {
  return text == "bf16" ? "bfloat16" : text;
}

void read_types(Keys& training, Resolved& out) {
  const auto stored = training.text({"dtype"}).or_default("float32", kTrainer);
  const auto compute = training.text({"mixed_precision_param"}).or_default("bfloat16", kTrainer);
  const auto reduce = training.text({"mixed_precision_reduce"}).or_default("float32", kTrainer);
  out.dtype = {type_name(*compute), compute.key};
  out.reduce_dtype = {type_name(*reduce), reduce.key};
  out.master_dtype = {type_name(*stored), stored.key};
  out.weights_dtype = *out.strategy == "ddp" ? *out.master_dtype : *out.dtype;  // DDP computes under autocast
  out.optimizer_states = *out.master_dtype;
  const bool offload = training.flag({"enable_cpu_offload"}).value_or(false);
  out.offload = {offload ? "params+grads+optimizer" : "none", "training.enable_cpu_offload"};
}

void read_recomputation(Keys& keys, bool json, Resolved& out, Findings& findings) {
  const bool given = keys.given("activation_checkpoint");
  auto section = keys.section("activation_checkpoint");
  if (json) {
    if (section.active("memory_budget"))
      findings.cannot(section.shown("memory_budget"),
                      "a budget decides what is recomputed: planned without recomputation");
    const bool none = !given || section.given("memory_budget");
    out.recompute = {none                                                 ? "none"
                     : section.given("force_recompute_mm_shapes_by_fqns") ? "selective"
                                                                          : "full",
                     "activation_checkpoint"};
    return;
  }
  const auto mode = section.text({"mode"}).or_default("selective", kTrainer);
  const auto option = section.text({"selective_ac_option"}).or_default("2", kTrainer);
  section.no_effect(std::array{KeyReason{"*", "details of selective recomputation"}});
  out.recompute = mode;
  if (*mode != "selective") return;
  out.recompute_option = option;
  if (*option == "op") return;
  findings.cannot("activation_checkpoint.selective_ac_option: " + *option,
                  "every n-th layer is recomputed whole: planned as selective recomputation in all");
}

void read_optimizer(Keys& keys, Keys& training, const Surroundings& around, Resolved& out, Findings& findings) {
  auto section = keys.section("optimizer");
  std::optional<Keys> group, options;
  if (const auto* groups = section.node({"param_groups"}); groups != nullptr && !groups->items.empty()) {
    if (groups->items.size() > 1) findings.cannot("optimizer.param_groups", "several groups: planned with the first");
    group.emplace(&groups->items[0], findings, "optimizer.param_groups.0");
    options.emplace(group->section("optimizer_kwargs"));
  }
  Keys& values = options ? *options : section;
  apply_optimizer((group ? group->text({"optimizer_name"}) : section.text({"name"})).or_default("AdamW", kTrainer),
                  around, out, findings);
  out.lr = values.number({"lr"}).or_default(8e-4, kTrainer);
  out.weight_decay = values.number({"weight_decay"}).or_default(0.1, kTrainer);
  out.eps = values.number({"eps"}).or_default(1e-8, kTrainer);
  const auto betas = values.list({"betas"});
  out.betas = {{betas.size() == 2 ? std::strtod(betas[0].c_str(), nullptr) : values.number({"beta1"}).value_or(0.9),
                betas.size() == 2 ? std::strtod(betas[1].c_str(), nullptr) : values.number({"beta2"}).value_or(0.95)},
               "optimizer"};
  out.max_grad_norm = training.number({"max_norm"}).or_default(1.0, kTrainer);
  out.max_steps = training.integer({"steps"});
  auto schedule = keys.section("lr_scheduler");
  out.warmup_steps = schedule.integer({"warmup_steps"});
  const auto decay = schedule.text({"decay_type"}).or_default("linear", kTrainer);
  const auto floor = schedule.number({"min_lr_factor", "lr_min"}).value_or(0.0);
  if (*decay == "linear" || *decay == "cosine") {
    out.lr_decay_style = decay;
    out.min_lr = {floor * *out.lr, "lr_scheduler.min_lr_factor"};
  }
  schedule.no_effect(std::array{KeyReason{"*", "learning rates of a plan do not matter"}});
  section.no_effect(std::array{KeyReason{"*", "which kernel computes, not what"}});
}

}  // namespace

void read_torchtitan(const SourceFile& file, const Surroundings& around, Resolved& out, Findings& findings) {
  Keys keys(&file.root, findings);
  out.stack = "pytorch";
  const bool json = keys.given("model_spec");
  auto training = keys.section("training"), mesh = keys.section("parallelism");
  read_model(keys, json, out, findings);
  read_mesh(mesh, around, json, keys.section("compile"), out, findings);
  read_batch(training, mesh, around, out, findings);
  read_types(training, out);
  read_recomputation(keys, json, out, findings);
  read_optimizer(keys, training, around, out, findings);
  training.no_effect(std::array{KeyReason{"dataset*", "which tokens are read"}, KeyReason{"gc_*", "garbage collection"},
                                KeyReason{"compile", "which kernel computes, not what"},
                                KeyReason{"seed", "initial values"},
                                KeyReason{"deterministic", "which kernel computes, not what"},
                                KeyReason{"disable_cuda_graphs", "which kernel computes, not what"}});
  training.leftovers(kTrainer);
  if (auto loss = keys.section("loss"); loss.integer({"num_chunks"}).value_or(0) > 1)
    out.chunked_ce = {true, "loss.num_chunks"};
  keys.no_effect(kNoEffect);
  keys.leftovers(kTrainer);
}

}  // namespace automodel::foreign
