#include "plan/tensor_choice.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "base/spelling.h"

namespace automodel::plan {
namespace {

using arch::Part;
using arch::Role;
using arch::TensorStyle;

/// "1, 2, 4": the common divisors of `sizes`.
std::string common_divisors(std::initializer_list<std::int64_t> sizes) {
  std::int64_t all = 0;
  for (const auto size : sizes) all = std::gcd(all, size);
  std::string out;
  for (std::int64_t d = 1; d <= std::min<std::int64_t>(all, 1024); ++d)
    if (all % d == 0) out += (out.empty() ? "" : ", ") + std::to_string(d);
  return out;
}

/// The sizes that divide the query heads and either divide the key-value heads or, with `shared`, are a multiple of
/// them.
std::string head_divisors(int heads, int kv_heads, bool shared) {
  std::string out;
  for (int d = 1; d <= std::min(heads, 1024); ++d)
    if (heads % d == 0 && (kv_heads % d == 0 || (shared && d % kv_heads == 0)))
      out += (out.empty() ? "" : ", ") + std::to_string(d);
  return out;
}

/// Checks one plan against one model.
class TensorCheck {
 public:
  TensorCheck(const ModelChoice& model, const arch::TensorPlan& plan, int tp, Located& report)
      : spec_(model.spec), layout_(model.layout), plan_(plan), tp_(tp), report_(report) {}

  /// `every`: checks each layer, because a recipe's own plan may differ between layers.
  void layers(bool every, const std::string& key) {
    std::set<int> seen;
    for (int layer = 0; layer < layout_.layer_count() && fine_; ++layer)
      if (seen.insert(layout_.kind_of[static_cast<std::size_t>(layer)]).second || every)
        for (const auto& block : arch::divided_blocks()) check(layer, block, key);
  }

  void divides(std::int64_t size, std::string_view name, const std::string& help) {
    if (size % tp_ == 0) return;
    fine_ = false;
    report_.refuse("indivisible", "distributed.tp_size")
        .says("{} {} is not divisible by tp_size {}", name, size, tp_)
        .hint(help)
        .exits(ExitCode::kRefused);
  }

 private:
  TensorStyle style_of(int layer, Part part) const {
    return plan_.style_of(layout_.layer_fqn(layer) + "." + layout_.kind(layer).module(part));
  }

  void misfit(const std::string& key, const std::string& message, const std::string& help) {
    fine_ = false;
    report_.refuse("tp-plan", key).says(message).hint(help);
  }

  void check(int layer, const arch::DividedBlock& block, const std::string& key) {
    std::optional<TensorStyle> first;
    std::string_view first_name;
    const auto& kind = layout_.kind(layer);
    for (const auto part : block.first) {
      if (!kind.has(part)) continue;
      const auto style = style_of(layer, part);
      const std::string_view name = kind.module(part);
      if (first && *first != style)
        return misfit(key,
                      fmt::format("{} and {} share their input but are split differently: {} and {}", first_name, name,
                                  arch::name_of(*first), arch::name_of(style)),
                      "give them the same style");
      first = style;
      first_name = name;
    }
    if (!first) return;
    if (block.role == Role::kAttention && spec_.latent) latent(layer, *first, key);
    if (block.role == Role::kRecurrence && *first != TensorStyle::kColwise)
      return misfit(
          key, "a recurrent mixer can only be split by heads",
          "colwise for its projections, convolutions and per-head parameters, rowwise for the last projection");
    for (const auto part : block.last) {
      if (!kind.has(part)) continue;
      const auto style = style_of(layer, part);
      if (!fit(*first, style, has_heads(block)))
        return misfit(
            key,
            fmt::format("{} is {} but {} is {}", first_name, arch::name_of(*first), kind.module(part),
                        arch::name_of(style)),
            "valid pairs are colwise with rowwise, and colwise_rep or replicated with rowwise_rep or replicated");
    }
    sizes(layer, block, *first);
  }

  /// The low-rank parts are shared by all heads, and the shared key is used by every rank's heads.
  void latent(int layer, TensorStyle first, const std::string& key) {
    if (first != TensorStyle::kColwise)
      misfit(key, "latent attention can only be split by heads", "colwise for q_b_proj (or q_proj) and kv_b_proj");
    for (const auto part : {Part::kQueryDown, Part::kKeyValueDown}) {
      if (!layout_.kind(layer).has(part)) continue;
      const auto style = style_of(layer, part);
      if (style != TensorStyle::kReplicated && style != TensorStyle::kSequence)
        misfit(key,
               fmt::format("{} is shared by all heads and cannot be {}", layout_.kind(layer).module(part),
                           arch::name_of(style)),
               "replicated or sequence_parallel");
    }
  }

