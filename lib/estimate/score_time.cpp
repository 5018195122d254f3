#include "estimate/score_time.h"

#include "estimate/activation_memory.h"

namespace automodel::estimate {
namespace {

/// Time per score of a fused backward kernel beside its GEMMs, as a multiple of the forward kernel's: the exponentials
/// again, their gradients, and float32 sums over blocks of keys. Measured on an H200 (docs/estimates.md).
constexpr double kBackwardScores = 3.4;

/// Whether a query sees all keys up to its own, and a rank has them.
bool is_whole(const arch::ModelSpec& spec, int layer, std::int64_t sequence, int context_ranks) {
  const bool cut = spec.slides(layer) && spec.sliding_window > 0 && spec.sliding_window < sequence;
  return !cut && !spec.attention_sinks && context_ranks == 1;
}

}  // namespace

ScoreTime score_time(const arch::ModelSpec& spec, int layer, double flops, int bytes, std::int64_t sequence,
                     int context_ranks, const Hardware& hardware) {
  if (hardware.exponential > 0 && !spec.recurs(layer) && has_fused_attention(spec, layer, bytes, true) &&
      is_whole(spec, layer, sequence, context_ranks)) {
    const double products = flops / (hardware.peak * hardware.head_efficiency);  // in 16 bits, as the head's
    const double per_score =
        2.0 * static_cast<double>(spec.query_width(layer) + spec.value_width(layer)) / spec.heads_of(layer);
    const double scores = flops / per_score * hardware.exponential;
    return {products + scores, 2.5 * products + kBackwardScores * scores};
  }
  const double reached =
      hardware.attention_efficiency > 0 ? hardware.attention_efficiency : hardware.forward_efficiency;
  const double forward = flops / (hardware.peak * reached);
  return {forward, 2 * forward};
}

}  // namespace automodel::estimate
