#include "against/factors.h"

#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "against/likeness.h"

namespace automodel::against {
namespace {

constexpr std::int64_t kLeastLossScale = 256;

/// The whole number that `value` is, from 2 on: a count of the batch, a power of two from 256 on, or any other that the
/// tolerance tells from its neighbours.
std::optional<std::int64_t> whole(double value, const Evidence& evidence, double tolerance) {
  if (!(value > 1.5) || value > 1e18) return std::nullopt;
  const auto near = [&](std::int64_t count) { return relative(value, static_cast<double>(count)) <= tolerance; };
  for (const auto count : {evidence.labels, evidence.row_count * evidence.tokens, evidence.tokens, evidence.row_count})
    if (count > 1 && near(count)) return count;
  const auto power = std::int64_t{1} << std::lround(std::log2(value));
  if (power >= kLeastLossScale && near(power)) return power;
  const auto nearest = static_cast<std::int64_t>(std::llround(value));
  return near(nearest) && tolerance * value < 0.25 ? std::optional(nearest) : std::nullopt;
}

std::string said_of_multiple(std::int64_t count, const Evidence& evidence) {
  if (count == evidence.labels) return fmt::format("the {} label tokens of the batch: a sum in place of a mean", count);
  if (count == evidence.row_count * evidence.tokens)
    return fmt::format("the {} tokens of the batch: a sum in place of a mean", count);
  if (count <= evidence.row_count && evidence.row_count % count == 0)
    return fmt::format(
        "as many as microbatches of {}: their means are summed and not divided by their number",
        evidence.row_count / count == 1 ? "one row" : fmt::format("{} rows", evidence.row_count / count));
  if ((count & (count - 1)) == 0 && count >= kLeastLossScale)
    return fmt::format("2^{}: the loss scale of float16 is not divided out", std::llround(std::log2(count)));
  return fmt::format("as many as {} accumulation steps or ranks whose gradients are summed and not averaged", count);
}

std::string said_of_part(std::int64_t count, const Evidence& evidence) {
  if (count == evidence.labels) return fmt::format("1 / the {} label tokens: divided by them twice", count);
  if (count == evidence.tokens) return fmt::format("1 / the {} tokens of a row", count);
  if (count <= evidence.row_count && evidence.row_count % count == 0)
    return fmt::format("1 / {0}: as many as ranks or microbatches, by which a mean over tokens is divided once more",
                       count);
  return fmt::format("1 / {0}: as many as ranks, by which gradients are divided once more", count);
}

}  // namespace

std::optional<OtherDivisor> divisor_of(double factor, const Evidence& evidence, double tolerance) {
  const auto all = evidence.row_count * evidence.tokens;
  std::int64_t ignored_first = 0;  // labels of first tokens, which nothing predicts, are often set
  for (std::int64_t row = 0; row < evidence.row_count; ++row)
    ignored_first += evidence.batch_labels[static_cast<std::size_t>(row * evidence.tokens)] >= 0 ? 1 : 0;
  const std::array<std::pair<std::int64_t, const char*>, 5> counts = {{
      {all, "all tokens of the batch, ignored labels and padding included"},
      {all - evidence.row_count, "all tokens of the batch that have a next one, ignored labels and padding included"},
      {evidence.real_tokens, "all tokens that are not padding, ignored labels included"},
      {evidence.real_tokens - evidence.row_count, "all tokens that are not padding and have a next one"},
      {evidence.labels + ignored_first, "all labels, those of first tokens included, which nothing predicts"},
  }};
  std::optional<OtherDivisor> nearest;
  for (const auto& [count, what] : counts) {
    if (count <= 0 || count == evidence.labels) continue;
    const double off = relative(factor, static_cast<double>(evidence.labels) / static_cast<double>(count));
    if (off > tolerance || (nearest && off == tolerance)) continue;
    tolerance = off;
    nearest = OtherDivisor{count, what};
  }
  return nearest;
}

std::string count_of(double factor, double their_norm, const Evidence& evidence, double tolerance) {
  if (relative(factor, -1) <= tolerance) return "the sign is turned round";
  if (const auto count = whole(factor, evidence, tolerance)) return said_of_multiple(*count, evidence);
  if (const auto count = whole(1 / factor, evidence, tolerance)) return said_of_part(*count, evidence);
  if (factor < 1)
    for (const double limit : {0.1, 0.25, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0})
      if (relative(their_norm, limit) <= tolerance + 1e-6 / limit)  // clipping divides by the norm + 1e-6
        return fmt::format("their norm is {:g}: they were clipped before they were saved", limit);
  return "";
}

std::string ranges(const std::vector<std::int64_t>& sorted) {
  std::string out;
  for (std::size_t i = 0; i < sorted.size();) {
    std::size_t end = i;
    while (end + 1 < sorted.size() && sorted[end + 1] == sorted[end] + 1) ++end;
    const bool last = end + 1 == sorted.size();
    if (i > 0) out += last ? " and " : ", ";
    out += end == i ? fmt::format("{}", sorted[i]) : fmt::format("{} to {}", sorted[i], sorted[end]);
    i = end + 1;
  }
  return out;
}

}  // namespace automodel::against