  /// Ranks divide a state's heads and key groups, or the channels of a short convolution.
  void state() {
    const auto& state = *spec_.recurrence;
    if (state.heads == 0)
      return divides(spec_.hidden, "hidden_size", fmt::format("tp_size can be {}", common_divisors({spec_.hidden})));
    const auto possible = fmt::format("tp_size can be {} for this model", common_divisors({state.heads, state.groups}));
    divides(state.groups, "key groups of a recurrent layer:", possible);
    if (fine_) divides(state.heads, "heads of a recurrent layer:", possible);
  }

  static bool has_heads(const arch::DividedBlock& block) {
    return block.role == Role::kAttention || block.role == Role::kRecurrence;
  }

  static bool fit(TensorStyle first, TensorStyle last, bool heads) {
    const auto alike = [](TensorStyle style) {
      return style == TensorStyle::kReplicated || style == TensorStyle::kReplicatedSummedGradient;
    };
    if (first == TensorStyle::kColwise) return last == TensorStyle::kRowwise;
    if (first == TensorStyle::kSequence) return !heads && last == TensorStyle::kSequence;
    return (first == TensorStyle::kColwiseGathered || alike(first)) &&
           (last == TensorStyle::kRowwiseSplit || alike(last));
  }

  void sizes(int layer, const arch::DividedBlock& block, TensorStyle first) {
    if (first != TensorStyle::kColwise && first != TensorStyle::kColwiseGathered) return;
    if (block.role == Role::kRecurrence) return state();
    if (has_heads(block)) {
      // With more ranks than key-value heads, adjacent ranks hold the same head. This requires a separate key weight,
      // or an earlier layer's keys.
      const bool own =
          first == TensorStyle::kColwise && (layout_.kind(layer).has(Part::kKey) || !spec_.has_keys(layer));
      const bool shared = own && spec_.kv_heads < tp_ && tp_ % spec_.kv_heads == 0;
      const auto possible =
          fmt::format("tp_size can be {} for this model", head_divisors(spec_.heads, spec_.kv_heads, own));
      if (first == TensorStyle::kColwise && spec_.kv_heads != spec_.heads && !shared)
        divides(spec_.kv_heads, "num_key_value_heads", possible);
      divides(first == TensorStyle::kColwise ? spec_.heads : std::int64_t{spec_.kv_heads} * spec_.head_dim,
              first == TensorStyle::kColwise ? "num_attention_heads" : "the width of keys and values", possible);
    } else if (block.role == Role::kMlp) {
      const int width = spec_.ffn_of(layer);
      divides(width, spec_.ffns.empty() ? "intermediate_size" : fmt::format("the width of layer {}'s MLP", layer),
              fmt::format("tp_size can be {}", common_divisors({width})));
    } else if (spec_.moe) {
      divides(spec_.moe->shared_ffn, "the width of the shared experts",
              fmt::format("tp_size can be {}", common_divisors({spec_.moe->shared_ffn})));
    }
  }

