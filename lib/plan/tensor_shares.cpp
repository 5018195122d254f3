#include "plan/tensor_shares.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arch/modules.h"
#include "plan/training_plan.h"

namespace automodel::plan {
namespace {

using arch::Part;
using arch::Role;
using arch::TensorStyle;

/// The runtime's placement (parallel/tensor/placement.h) as numbers.
class Shares {
 public:
  Shares(const ModelChoice& model, const arch::TensorPlan& plan, int tp)
      : spec_(model.spec), layout_(model.layout), plan_(plan), tp_(tp) {}

  TensorShares operator()() const {
    TensorShares out;
    const bool alike = alike_by_kind();
    std::vector<std::optional<std::size_t>> known(layout_.kinds.size());
    for (int layer = 0; layer < layout_.layer_count(); ++layer) {
      auto& kind = known[static_cast<std::size_t>(layout_.kind_of[static_cast<std::size_t>(layer)])];
      if (!kind || !alike) {
        kind = out.kinds.size();
        out.kinds.push_back(layer_shares(layer));
      }
      out.kind_of.push_back(*kind);
    }
    for (const auto& each : layout_.embedding_parameters)
      out.embeddings += elements(each) / (each.role == Role::kEmbedding ? of_vocabulary(Role::kEmbedding) : 1);
    for (const auto& each : layout_.norm_parameters) out.norm += elements(each);
    out.vocabulary = of_vocabulary(Role::kHead);
    out.head = elements(layout_.head_parameter) / out.vocabulary;
    if (layout_.head_bias) out.head += elements(*layout_.head_bias) / out.vocabulary;
    return out;
  }

 private:
  static double elements(const arch::ParameterTemplate& each) {
    return static_cast<double>(each.shape.elements()) * each.copies;
  }

  /// FLOPs of one iteration x (a + b x^T x + c (x^T x)^2): two GEMMs between the matrix and a square matrix of its
  /// shorter side, plus squaring the latter.
  static double orthogonal_flops(const arch::ParameterTemplate& each) {
    const auto rank = each.shape.rank();
    const auto rows = static_cast<double>(each.shape[rank - 2]), columns = static_cast<double>(each.shape[rank - 1]);
    const double few = std::min(rows, columns), many = std::max(rows, columns);
    return elements(each) / (rows * columns) * 2 * few * few * (2 * many + few);
  }

  /// Whether no pattern refers to a layer by its number.
  bool alike_by_kind() const {
    const auto numbered = [](std::string_view pattern) {
      for (std::size_t at = pattern.find('.'); at != std::string_view::npos; at = pattern.find('.', at + 1))
        if (at + 1 < pattern.size() && pattern[at + 1] >= '0' && pattern[at + 1] <= '9') return true;
      return false;
    };
    return std::none_of(plan_.rows.begin(), plan_.rows.end(), [&](const auto& row) { return numbered(row.first); });
  }

  int of_vocabulary(Role role) const { return tp_ > 1 && arch::divides_vocabulary(plan_, layout_, role) ? tp_ : 1; }

  LayerShares layer_shares(int layer) const {
    LayerShares out;
    const std::string prefix = layout_.layer_fqn(layer) + ".";
    for (const auto& each : layout_.layer(layer)) {
      if (each.role == Role::kExpert) {
        out.expert += elements(each);
        if (arch::is_hidden_matrix(each)) {
          out.expert_matrices += elements(each);
          out.expert_orthogonal += orthogonal_flops(each);
        }
        // Each rank routes its share of the tokens.
        if (each.matrix) out.products += elements(each) * spec_.moe->top_k / spec_.moe->experts / tp_;
        continue;
      }
      const int ranks = tp_ > 1 ? ranks_of(each, prefix) : 1;
      out.dense += elements(each) / ranks;
      if (arch::is_hidden_matrix(each)) {
        out.dense_matrices += elements(each) / ranks;
        out.orthogonal += orthogonal_flops(each) / (ranks > 1 ? tp_ : 1);
      }
      if (each.matrix) out.products += elements(each) / (own_tokens(each, prefix) ? tp_ : ranks);
    }
    if (tp_ > 1) out.widths = widths_of(layer, prefix);
    return out;
  }

