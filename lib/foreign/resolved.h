// What a configuration of another trainer means, in the same words for all of them. One place turns it into a recipe
// (recipe_text.h).
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace automodel::foreign {

/// The product, or the largest number: files may hold any.
inline std::int64_t times(std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  return __builtin_mul_overflow(a, b, &out) ? std::numeric_limits<std::int64_t>::max() : out;
}

/// A value and the key that it comes from, which the recipe's comments name.
template <class T>
struct Setting {
  std::optional<T> value = {};
  std::string key = {};  ///< "micro_batch_size", or "default of TRL"

  Setting() = default;
  Setting(T given, std::string from) : value(std::move(given)), key(std::move(from)) {}

  explicit operator bool() const { return value.has_value(); }
  /// Without a value T's own: a value of the wrong type has been reported, and what is read goes no further.
  const T& operator*() const {
    static const T none{};
    return value ? *value : none;
  }
  const T* operator->() const { return &**this; }
  T value_or(T other) const { return value.value_or(std::move(other)); }
  /// Where the key is absent, the trainer's default.
  Setting or_default(T other, const std::string& trainer) const {
    return value ? *this : Setting{std::move(other), "default of " + trainer};
  }
};

/// Sizes of a model that the configuration spells out, in Megatron's words.
struct Sizes {
  std::int64_t num_layers = 0, hidden_size = 0, ffn_hidden_size = 0, num_attention_heads = 0, num_query_groups = 0,
               kv_channels = 0;
  bool gated = false;
  std::string activation = {};     ///< gelu, swiglu, squared_relu
  std::string normalization = {};  ///< LayerNorm, RMSNorm
  std::string position = {};       ///< rope, learned_absolute, none
  bool tied = true, linear_bias = true, qkv_bias = false, qk_norm = false;
  std::optional<std::int64_t> vocab_size = {};  ///< padded as the trainer pads it
  std::optional<std::int64_t> num_experts = {}, moe_router_topk = {}, moe_ffn_hidden_size = {}, moe_layer_freq = {};
  std::optional<std::int64_t> max_position_embeddings = {};
  std::optional<double> rope_theta = {};
  std::string model_type = {};                                    ///< of config.json: llama, mixtral, gpt2, ...
  std::vector<std::pair<std::string, std::string>> further = {};  ///< keys of config.json and their YAML text
};

struct Adapter {
  std::int64_t dim = 8, alpha = 16;
  double dropout = 0;
  bool dora = false;
  std::vector<std::string> targets = {};  ///< empty: all linear layers but the output head
};

enum class Packing { kUnknown, kNone, kDocuments, kConcatenated };
enum class Gradients { kUnknown, kFloat32, kBfloat16 };

/// Field names are the keys of `from.resolved` in plan --json. A field without a value: the files do not say.
struct Resolved {
  Setting<std::string> model = {};
  std::string catalogue_name = {};  ///< what the recipe names instead: the original of a mirror
  std::optional<std::pair<std::string, std::string>> model_name_flavor = {};  ///< torchtitan
  std::string builder = {};                                                   ///< torchtune
  std::optional<Sizes> sizes = {};

  Setting<std::int64_t> tp = {1, ""}, pp = {1, ""}, cp = {1, ""}, ep = {1, ""};
  Setting<std::int64_t> etp = {}, dp_replicate = {}, vpp = {};
  std::int64_t dp = 0;  ///< replicated times sharded ranks; 0: not known
  Setting<bool> sequence_parallel = {}, async_tp = {};
  Setting<std::string> cp_comm_type = {};

  Setting<std::string> strategy = {};  ///< ddp, fsdp2, megatron_fsdp
  int zero_stage = 0;
  std::string copy_per_machine = {};       ///< the key that asks for a whole copy on each machine
  Setting<bool> defer_gradient_sync = {};  ///< FSDP reduces gradients after the last pass of a step only
  Setting<bool> reshard_after_forward = {}, overlap_grad_reduce = {}, overlap_param_gather = {};

  Setting<std::int64_t> micro_batch = {}, grad_accumulation = {}, global_batch = {}, local_batch_size = {};
  Setting<std::int64_t> tokens_per_microbatch = {}, tokens_per_step = {};
  Setting<std::string> global_batch_schedule = {};
  Setting<std::int64_t> seq_length = {};
  Packing packing = Packing::kUnknown;
  std::string packing_key = {};  ///< of kDocuments

  Setting<std::string> dtype = {};  ///< of computation
  Setting<std::string> master_dtype = {}, reduce_dtype = {};
  Setting<std::string> grad_accum_dtype = {};  ///< of gradients summed over microbatches
  std::string weights_dtype = {};              ///< as stored, where it is not `dtype`: float32 under autocast
  Setting<std::string> fp8 = {};               ///< "false", "true", or Megatron's format
  std::vector<std::string> fp8_filter = {};
  Setting<bool> grad_fusion = {};

  Setting<std::string> recompute = {}, recompute_option = {};  ///< none, selective, full
  std::vector<std::string> recompute_modules = {};             ///< Megatron's selective recomputation
  Setting<std::string> offload = {};  ///< none, optimizer, params, params+optimizer, params+grads+optimizer

  Setting<std::string> optimizer = {};  ///< adamw, adam, muon, sgd
  std::string optimizer_states = {};
  Setting<double> lr = {}, min_lr = {}, weight_decay = {}, eps = {}, max_grad_norm = {};
  bool no_clipping = false;
  Setting<std::array<double, 2>> betas = {};
  Setting<std::string> lr_decay_style = {};
  Setting<std::int64_t> warmup_steps = {}, decay_steps = {}, max_steps = {}, epochs = {};
  Setting<std::int64_t> seed = {};

  Setting<Adapter> adapter = {};
  Setting<std::string> quantization = {};  ///< nf4, nf4-double, int8
  Setting<bool> fused_linear_ce = {}, chunked_ce = {};
  Setting<double> neftune = {};

  Setting<std::string> pp_schedule = {};
  std::string pipeline_layout = {};  ///< Megatron's, or made from stages that hold no layers
  std::vector<std::int64_t> layers_per_stage = {};
  bool account_for_embedding = false, account_for_loss = false;

  std::vector<std::pair<std::string, std::string>> model_parallel = {};  ///< further keys of that section, YAML text
  std::vector<std::string> freeze_all_but = {};                          ///< modules that train; empty: all
  /// Of a model with pictures, what does not train, and its modules; none of it otherwise.
  Setting<bool> freeze_vision_tower = {}, freeze_projector = {}, freeze_language_model = {};
  std::string vision_tower = {}, projector = {};
  std::string stack = {};       ///< hardware.stack
  std::string dispatcher = {};  ///< hardware.dispatcher; empty: the stack's own
  bool sizes_exceeded = false;  ///< seq_length is above the model's own limit

  /// Everything in host memory: fsdp2's offload_policy, whatever shards it there.
  bool offloads_all() const { return offload.value_or("none").find('+') != std::string::npos; }
  bool planned_as_fsdp2() const { return offloads_all() || strategy.value_or("") == "fsdp2"; }
  /// Weights in the type of computation with masters beside them, as Megatron and DeepSpeed keep them.
  bool weights_by_model_parallel() const {
    return dtype && *dtype != "float32" && weights_dtype == *dtype && master_dtype.value_or("float32") == "float32" &&
           (!planned_as_fsdp2() || *dtype == "float16");
  }
  /// PyTorch's `ddp` has no masters: ZeRO 0 is what has them under every stack.
  std::string planned_strategy() const {
    if (offloads_all()) return "fsdp2";
    const auto own = strategy.value_or("ddp");
    return own == "ddp" && weights_by_model_parallel() && !adapter ? "megatron_fsdp" : own;
  }
};

}  // namespace automodel::foreign
