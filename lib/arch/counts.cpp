#include "arch/counts.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "arch/families.h"

namespace automodel::arch {
namespace {

void count(const std::vector<ParameterTemplate>& parameters, ParameterCounts& out) {
  for (const auto& parameter : parameters) {
    const std::int64_t elements = parameter.shape.elements() * parameter.copies;
    out.by_role[static_cast<std::size_t>(parameter.role)] += elements;
    if (parameter.matrix) (parameter.role == Role::kExpert ? out.expert_matrix : out.matrix) += elements;
    if (!parameter.trainable) out.buffers += elements;
  }
}

/// Number of keys a token attends to, averaged over the sequence.
double keys_seen(const ModelSpec& spec, int layer, std::int64_t sequence, bool causal) {
  const auto tokens = static_cast<double>(sequence);
  if (!causal) return tokens + (spec.compression(layer) > 0 ? tokens / spec.compression(layer) : 0);
  const auto window = static_cast<double>(spec.sliding_window);
  const double own =
      spec.slides(layer) && window > 0 && window < tokens ? window - window * window / (2 * tokens) : tokens / 2;
  const int rate = spec.compression(layer);
  if (rate == 0) return own;
  const double entries = tokens / rate, most = spec.compressed->is_sparse(layer) ? spec.compressed->top_k : entries;
  return own + (most < entries ? most - most * most / (2 * entries) : entries / 2);
}

}  // namespace

std::int64_t ParameterCounts::total() const {
  return std::accumulate(by_role.begin(), by_role.end(), std::int64_t{0});
}

ParameterCounts& ParameterCounts::operator+=(const ParameterCounts& other) {
  for (std::size_t i = 0; i < by_role.size(); ++i) by_role[i] += other.by_role[i];
  matrix += other.matrix;
  expert_matrix += other.expert_matrix;
  buffers += other.buffers;
  return *this;
}

Portion whole_model(const Layout& layout) {
  return {true, 0, layout.layer_count(), true, true};
}

ParameterCounts count_layer(const Layout& layout, int layer) {
  ParameterCounts out;
  count(layout.layer(layer), out);
  return out;
}

ParameterCounts count_parameters(const Layout& layout, const Portion& portion) {
  ParameterCounts out;
  if (portion.embeddings) count(layout.embedding_parameters, out);
  std::vector<ParameterCounts> kinds(layout.kinds.size());
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) count(layout.kinds[kind].parameters, kinds[kind]);
  for (int layer = portion.first_layer; layer < portion.last_layer; ++layer)
    out += kinds[static_cast<std::size_t>(layout.kind_of[static_cast<std::size_t>(layer)])];
  if (portion.norm) count(layout.norm_parameters, out);
  if (portion.head && (layout.head_tied_to.empty() || !portion.embeddings)) count({layout.head_parameter}, out);
  if (portion.head && layout.head_bias) count({*layout.head_bias}, out);
  return out;
}

ParameterCounts count_parameters(const ModelSpec& spec) {
  const auto layout = layout_of(spec);
  return count_parameters(layout, whole_model(layout));
}

std::int64_t active_parameters(const ModelSpec& spec, const ParameterCounts& counts) {
  if (!spec.moe) return counts.total();
  const std::int64_t experts = counts.of(Role::kExpert);
  return counts.total() - experts + experts / spec.moe->experts * spec.moe->top_k;
}

double state_flops_per_token(const ModelSpec& spec, int layer) {
  if (!spec.recurs(layer)) return 0;
  const auto& state = *spec.recurrence;
  const auto mixer = spec.mixer(layer);
  if (mixer == Mixer::kShortConv) return 2.0 * state.taps * spec.hidden;
  // Delta rule: the state is read twice.
  const bool corrected = mixer == Mixer::kGatedDelta || mixer == Mixer::kChannelDelta;
  const double cells = static_cast<double>(state.heads) * state.key_dim * state.value_dim;
  const auto channels = static_cast<double>(2 * state.key_width() + state.value_width());
  return (corrected ? 6 : 4) * cells + 2 * state.taps * channels;
}

double layer_product_flops_per_token(const ModelSpec& spec, const Layout& layout, int layer) {
  const auto counts = count_layer(layout, layer);
  double matrices = static_cast<double>(counts.matrix);
  if (spec.moe) matrices += static_cast<double>(counts.expert_matrix) * spec.moe->top_k / spec.moe->experts;
  return 2 * matrices;
}

double layer_score_flops_per_token(const ModelSpec& spec, int layer, std::int64_t sequence, bool causal) {
  const double widths = spec.query_width(layer) + spec.value_width(layer);
  const double scores = spec.attends(layer) ? 2 * widths * keys_seen(spec, layer, sequence, causal) : 0;
  return scores + state_flops_per_token(spec, layer);
}

double layer_flops_per_token(const ModelSpec& spec, const Layout& layout, int layer, std::int64_t sequence,
                             bool causal) {
  return layer_product_flops_per_token(spec, layout, layer) +
         layer_score_flops_per_token(spec, layer, sequence, causal);
}

double mtp_join_elements(const ModelSpec& spec) {
  return 2.0 * spec.hidden * spec.hidden;
}

double head_flops_per_token(const ModelSpec& spec) {
  return 2.0 * spec.outputs() * spec.hidden;
}

}  // namespace automodel::arch
