#include "against/likeness.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "against/dump.h"

namespace automodel::against {

Tolerance tolerance_for(checkpoint::ElementType type, int layers, std::int64_t longest, bool experts) {
  const double carried = 12, moved = experts && checkpoint::bits_of(type) == 16 ? 4 : 1;
  const double sums =
      type == checkpoint::ElementType::kF64 ? 0 : std::ldexp(std::sqrt(static_cast<double>(longest)), -24);
  return {.relative = std::min(kMostRelative, carried * (moved * roundoff(type) * std::sqrt(layers + 1.0) + sums))};
}

void Products::add(std::span<const double> a, std::span<const double> b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    theirs += a[i] * a[i];
    ours += b[i] * b[i];
    both += a[i] * b[i];
    difference += (a[i] - b[i]) * (a[i] - b[i]);
  }
}

double relative(double a, double b) {
  if (a == b) return 0;
  return b == 0 ? std::numeric_limits<double>::infinity() : std::abs(a - b) / std::abs(b);
}

double norm_of_ours(const Evidence& evidence) {
  double sum = 0;
  for (const auto& pair : evidence.pairs)
    for (const double value : pair.ours) sum += value * value;
  return std::sqrt(sum);
}

std::vector<Likeness> likenesses(const Evidence& evidence) {
  const double least = evidence.tolerance.floor * norm_of_ours(evidence);
  std::vector<Likeness> out;
  for (const auto& pair : evidence.pairs) {
    Products sums;
    sums.add(pair.theirs, pair.ours);
    auto& like = out.emplace_back();
    const double theirs = std::sqrt(sums.theirs), ours = std::sqrt(sums.ours);
    if (sums.difference > 0) like.relative_difference = std::sqrt(sums.difference) / std::max(ours, least);
    if (theirs > 0 && ours > 0)
      like.cosine = sums.both / (theirs * ours);
    else if (theirs > 0 || ours > 0)
      like.cosine = 0;
    if (ours > 0)
      like.norm_ratio = theirs / ours;
    else if (theirs > 0)
      like.norm_ratio = std::numeric_limits<double>::infinity();
  }
  return out;
}

Values sampled(const Values& whole, std::int64_t stride) {
  if (stride == 1) return whole;
  Values out;
  for (std::size_t i = 0; i < whole.size(); i += static_cast<std::size_t>(stride)) out.push_back(whole[i]);
  return out;
}

double worst_difference(const Evidence& evidence, bool samples, const std::function<Values(std::size_t)>& predicted) {
  std::vector<Products> all;
  double whole = 0;
  for (std::size_t i = 0; i < evidence.pairs.size(); ++i) {
    const auto& theirs = evidence.pairs[i].theirs;
    all.emplace_back().add(samples ? sampled(theirs, evidence.strides[i]) : theirs, predicted(i));
    whole += all.back().ours;
  }
  const double least = evidence.tolerance.floor * std::sqrt(whole);
  double worst = 0;
  for (const auto& sums : all) {
    if (sums.difference == 0) continue;
    const double size = std::max(std::sqrt(sums.ours), least);
    worst = std::max(worst, size == 0 ? std::numeric_limits<double>::infinity() : std::sqrt(sums.difference) / size);
  }
  return worst;
}

}  // namespace automodel::against