  int ranks_of(const arch::ParameterTemplate& each, const std::string& prefix) const {
    if (each.part == Part::kStateNorm) return each.shape[0] == spec_.recurrence->value_width() ? tp_ : 1;
    if (each.role == Role::kNorm || each.role == Role::kRouter || each.role == Role::kPositions) return 1;
    const auto style = plan_.style_of(prefix + std::string(arch::plan_name(each.name)));
    if (arch::divides_columns(style)) return result_shares(spec_, each.part, style, tp_);
    return arch::divides_rows(style) && !each.name.ends_with(".bias") ? tp_ : 1;
  }

  /// Whether a rank multiplies only its own share of the tokens by the whole matrix.
  bool own_tokens(const arch::ParameterTemplate& each, const std::string& prefix) const {
    if (each.role == Role::kRouter) return true;
    return plan_.sequence_parallel &&
           plan_.style_of(prefix + std::string(arch::plan_name(each.name))) == TensorStyle::kSequence;
  }

  /// The style of the first of these parts that the layer has.
  std::optional<TensorStyle> style_of(int layer, const std::string& prefix, std::initializer_list<Part> parts) const {
    for (const auto part : parts)
      if (layout_.kind(layer).has(part)) return plan_.style_of(prefix + layout_.kind(layer).module(part));
    return std::nullopt;
  }

  WidthShares widths_of(int layer, const std::string& prefix) const {
    WidthShares out;
    const bool sequence = plan_.sequence_parallel;
    const auto whole_input = [&](TensorStyle style) {
      return sequence && style != TensorStyle::kSequence && !arch::divides_columns(style);
    };
    if (const auto first = style_of(layer, prefix, {Part::kQuery, Part::kQkv, Part::kQueryUp})) {
      // Other styles gather the outputs or replicate the module.
      const bool own_heads = *first == TensorStyle::kColwise;
      out.heads = own_heads ? tp_ : 1;
      out.keys = own_heads ? std::min(tp_, spec_.kv_heads) : 1;
      out.whole_attention = whole_input(*first);
    }
    if (const auto first = style_of(layer, prefix, {Part::kStateIn, Part::kStateQuery});
        first && *first == TensorStyle::kColwise)
      out.heads = tp_;
    if (style_of(layer, prefix, {Part::kAttentionOut}) == TensorStyle::kRowwiseSplit) out.taken = tp_;
    if (const auto first = style_of(layer, prefix, {Part::kUp, Part::kGateUp, Part::kSharedUp, Part::kSharedGateUp})) {
      const bool own_tokens = sequence && *first == TensorStyle::kSequence;
      out.up = *first == TensorStyle::kColwise || own_tokens ? tp_ : 1;
      const auto last = style_of(layer, prefix, {Part::kDown, Part::kSharedDown});
      out.down = (last && arch::divides_rows(*last)) || own_tokens ? tp_ : 1;
      out.whole_mlp = whole_input(*first);
    }
    return out;
  }

  const arch::ModelSpec& spec_;
  const arch::Layout& layout_;
  const arch::TensorPlan& plan_;
  int tp_;
};

}  // namespace

TensorShares tensor_shares(const ModelChoice& model, const arch::TensorPlan& plan, int tp) {
  return Shares(model, plan, tp)();
}

int result_shares(const arch::ModelSpec& spec, Part part, arch::TensorStyle style, int tp) {
  const bool of_keys = part == Part::kKey || part == Part::kValue;
  return of_keys && style == TensorStyle::kColwise ? std::min(tp, spec.kv_heads) : tp;
}

int tensor_ranks(const TrainingPlan& plan, const arch::Parameter& info) {
  using arch::Role;
  const int tp = plan.mesh.sizes().tp;
  if (tp == 1 || info.in_tower() || info.role == Role::kNorm || info.role == Role::kRouter ||
      info.role == Role::kPositions)
    return 1;
  if (info.role == Role::kEmbedding || info.role == Role::kHead)
    return arch::divides_vocabulary(plan.tensor, plan.model->layout, info.role) ? tp : 1;
  // Of an adapter's two matrices, the one that has the sharded dimension of its base weight is sharded.
  const bool adapter = !info.adapts.empty();
  const bool last = adapter && arch::is_last_matrix(info);
  const auto style = plan.tensor.style_of(arch::plan_name(adapter ? info.adapts : info.fqn));
  if (arch::divides_columns(style)) return adapter && !last ? 1 : result_shares(plan.model->spec, info.part, style, tp);
  return arch::divides_rows(style) && !last && !info.fqn.ends_with(".bias") ? tp : 1;
}

}  // namespace automodel::plan
