#include "plan/shrink.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/error.h"
#include "plan/context_choice.h"

namespace automodel::plan {
namespace {

using config::Value;

constexpr int kHeadDim = 8, kTowerHeads = 2;

/// The sizes of the small model.
struct Sizes {
  int kv_heads, heads, hidden, inner, vocab, length, experts = 0, experts_per_token = 0, head_dim = kHeadDim;
};

int least_multiple(int of, int at_least) {
  return (std::max(at_least, 1) + of - 1) / of * of;
}

Sizes sizes_of(const arch::ModelSpec& spec, const mesh::MeshSizes& mesh) {
  Sizes out{};
  const int both = mesh.tp * mesh.cp;
  const int unit = spec.kv_heads % both == 0 ? both : spec.kv_heads % mesh.tp == 0 ? mesh.tp : spec.kv_heads;
  out.kv_heads = unit == 1 && spec.kv_heads % 2 == 0 ? 2 : unit;
  if (spec.full_heads && spec.full_heads->kv_heads != spec.kv_heads) out.kv_heads = 2 * unit;  // the others have half
  int grouped = std::min(spec.heads / std::max(1, spec.kv_heads), 2);
  if (spec.heads % both == 0)
    while (out.kv_heads * grouped % both != 0) ++grouped;
  out.heads = out.kv_heads * std::max(1, grouped);
  out.hidden = least_multiple(both, out.heads * kHeadDim);
  out.inner = 16 * both;
  out.vocab = 64 * mesh.tp;
  out.length = 8 * both * (mesh.cp > 1 ? 2 : 1);
  if (spec.vision) out.vocab = spec.vocab;  // rows are texts of its tokenizer
  const auto& sections = spec.rope.sections;
  if (sections[0] + sections[1] + sections[2] > 0) out.head_dim = spec.head_dim;  // which they divide
  return out;
}

/// A configuration key and its new value, applied if the key is present and not null.
struct Replacement {
  const char* key;
  int value;
};

/// LongRoPE has one factor per pair of head dimensions. Heads of latent attention say how many dimensions are rotated,
/// and their share would be another. RoPE rotates pairs: Phi-2's 0.4 of 8 dimensions become 2.
void shrink_rope(Value& config, const arch::ModelSpec& spec) {
  constexpr const char* kShare = "partial_rotary_factor";
  if (spec.latent && config.find(kShare) != nullptr) config.set(kShare, nullptr);
  const auto* share = config.find(kShare);
  if (share != nullptr && share->number() != nullptr) {
    const int rotated = static_cast<int>(kHeadDim * *share->number());
    if (rotated % 2 != 0) config.set(kShare, static_cast<double>(std::max(2, rotated - 1)) / kHeadDim);
  }
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto* rope = config.find(key);
    if (rope == nullptr || rope->map() == nullptr) continue;
    Value changed = *rope;
    if (spec.latent && rope->find(kShare) != nullptr) changed.set(kShare, nullptr);
    for (const char* list : {"short_factor", "long_factor"}) {
      const auto* factors = rope->find(list);
      if (factors == nullptr || factors->list() == nullptr) continue;
      auto shorter = *factors->list();
      shorter.resize(std::min<std::size_t>(shorter.size(), kHeadDim / 2));
      changed.set(list, Value(std::move(shorter)));
    }
    config.set(key, changed);
  }
}

/// Adjusts the head groups of individually configured layers (nemotron-nas). MLP widths are factors and need no change.
void shrink_blocks(Value& config, const Sizes& sizes) {
  const auto* blocks = config.find("block_configs");
  if (blocks == nullptr || blocks->list() == nullptr) return;
  auto changed = *blocks->list();
  for (auto& block : changed) {
    const auto* attention = block.find("attention");
    if (attention == nullptr || attention->map() == nullptr) continue;
    Value smaller = *attention;
    if (const auto* group = attention->find("n_heads_in_group"); group != nullptr && !group->is_null())
      smaller.set("n_heads_in_group", sizes.heads / sizes.kv_heads);
    block.set("attention", smaller);
  }
  config.set("block_configs", Value(std::move(changed)));
}

/// The heads of full-attention layers and of those with a window still differ.
void shrink_full_heads(Value& config, const arch::ModelSpec& spec, const Sizes& sizes) {
  for (const char* key : {"per_layer_config", "attention_other_setting"})
    if (config.find(key) != nullptr) config.set(key, nullptr);
  if (spec.model_type == "gemma4_text") {
    config.set("global_head_dim", 2 * kHeadDim);
    config.set("num_global_key_value_heads",
               spec.full_heads->kv_heads == spec.kv_heads ? sizes.kv_heads : sizes.kv_heads / 2);
  } else if (spec.model_type == "mimo_v2_flash") {
    config.set("num_key_value_heads", sizes.kv_heads / 2);  // of full-attention layers
  } else if (spec.model_type == "step3p5") {
    config.set("num_sliding_attention_heads", 2 * sizes.heads);
  } else if (config.find("num_attention_heads_per_layer") != nullptr) {
    Value::List heads;
    for (int layer = 0; layer < spec.layers; ++layer)
      heads.emplace_back(std::int64_t{spec.slides(layer) ? 2 * sizes.heads : sizes.heads});
    config.set("num_attention_heads_per_layer", Value(std::move(heads)));
  }
}

Value shrink_config(Value config, const arch::ModelSpec& spec, const mesh::MeshSizes& mesh, Sizes& sizes) {
  if (spec.moe) {
    const int step = std::lcm(std::max(1, mesh.ep), spec.moe->groups);
    sizes.experts_per_token = std::min(spec.moe->top_k, 2);
    sizes.experts = std::min(spec.moe->experts, least_multiple(step, std::max(2 * step, 2 * sizes.experts_per_token)));
  }
  const int both = mesh.tp * mesh.cp;
  const std::vector<Replacement> table = {
      {"hidden_size", sizes.hidden},
      {"n_embd", sizes.hidden},
      {"word_embed_proj_dim", sizes.hidden},
      {"num_attention_heads", sizes.heads},
      {"n_head", sizes.heads},
      {"num_key_value_heads", sizes.kv_heads},
      {"num_attention_groups", sizes.kv_heads},
      {"intermediate_size", sizes.inner},
      {"dense_intermediate_size", sizes.inner},
      {"shared_intermediate_size", sizes.inner},
      {"n_inner", sizes.inner},
      {"ffn_dim", sizes.inner},
      {"moe_intermediate_size", sizes.inner},
      {"vocab_size", sizes.vocab},
      {"num_experts", sizes.experts},
      {"num_local_experts", sizes.experts},
      {"n_routed_experts", sizes.experts},
      {"moe_num_experts", sizes.experts},
      {"num_experts_per_tok", sizes.experts_per_token},
      {"num_experts_per_token", sizes.experts_per_token},
      {"moe_k", sizes.experts_per_token},
      {"moe_topk", sizes.experts_per_token},
      {"experts_per_token", sizes.experts_per_token},
      {"top_k_experts", sizes.experts_per_token},
      {"moe_top_k", sizes.experts_per_token},
      {"q_lora_rank", 16},
      {"kv_lora_rank", 16},
      {"qk_nope_head_dim", kHeadDim},
      {"qk_rope_head_dim", 4},
      {"v_head_dim", kHeadDim},
      {"sliding_window", 8},
      {"head_dim", sizes.head_dim},
      {"shared_expert_intermediate_size", sizes.inner},
      {"share_expert_dim", sizes.inner},
      {"share_expert_dims", sizes.inner},
      {"query_pre_attn_scalar", kHeadDim},
      {"moe_shared_expert_intermediate_size", sizes.inner},
      {"moe_latent_size", 16},
      {"expert_hidden_dim", sizes.inner},
      {"rotary_dim", kHeadDim / 2},
      {"index_n_heads", 2},
      {"index_head_dim", kHeadDim},
      // Recurrent mixers: one key group per tensor- and context-parallel rank, serving two heads.
      {"linear_num_key_heads", both},
      {"linear_num_value_heads", 2 * both},
      {"linear_key_head_dim", kHeadDim},
      {"linear_value_head_dim", kHeadDim},
      {"mamba_num_heads", 2 * both},
      {"mamba_n_heads", 2 * both},
      {"num_heads", 2 * both},
      {"mamba_head_dim", kHeadDim},
      {"mamba_d_head", kHeadDim},
      {"mamba_d_ssm", 2 * both * kHeadDim},
      {"n_groups", both},
      {"mamba_n_groups", both},
      {"ssm_state_size", kHeadDim},
      {"mamba_d_state", kHeadDim},
      {"state_size", kHeadDim},
  };
  for (const auto& [key, value] : table) {
    const auto* found = config.find(key);
    if (found != nullptr && !found->is_null()) config.set(key, value);
  }
  shrink_blocks(config, sizes);
  if (spec.full_heads) shrink_full_heads(config, spec, sizes);
  if (spec.layer_input > 0) {
    config.set("hidden_size_per_layer_input", kHeadDim);
    config.set("vocab_size_per_layer_input", sizes.vocab);
  }
  if (spec.compressed) {  // several entries in a sequence, of which an index chooses two
    config.set("compress_rates", Value::Map{{"compressed_sparse_attention", 2}, {"heavily_compressed_attention", 4}});
    config.set("index_topk", 2);
    config.set("o_groups", std::gcd(sizes.heads, 2));
    config.set("o_lora_rank", kHeadDim);
    config.set("partial_rotary_factor", nullptr);
    if (config.find("rope_parameters") != nullptr) config.set("rope_parameters", nullptr);
  }
  // Context-parallel ranks that do not divide the heads divide only what is seen whole.
  const bool whole =
      mesh.cp > 1 && !undivided_heads(spec.heads, spec.latent ? spec.heads : spec.kv_heads, mesh).empty();
  if (spec.index && spec.index->block > 0) {
    config.set("sparse_attention_config", nullptr);
    Value::List layers;
    for (const bool chooses : spec.index->layers) layers.emplace_back(chooses ? "minimax_m3_sparse" : "full_attention");
    config.set("layer_types", Value(std::move(layers)));
    config.set("index_n_heads", sizes.kv_heads);
    config.set("index_head_dim", kHeadDim);
    config.set("index_block_size", 2);
    config.set("index_topk_blocks", whole ? sizes.length : 2);
  }
  // Make the selection shorter than a sequence, if every layer has its own indexer and stages are therefore
  // independent.
  if (spec.index && spec.index->block == 0 &&
      std::find(spec.index->layers.begin(), spec.index->layers.end(), false) == spec.index->layers.end())
    config.set("index_topk", whole ? sizes.length : kHeadDim);
  // For families whose default head width is not hidden_size / heads.
  const bool latent = config.find("kv_lora_rank") != nullptr;
  if (config.find("head_dim") == nullptr && !latent &&
      (spec.head_dim * spec.heads != spec.hidden || sizes.head_dim != kHeadDim))
    config.set("head_dim", sizes.head_dim);
  if (!spec.vision)  // the vocabulary is another
    for (const char* key : {"pad_token_id", "bos_token_id", "eos_token_id"})
      if (config.find(key) != nullptr) config.set(key, nullptr);
  for (const char* key : {"n_positions", "n_ctx"})  // learned position table
    if (config.find(key) != nullptr) config.set(key, std::max(64, sizes.length));
  shrink_rope(config, spec);
  return config;
}

/// The tower has its patches, which the processor makes, and the layers that others refer to by number.
Value shrink_tower(Value config, const Sizes& sizes) {
  constexpr int kLayers = 3;
  for (const auto& [key, value] :
       {Replacement{"hidden_size", kTowerHeads * kHeadDim}, Replacement{"intermediate_size", 32},
        Replacement{"num_attention_heads", kTowerHeads}, Replacement{"num_heads", kTowerHeads},
        Replacement{"num_key_value_heads", kTowerHeads}, Replacement{"head_dim", kHeadDim},
        Replacement{"out_hidden_size", sizes.hidden}, Replacement{"width", kTowerHeads * kHeadDim},
        Replacement{"heads", kTowerHeads}, Replacement{"mlp_ratio", 2}})
    if (config.find(key) != nullptr) config.set(key, value);
  for (const char* key : {"num_hidden_layers", "layers"})
    if (const auto* layers = config.find(key); layers != nullptr && layers->integer() != nullptr)
      config.set(key, std::min<std::int64_t>(*layers->integer(), kLayers));
  if (const auto* types = config.find("layer_types"); types != nullptr && types->list() != nullptr) {
    auto fewer = *types->list();
    fewer.resize(std::min<std::size_t>(fewer.size(), kLayers));
    config.set("layer_types", Value(std::move(fewer)));
  }
  return config;
}

bool has_path(const config::ModelConfig& model) {
  return model.config() && model.config()->path.has_value();
}

void use_float64(config::Recipe& recipe) {
  recipe.model->torch_dtype = config::AutoDType{DType::kFloat64};
  if (recipe.teacher_model()) recipe.teacher_model->torch_dtype = config::AutoDType{DType::kFloat64};
  auto megatron = recipe.model_parallel();
  megatron.fp16 = false;
  megatron.bf16 = false;
  megatron.enable_autocast = false;
  megatron.params_dtype = std::nullopt;
  megatron.pipeline_dtype = std::nullopt;
  recipe.model_parallel = megatron;
  auto optimizer = recipe.optimizer();
  std::visit(
      [](auto& each) {
        if constexpr (requires { each.main_grads_dtype; })
          each.exp_avg_dtype = each.exp_avg_sq_dtype = each.main_grads_dtype = each.main_params_dtype =
              std::optional<DType>();
      },
      optimizer);
  recipe.optimizer = optimizer;
  if (auto quantization = recipe.quantization()) {  // the weights stay quantized, by whole tensors on every mesh
    quantization->compute_dtype = DType::kFloat64;
    recipe.quantization = quantization;
  }
  auto distributed = recipe.distributed();
  auto strategy = distributed.strategy();
  std::visit(
      [](auto& each) {
        if constexpr (requires { each.mp_policy; }) each.mp_policy = config::MixedPrecisionPolicy{};
        if constexpr (requires { each.autocast_dtype; }) each.autocast_dtype = std::nullopt;
      },
      strategy);
  distributed.strategy = strategy;
  if (auto pipeline = distributed.pipeline()) {
    pipeline->dtype = std::nullopt;
    pipeline->pp_seq_len = std::nullopt;
    distributed.pipeline = pipeline;
  }
  recipe.distributed = distributed;
}

/// Random data, a short run, and no output files.
void use_mock_data(config::Recipe& recipe, const TrainingPlan& plan, const Sizes& sizes, int steps) {
  auto scheduler = recipe.step_scheduler();
  const int runs = std::min(plan.batch.runs * plan.batch.merged, 2);
  scheduler.global_batch_size = plan.batch.local * plan.mesh.size(mesh::kDp) * runs;
  scheduler.max_steps = steps;
  scheduler.num_epochs = std::nullopt;
  recipe.step_scheduler = scheduler;
  if (plan.model->spec.vision) {
    config::MockPicturesDatasetConfig data;
    data.image_size = {64, 48};
    data.max_length = 8;  // words
    data.pretokenize = false;
    data.num_samples = scheduler.global_batch_size() * steps;
    recipe.dataset = config::DatasetConfig(data);
  } else {
    config::MockDatasetConfig data;
    data.vocab_size = sizes.vocab;
    data.seq_length = sizes.length;
    data.num_samples = scheduler.global_batch_size() * steps;
    recipe.dataset = config::DatasetConfig(data);
  }
  recipe.dataloader = config::DataloaderConfig{};
  recipe.validation_dataset = std::nullopt;
  recipe.validation_datasets = std::map<std::string, config::DatasetConfig>{};
  recipe.generation = std::nullopt;
  recipe.lr_scheduler = std::nullopt;
}

/// The section of a small model: `model` with small sizes, its weights from the seed.
config::ModelConfig shrink_model(config::ModelConfig model, const ModelChoice& choice, const mesh::MeshSizes& mesh,
                                 Sizes& sizes) {
  Diagnostics ignored;
  auto whole = config::to_value(config::parse_yaml(choice.config_text, "config.json", ignored));
  const auto* nested = whole.find("text_config");
  Value small = nested != nullptr && nested->map() != nullptr
                    ? Value(Value::Map{{"text_config", shrink_config(*nested, choice.spec, mesh, sizes)}})
                    : shrink_config(whole, choice.spec, mesh, sizes);
  if (const auto* tower = whole.find("vision_config"); choice.spec.vision && tower != nullptr)
    small.set("vision_config", shrink_tower(*tower, sizes));
  if (choice.spec.vision && choice.spec.vision->projector_width > 0) {
    small.set("out_hidden_size", kTowerHeads * kHeadDim * choice.spec.vision->merge * choice.spec.vision->merge);
    small.set("projector_hidden_size", 4 * kHeadDim);
  }
  if (choice.folder.empty() && (model.pretrained_model_name_or_path() || has_path(model))) {
    // A catalogue name, which only planning can resolve.
    Value entire = whole;
    for (const auto& [key, value] : *small.map()) entire.set(key, value);
    model.pretrained_model_name_or_path = std::nullopt;
    model.config = config::ModelSource{.inline_config = entire};
  } else {
    auto overrides = model.overrides();
    for (const auto& [key, value] : *small.map()) overrides.set(key, value);
    model.overrides = overrides;
    model.text_config = std::nullopt;  // part of `whole`
  }
  model.target = config::is_classifier(model.target()) ? config::ModelTarget::kClassifierFromConfig
                                                       : config::ModelTarget::kFromConfig;
  return model;
}

}  // namespace