  const arch::ModelSpec& spec_;
  const arch::Layout& layout_;
  const arch::TensorPlan& plan_;
  int tp_;
  Located& report_;
  bool fine_ = true;
};

/// Every name that a plan may mention.
std::vector<std::string> names_of(const arch::Layout& layout) {
  std::vector<std::string> out;
  for (const auto& parameter : arch::parameters(layout)) out.emplace_back(arch::plan_name(parameter.fqn));
  return out;
}

/// A recipe's mapping of patterns to styles. Patterns may omit the module that contains the decoder
/// ("layers.*.mlp...").
arch::TensorPlan read_mapping(const config::Value::Map& map, const arch::Layout& layout, const std::string& key,
                              Located& report) {
  arch::TensorPlan plan;
  const auto names = names_of(layout);
  const auto any = [&](std::string_view pattern) {
    return std::any_of(names.begin(), names.end(), [&](const auto& name) { return arch::matches(pattern, name); });
  };
  for (const auto& [pattern, value] : map) {
    const auto* word = value.string();
    const auto style = word != nullptr ? arch::parse_tensor_style(*word) : std::nullopt;
    if (word != nullptr && arch::is_skipped_style(*word)) continue;
    if (!style) {
      const std::string given = word != nullptr ? *word : config::to_json(value);
      report.refuse("unknown-style", key)
          .says("unknown parallel style '{}' of '{}'", given, pattern)
          .hint(suggestion(given, arch::tensor_style_words()));
      continue;
    }
    const auto full = any(pattern) ? pattern : layout.base + "." + pattern;
    if (!any(full)) {
      std::vector<std::string_view> known(names.begin(), names.end());
      report.refuse("unknown-module", key)
          .says("the model has no module '{}'", pattern)
          .hint(suggestion(pattern, known, 8));
      continue;
    }
    plan.rows.emplace_back(full, *style);
  }
  return plan;
}

/// Evaluates the recipe's switches for communication overlap: NeMo AutoModel's single one, or Megatron Core's.
class OverlapChoice {
 public:
  OverlapChoice(const config::Recipe& recipe, const arch::Layout& layout, int tp, bool sequence, Located& report)
      : m_(recipe.model_parallel()), layout_(layout), report_(report), tp_(tp), sequence_(sequence) {
    const auto* fsdp = std::get_if<config::FSDP2Config>(&recipe.distributed->strategy());
    async_ = fsdp != nullptr && fsdp->enable_async_tensor_parallel();
  }

  arch::TensorOverlap operator()() {
    arch::TensorOverlap out;
    if (usable(async_, "distributed.enable_async_tensor_parallel"))
      out.gather = out.scatter = out.scatter_in_backward = out.gather_in_backward = true;
    if (!usable(m_.tp_comm_overlap(), kMegatron)) {
      for (const char* child :
           {"tp_comm_bulk_wgrad", "tp_comm_bulk_dgrad", "tp_comm_overlap_ag", "tp_comm_overlap_rs",
            "tp_comm_overlap_rs_dgrad", "tp_comm_overlap_disable_qkv", "tp_comm_overlap_disable_fc1"})
        if (const std::string key = std::string("model_parallel.") + child; report_.given(key))
          report_.warn("no-effect", key)
              .says(key + " has no effect without tp_comm_overlap")
              .hint("set model_parallel.tp_comm_overlap: true");
      return out;
    }
    out.gather = m_.tp_comm_overlap_ag();
    out.scatter = m_.tp_comm_overlap_rs();
    out.scatter_in_backward = m_.tp_comm_overlap_rs_dgrad();
    out.gather_in_backward = m_.tp_comm_bulk_wgrad();
    out.scatter_under_weights = m_.tp_comm_bulk_dgrad();
    out.gather_attention = !m_.tp_comm_overlap_disable_qkv();
    out.gather_mlp = !m_.tp_comm_overlap_disable_fc1();
    if (!out.gather_attention && !has_block({Role::kAttention}))
      no_such_block("tp_comm_overlap_disable_qkv", "the model has no attention");
    if (!out.gather_mlp && !has_block({Role::kMlp, Role::kSharedExpert, Role::kRecurrence}))
      no_such_block("tp_comm_overlap_disable_fc1",
                    "tensor parallelism divides no feed-forward block of the model: its layers have routed experts");
    return out;
  }

 private:
  static constexpr const char* kMegatron = "model_parallel.tp_comm_overlap";

  bool has_block(std::initializer_list<Role> roles) const {
    const auto has = [](const arch::LayerLayout& kind, const std::vector<Part>& parts) {
      return std::any_of(parts.begin(), parts.end(), [&](Part part) { return kind.has(part); });
    };
    for (const auto& block : arch::divided_blocks())
      if (std::find(roles.begin(), roles.end(), block.role) != roles.end())
        for (const auto& kind : layout_.kinds)
          if (has(kind, block.first)) return true;
    return false;
  }

  void no_such_block(const std::string& name, const std::string& reason) {
    const auto key = "model_parallel." + name;
    report_.warn("no-effect", key).says("{} has no effect: {}", key, reason).hint("remove it");
  }

