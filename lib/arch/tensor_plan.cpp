#include "arch/tensor_plan.h"

#include <algorithm>
#include <array>
#include <set>

#include "arch/families.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace {

using Style = TensorStyle;

struct StyleWord {
  std::string_view word;
  Style style;
};
constexpr std::array kWords = {
    StyleWord{"replicated", Style::kReplicated},
    StyleWord{"colwise", Style::kColwise},
    StyleWord{"rowwise", Style::kRowwise},
    StyleWord{"colwise_rep", Style::kColwiseGathered},
    StyleWord{"colwise_gather_output", Style::kColwiseGathered},
    StyleWord{"rowwise_rep", Style::kRowwiseSplit},
    StyleWord{"rowwise_split_input", Style::kRowwiseSplit},
    StyleWord{"sequence_parallel", Style::kSequence},
    StyleWord{"replicated_with_grad_allreduce", Style::kReplicatedSummedGradient},
};
constexpr std::array<std::string_view, 8> kSkipped = {
    "ep_router", "ep_fused", "local", "local_colwise", "local_rowwise", "local_packed_rowwise", "gather", "isolated"};

/// Default tensor-parallel style of a layer part, for every family.
struct PartStyle {
  Part part;
  Style style;
};
constexpr std::array kPartStyles = {
    PartStyle{Part::kMixerNorm, Style::kSequence},
    PartStyle{Part::kMixerOutNorm, Style::kSequence},
    PartStyle{Part::kFeedNorm, Style::kSequence},
    PartStyle{Part::kFeedOutNorm, Style::kSequence},
    PartStyle{Part::kQuery, Style::kColwise},
    PartStyle{Part::kKey, Style::kColwise},
    PartStyle{Part::kValue, Style::kColwise},
    PartStyle{Part::kQkv, Style::kColwise},
    PartStyle{Part::kQueryNorm, Style::kReplicatedSummedGradient},
    PartStyle{Part::kKeyNorm, Style::kReplicatedSummedGradient},
    PartStyle{Part::kSinks, Style::kColwise},
    PartStyle{Part::kAttentionGate, Style::kColwise},
    PartStyle{Part::kAttentionOut, Style::kRowwise},
    // Latent attention: the low-rank parts are shared by all heads.
    PartStyle{Part::kQueryDown, Style::kSequence},
    PartStyle{Part::kQueryDownNorm, Style::kSequence},
    PartStyle{Part::kQueryUp, Style::kColwise},
    PartStyle{Part::kKeyValueDown, Style::kSequence},
    PartStyle{Part::kKeyValueDownNorm, Style::kSequence},
    PartStyle{Part::kKeyValueUp, Style::kColwise},
    PartStyle{Part::kIndexQuery, Style::kReplicated},
    PartStyle{Part::kIndexKey, Style::kReplicated},
    PartStyle{Part::kIndexQueryNorm, Style::kReplicated},
    PartStyle{Part::kIndexKeyNorm, Style::kReplicated},
    PartStyle{Part::kIndexWeights, Style::kReplicated},
    // Recurrent mixers: each rank has some of the heads.
    PartStyle{Part::kStateIn, Style::kColwise},
    PartStyle{Part::kStateQuery, Style::kColwise},
    PartStyle{Part::kStateKey, Style::kColwise},
    PartStyle{Part::kStateValue, Style::kColwise},
    PartStyle{Part::kStateGateDown, Style::kSequence},
    PartStyle{Part::kStateGate, Style::kColwise},
    PartStyle{Part::kStateRate, Style::kColwise},
    PartStyle{Part::kStateDecayDown, Style::kSequence},
    PartStyle{Part::kStateDecay, Style::kColwise},
    PartStyle{Part::kStateConv, Style::kColwise},
    PartStyle{Part::kStateQueryConv, Style::kColwise},
    PartStyle{Part::kStateKeyConv, Style::kColwise},
    PartStyle{Part::kStateValueConv, Style::kColwise},
    PartStyle{Part::kStateDecayRate, Style::kColwise},
    PartStyle{Part::kStateDecayBias, Style::kColwise},
    PartStyle{Part::kStateSkip, Style::kColwise},
    PartStyle{Part::kStateNorm, Style::kReplicatedSummedGradient},
    PartStyle{Part::kStateOut, Style::kRowwise},
    PartStyle{Part::kGate, Style::kColwise},
    PartStyle{Part::kUp, Style::kColwise},
    PartStyle{Part::kGateUp, Style::kColwise},
    PartStyle{Part::kDown, Style::kRowwise},
    PartStyle{Part::kSharedGate, Style::kColwise},
    PartStyle{Part::kSharedUp, Style::kColwise},
    PartStyle{Part::kSharedGateUp, Style::kColwise},
    PartStyle{Part::kSharedDown, Style::kRowwise},
    PartStyle{Part::kSharedSwitch, Style::kSequence},
};

/// Adds the styles of kPartStyles for the modules of layers.
void add_parts(TensorPlan& plan, const Layout& layout, bool norms) {
  std::set<std::string_view> seen;  // layer kinds share names
  for (const auto& kind : layout.kinds)
    for (const auto& [part, style] : kPartStyles)
      if (kind.has(part) && (norms || style != Style::kSequence) && seen.insert(kind.module(part)).second)
        plan.rows.emplace_back(layout.layers + ".*." + kind.module(part), style);
}
void add_ends(TensorPlan& plan, const Layout& layout) {
  for (std::size_t i = 0; i < layout.embeddings.size(); ++i)  // the first is the token embedding
    plan.rows.emplace_back(layout.embeddings[i], i == 0 ? Style::kRowwise : Style::kSequence);
  plan.rows.emplace_back(layout.norm, Style::kSequence);
  plan.rows.emplace_back(layout.head, layout.whole_head ? Style::kReplicated : Style::kColwise);
}

