#include "parallel/tensor/placement.h"

#include "arch/adapters.h"

namespace automodel::parallel {
namespace {

using arch::Part;
using arch::Role;
using arch::TensorStyle;

class Rule {
 public:
  Rule(const arch::ModelSpec& spec, const arch::Layout& layout, const arch::TensorPlan& plan,
       const arch::Parameter& parameter, TensorPlace place)
      : spec_(spec),
        layout_(layout),
        plan_(plan),
        parameter_(parameter),
        place_(place),
        module_(arch::plan_name(parameter.adapts.empty() ? parameter.fqn : parameter.adapts)),
        style_(plan.style_of(module_)) {}

  model::Placement operator()() const {
    switch (parameter_.role) {
      case Role::kEmbedding: return vocabulary(divides_rows(style_));
      case Role::kHead:
        return vocabulary(parameter_.tied_to.empty()
                              ? divides_columns(style_)
                              : divides_rows(plan_.style_of(arch::plan_name(parameter_.tied_to))));
      case Role::kLayerInputs:  // of the residual stream's tokens
      case Role::kPositions: return whole(plan_.sequence_parallel);
      case Role::kNorm: return norm();
      case Role::kRouter: return whole(true);  // each rank routes different tokens
      case Role::kExpert: return {};
      case Role::kAdapter: return adapter();
      case Role::kStreams:
      case Role::kTower: return whole(false);
      case Role::kRecurrence:
      case Role::kAttention:
      case Role::kMlp:
      case Role::kSharedExpert: break;
    }
    if (parameter_.part == Part::kSinks) return heads_divided() ? cut(0, {}) : whole(false);
    if (parameter_.part == Part::kActivation) return whole(true);  // each rank has different features
    return product();
  }

 private:
  static model::Placement whole(bool partial) { return {.tensor_partial = partial}; }

  model::Placement vocabulary(bool divided) const {
    if (!divided) return whole(false);
    return {.slice = model::filled_slice(parameter_.shape[0], place_.size, place_.rank), .tensor_sharded = true};
  }

  model::Placement cut(int dim, const std::vector<std::int64_t>& sections) const {
    return {.slice = model::even_slice(dim, parameter_.shape[static_cast<std::size_t>(dim)], place_.size, place_.rank,
                                       sections),
            .tensor_sharded = true};
  }

  model::Placement product() const {
    const bool bias = parameter_.fqn.ends_with(".bias");
    const bool transposed = parameter_.transposed;
    if (style_ == TensorStyle::kColwise && of_keys() && spec_.kv_heads < place_.size) return shared_head();
    if (divides_columns(style_)) {
      if (parameter_.part == Part::kStateDecayRate) return cut(leading_ones(), {});
      const auto sections =
          style_ == TensorStyle::kColwise ? arch::joined_sections(spec_, parameter_.part) : std::vector<std::int64_t>{};
      return cut(transposed && !bias ? 1 : 0, sections);
    }
    if (divides_rows(style_))  // the bias is added to the sum: with sequence parallelism, to different tokens on
                               // each rank
      return bias ? whole(plan_.sequence_parallel) : cut(transposed ? 0 : 1, {});
    return whole((style_ == TensorStyle::kSequence || of_local_tokens()) && plan_.sequence_parallel);
  }

  /// In a column-parallel layer B is sharded with the weight, in a row-parallel layer A is. The other matrix is whole,
  /// and each rank computes a partial sum of its gradient. A vision tower is computed by every rank, adapters too.
  model::Placement adapter() const {
    if (parameter_.in_tower()) return whole(false);
    const bool last = arch::is_last_matrix(parameter_);
    if (divides_columns(style_)) {
      if (!last) return whole(true);
      if (parameter_.layer < 0) return vocabulary(true);
      if (style_ == TensorStyle::kColwise && of_keys() && spec_.kv_heads < place_.size) return shared_head();
      return cut(0, style_ == TensorStyle::kColwise ? arch::joined_sections(spec_, parameter_.part)
                                                    : std::vector<std::int64_t>{});
    }
    if (divides_rows(style_)) return last ? whole(true) : cut(1, {});
    return whole((style_ == TensorStyle::kSequence || of_local_tokens()) && plan_.sequence_parallel);
  }

  bool of_keys() const { return parameter_.part == Part::kKey || parameter_.part == Part::kValue; }
  /// More ranks than key/value heads: neighbours hold copies of the head that their queries use.
  model::Placement shared_head() const {
    const int replicas = place_.size / spec_.kv_heads;
    return {.slice = model::even_slice(0, parameter_.shape[0], spec_.kv_heads, place_.rank / replicas),
            .tensor_sharded = true,
            .tensor_replicas = replicas};
  }

  /// A head norm acts on the rank-local heads; its weight is sharded if heads have their own weights.
  model::Placement norm() const {
    const bool queries = parameter_.part == Part::kQueryNorm;
    // The norm of a recurrent state's output has weights for every head, or one set for all.
    if (parameter_.part == Part::kStateNorm)
      return parameter_.shape[0] == spec_.recurrence->value_width() ? cut(0, {}) : whole(true);
    if (parameter_.part == Part::kExpertsNorm) return whole(true);  // of the tokens that the rank routes
    if (!queries && parameter_.part != Part::kKeyNorm) return whole(plan_.sequence_parallel);
    if (!heads_divided()) return whole(false);
    const bool apart = parameter_.shape.rank() == 1 && spec_.head_norm->span == arch::HeadNorm::Span::kEachHead;
    if (apart || spec_.head_norm->span == arch::HeadNorm::Span::kHead) return whole(true);
    return !queries && spec_.kv_heads < place_.size ? shared_head() : cut(0, {});
  }

  /// Low-rank projections, which all heads share, and those of a layer's own input: they are computed on the residual
  /// stream's local tokens.
  bool of_local_tokens() const {
    return parameter_.part == Part::kInputGate || parameter_.part == Part::kInputUp ||
           parameter_.part == Part::kQueryDown || parameter_.part == Part::kKeyValueDown ||
           parameter_.part == Part::kStateGateDown || parameter_.part == Part::kStateDecayDown;
  }
  /// The index of the first dimension with more than one element.
  int leading_ones() const {
    int dim = 0;
    while (dim + 1 < static_cast<int>(parameter_.shape.rank()) && parameter_.shape[static_cast<std::size_t>(dim)] == 1)
      ++dim;
    return dim;
  }
  bool heads_divided() const {
    const auto& kind = layout_.kind(parameter_.layer);
    const auto& first = kind.module(kind.has(Part::kQkv) ? Part::kQkv : Part::kQuery);
    return plan_.style_of(layout_.layer_fqn(parameter_.layer) + "." + first) == TensorStyle::kColwise;
  }

  const arch::ModelSpec& spec_;
  const arch::Layout& layout_;
  const arch::TensorPlan& plan_;
  const arch::Parameter& parameter_;
  TensorPlace place_;
  std::string_view module_;
  TensorStyle style_;
};

}  // namespace

model::Placement tensor_placement(const arch::ModelSpec& spec, const arch::Layout& layout, const arch::TensorPlan& plan,
                                  const arch::Parameter& parameter, TensorPlace place) {
  if (place.size == 1) return {};
  return Rule(spec, layout, plan, parameter, place)();
}

}  // namespace automodel::parallel