  bool usable(bool wanted, const std::string& key) {
    if (!wanted) return false;
    if (tp_ == 1) {
      report_.warn("no-effect", key)
          .says(key + " has no effect with tp_size 1")
          .hint("set distributed.tp_size to 2 or more");
      return false;
    }
    if (!sequence_)
      report_.refuse("bad-value", key)
          .says(key + " requires sequence parallelism")
          .hint("also set sequence_parallel: true");
    return sequence_;
  }

  const config::ModelParallelConfig& m_;
  const arch::Layout& layout_;
  Located& report_;
  int tp_;
  bool sequence_, async_ = false;
};

}  // namespace

namespace {

bool strategy_asks(const config::Recipe& recipe) {
  return std::visit(
      [](const auto& strategy) {
        if constexpr (requires { strategy.sequence_parallel(); }) return strategy.sequence_parallel();
        return false;
      },
      recipe.distributed->strategy());
}

}  // namespace

bool wants_sequence_parallel(const config::Recipe& recipe) {
  return strategy_asks(recipe) || recipe.model_parallel->sequence_parallel();
}

arch::TensorPlan choose_tensor_plan(const config::LoadedRecipe& loaded, const ModelChoice& model,
                                    const mesh::MeshSizes& sizes, const SequenceLength& length, Located& report) {
  const std::string key = "distributed.tp_plan";
  const auto given = std::visit(
      [](const auto& strategy) -> config::Value {
        if constexpr (requires { strategy.tp_plan(); }) return strategy.tp_plan();
        return {};
      },
      loaded.recipe.distributed->strategy());
  const bool sequence = wants_sequence_parallel(loaded.recipe);
  const auto overlap = OverlapChoice(loaded.recipe, model.layout, sizes.tp, sequence, report)();
  if (sizes.tp == 1) {
    for (const std::string each : {"distributed.tp_plan", "distributed.sequence_parallel"})
      if (report.given(each) && (each != key ? strategy_asks(loaded.recipe) : !given.is_null()))
        report.warn("no-effect", each)
            .says(each + " has no effect with tp_size 1")
            .hint("set distributed.tp_size to 2 or more");
    return {};
  }
  arch::TensorPlan plan = arch::default_tensor_plan(model.layout);
  if (const auto* map = given.map()) {
    plan = read_mapping(*map, model.layout, key, report);
  } else if (const auto* name = given.string()) {
    if (*name == "auto") {
      if (auto own = arch::transformers_tensor_plan(model.spec, model.layout))
        plan = std::move(*own);
      else
        report.refuse("unknown-tp-plan", key)
            .says("transformers has no tensor-parallel plan for {}", model.spec.architecture)
            .hint("leave tp_plan out for the family's plan, or give a mapping of modules to styles");
    } else if (*name != "llama_nemotron_super_tp_plan") {  // NeMo AutoModel's name for Llama's plan
      report.refuse("unknown-tp-plan", key)
          .says("unknown tensor-parallel plan '{}'", *name)
          .hint(
              "auto (the model's own plan in transformers), llama_nemotron_super_tp_plan, or a mapping of modules "
              "to styles; Python plans cannot be loaded");
    }
  } else if (!given.is_null()) {
    report.refuse("unknown-tp-plan", key)
        .says("tp_plan is neither a mapping nor a name")
        .hint("for example {'model.layers.*.self_attn.q_proj': colwise}");
  }
  plan.sequence_parallel = sequence;
  plan.overlap = overlap;
  if (report.ok()) TensorCheck(model, plan, sizes.tp, report).layers(given.map() != nullptr, key);
  if (model.spec.classes > 0 && arch::divides_vocabulary(plan, model.layout, arch::Role::kHead))
    report.refuse("unsupported-option", key)
        .says("tp_plan divides a classifier's head '{}'; every rank needs all scores for the accuracy",
              model.layout.head)
        .hint("leave '{}' out of the mapping", model.layout.head);
  const auto tokens = length.tokens / sizes.cp;
  if ((plan.sequence_parallel || model.spec.moe) && length.tokens % sizes.cp == 0 && tokens % sizes.tp != 0) {
    const std::int64_t unit = std::int64_t{sizes.tp} * sizes.cp, down = length.tokens / unit * unit;
    report.refuse("indivisible", length.key)
        .says("{} tokens per sequence and rank are not divisible by tp_size {}", tokens, sizes.tp)
        .hint("nearest valid values: {} and {}", down, down + unit)
        .exits(ExitCode::kRefused);
  }
  return plan;
}

}  // namespace automodel::plan