/// Sections of the channels of the convolution in front of a state: queries, keys and values, each for all heads, in
/// the order of the input projection. Empty for a short convolution, which has no heads.
std::vector<std::int64_t> conv_sections(const Recurrence& state) {
  if (state.heads == 0) return {};
  const auto keys = state.key_width(), values = state.value_width();
  return state.values_first ? std::vector{values, keys, keys} : std::vector{keys, keys, values};
}

}  // namespace

std::string_view name_of(TensorStyle style) {
  for (const auto& [word, each] : kWords)
    if (each == style) return word;
  return "";
}

std::optional<TensorStyle> parse_tensor_style(std::string_view word) {
  for (const auto& [known, style] : kWords)
    if (known == word) return style;
  return std::nullopt;
}

const std::vector<std::string_view>& tensor_style_words() {
  static const std::vector<std::string_view> words = [] {
    std::vector<std::string_view> out;
    for (const auto& [word, style] : kWords) out.push_back(word);
    return out;
  }();
  return words;
}

bool is_skipped_style(std::string_view word) {
  return word.starts_with("ep_") || std::find(kSkipped.begin(), kSkipped.end(), word) != kSkipped.end();
}

bool matches(std::string_view pattern, std::string_view name) {
  while (true) {
    const auto a = pattern.find('.'), b = name.find('.');
    const auto want = pattern.substr(0, a), have = name.substr(0, b);
    if (want != "*" && want != have) return false;
    if (a == std::string_view::npos || b == std::string_view::npos) return a == b;
    pattern.remove_prefix(a + 1);
    name.remove_prefix(b + 1);
  }
}

std::string_view plan_name(std::string_view fqn) {
  for (const std::string_view end : {".weight", ".bias"})
    if (fqn.ends_with(end)) return fqn.substr(0, fqn.size() - end.size());
  return fqn;
}

std::span<const DividedBlock> divided_blocks() {
  static const std::vector<DividedBlock> blocks = {
      {Role::kAttention,
       {Part::kQuery, Part::kKey, Part::kValue, Part::kQkv, Part::kQueryUp, Part::kKeyValueUp, Part::kAttentionGate},
       {Part::kAttentionOut}},
      {Role::kRecurrence,
       {Part::kStateIn, Part::kStateQuery, Part::kStateKey, Part::kStateValue, Part::kStateGate, Part::kStateRate,
        Part::kStateDecay, Part::kStateConv, Part::kStateQueryConv, Part::kStateKeyConv, Part::kStateValueConv,
        Part::kStateDecayRate, Part::kStateDecayBias, Part::kStateSkip},
       {Part::kStateOut}},
      {Role::kMlp, {Part::kGate, Part::kUp, Part::kGateUp}, {Part::kDown}},
      {Role::kSharedExpert, {Part::kSharedGate, Part::kSharedUp, Part::kSharedGateUp}, {Part::kSharedDown}},
  };
  return blocks;
}

TensorOverlap TensorOverlap::before(Part part) const {
  const auto& blocks = divided_blocks();
  const auto block = std::find_if(blocks.begin(), blocks.end(), [part](const DividedBlock& each) {
    return std::find(each.first.begin(), each.first.end(), part) != each.first.end();
  });
  auto out = *this;
  if (block != blocks.end() && !(block->role == Role::kAttention ? gather_attention : gather_mlp))
    out.gather = out.scatter_in_backward = false;
  return out;
}

TensorStyle TensorPlan::style_of(std::string_view module) const {
  for (const auto& [pattern, style] : rows)
    if (matches(pattern, module)) return style;
  return TensorStyle::kReplicated;
}

TensorStyle TensorPlan::style_of(const Parameter& parameter) const {
  return style_of(plan_name(parameter.fqn));
}

void divide_by_part(const Layout& layout, TensorPlan& plan) {
  add_parts(plan, layout, false);
}

TensorPlan default_tensor_plan(const Layout& layout) {
  TensorPlan plan;
  add_parts(plan, layout, true);
  add_ends(plan, layout);
  return plan;
}

std::optional<TensorPlan> transformers_tensor_plan(const ModelSpec& spec, const Layout& layout) {
  const auto* family = find_family(spec.model_type);
  if (family == nullptr || family->plan_tensors == nullptr) return std::nullopt;
  TensorPlan plan;
  family->plan_tensors(layout, plan);
  add_ends(plan, layout);
  return plan;
}

bool divides_vocabulary(const TensorPlan& plan, const Layout& layout, Role role) {
  if (role == Role::kHead && layout.head_tied_to.empty()) {
    const auto style = plan.style_of(layout.head);
    return style == Style::kColwise || style == Style::kColwiseGathered;
  }
  const auto style = plan.style_of(layout.embeddings.front());
  return style == Style::kRowwise || style == Style::kRowwiseSplit;
}

std::vector<std::int64_t> joined_sections(const ModelSpec& spec, Part part) {
  if (part == Part::kQkv && spec.qkv_order == QkvOrder::kBlocks) {
    const auto key = std::int64_t{spec.kv_heads} * spec.head_dim;
    return {std::int64_t{spec.heads} * spec.head_dim, key, key};
  }
  if (part == Part::kStateIn) return spec.recurrence->sections;
  if (part == Part::kStateConv) return conv_sections(*spec.recurrence);
  if (part == Part::kGateUp) return {spec.ffn, spec.ffn};
  if (part == Part::kSharedGateUp) return {spec.moe->shared_ffn, spec.moe->shared_ffn};
  return {};
}

}  // namespace automodel::arch