Shrunk shrink(const config::LoadedRecipe& loaded, const TrainingPlan& plan) {
  AUTOMODEL_CHECK(plan.model.has_value(), "a recipe without a model is shrunk");
  const auto& mesh = plan.mesh.sizes();
  auto sizes = sizes_of(plan.model->spec, mesh);
  Shrunk out{.mesh = loaded, .single = {}};
  auto& recipe = out.mesh.recipe;
  recipe.model = shrink_model(*loaded.recipe.model(), *plan.model, mesh, sizes);
  if (plan.teacher) {  // as large as the student, so that one vocabulary serves both
    auto teachers = sizes_of(plan.teacher->model->spec, mesh);
    teachers.length = sizes.length;
    recipe.teacher_model = shrink_model(*loaded.recipe.teacher_model(), *plan.teacher->model, mesh, teachers);
  }
  use_float64(recipe);
  // Scales are of a rank's part of a microbatch, so 8-bit operands differ between meshes by design.
  const bool eight = recipe.fp8() && recipe.fp8()->enabled();
  recipe.fp8 = std::nullopt;
  use_mock_data(recipe, plan, sizes, out.steps);
  auto distributed = recipe.distributed();  // the resolved mesh
  distributed.dp_size = plan.mesh.size(mesh::kDp);
  recipe.distributed = distributed;

  out.single = out.mesh;
  config::DistributedConfig alone;
  alone.strategy = config::Strategy(config::DDPConfig{});
  out.single.recipe.distributed = alone;
  out.single.recipe.model_parallel = config::ModelParallelConfig{};
  if (plan.model->spec.router_sums() > 0) {  // router auxiliary losses are computed per microbatch
    auto scheduler = out.single.recipe.step_scheduler();
    scheduler.local_batch_size = plan.batch.microbatch;
    out.single.recipe.step_scheduler = scheduler;
  }
  out.summary = fmt::format(
      "hidden {}, {} heads, {} key-value heads, vocabulary {}, {}{}", sizes.hidden, sizes.heads, sizes.kv_heads,
      sizes.vocab,
      plan.model->spec.vision ? "a random picture per sequence" : fmt::format("{} tokens per sequence", sizes.length),
      sizes.experts > 0 ? fmt::format(", {} experts", sizes.experts) : "");
  if (eight) out.summary += ", without float8";
  return out;
}

}  // namespace automodel::plan
