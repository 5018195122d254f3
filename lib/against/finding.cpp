#include "against/finding.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "against/dump.h"
#include "against/factors.h"
#include "against/row_weights.h"
#include "against/structure.h"
#include "base/json_writer.h"
#include "base/text_table.h"
#include "base/utf8.h"
#include "checkpoint/format/elements.h"

namespace automodel::against {
namespace {

constexpr std::size_t kShown = 8;  // tensors of the table

double norm_of_theirs(const Evidence& evidence) {
  double sum = 0;
  for (const auto& pair : evidence.pairs)
    for (const double value : pair.theirs) sum += value * value;
  return std::sqrt(sum);
}

/// theirs = factor x prediction, for every tensor; the factor, if that is so.
std::optional<double> factor_of(const Evidence& evidence, const std::function<const Values&(std::size_t)>& predicted) {
  Products sums;
  for (std::size_t i = 0; i < evidence.pairs.size(); ++i) sums.add(evidence.pairs[i].theirs, predicted(i));
  const double factor = sums.ours == 0 ? 0 : sums.both / sums.ours;
  const auto scaled = [&](std::size_t i) {
    Values out = predicted(i);
    for (auto& value : out) value *= factor;
    return out;
  };
  return worst_difference(evidence, false, scaled) <= evidence.tolerance.relative ? std::optional(factor)
                                                                                  : std::nullopt;
}

/// What a factor of everything (gradients, loss, or both) means.
Finding said_of_factor(const Evidence& evidence, double factor, const std::string& what, bool loss_too) {
  const double tolerance = evidence.tolerance.of_sums();
  const auto divisor = divisor_of(factor, evidence, tolerance);
  auto count = count_of(factor, norm_of_theirs(evidence), evidence, tolerance);
  // A wrong divisor changes the loss as well; what ranks or steps do to gradients does not.
  if (divisor && (loss_too || count.empty()))
    return {
        .id = FindingId::kDivisor,
        .text = fmt::format("{} {:.6g} times the right one: the sum of losses is divided by {} ({}) and not by the {} "
                            "label tokens",
                            what, factor, divisor->count, divisor->what, evidence.labels),
        .factor = factor};
  auto text = fmt::format("{} {:.6g} times the right one", what, factor);
  if (loss_too) text += ", and so is the loss";
  if (!count.empty()) text += "; " + count;
  return {.id = FindingId::kConstantFactor, .text = std::move(text), .factor = factor};
}

std::optional<Finding> explain_by_factor(const Evidence& evidence) {
  const auto factor = factor_of(evidence, [&](std::size_t i) -> const Values& { return evidence.pairs[i].ours; });
  if (!factor || relative(*factor, 1) <= evidence.tolerance.of_sums()) return std::nullopt;
  if (*factor == 0) return Finding{.id = FindingId::kConstantFactor, .text = "every gradient is zero", .factor = 0};
  const double loss = evidence.our_loss == 0 ? 1 : evidence.their_loss / evidence.our_loss;
  return said_of_factor(evidence, *factor, "every gradient is",
                        relative(loss, *factor) <= evidence.tolerance.of_sums());
}

/// Gradients agree and the loss does not.
std::optional<Finding> explain_loss_alone(const Evidence& evidence) {
  if (const auto count = loss_of_means(evidence))
    return Finding{.id = FindingId::kMeanOfMeans,
                   .text = fmt::format("gradients agree; the loss is the mean of the means of {} microbatches, not the "
                                       "mean over tokens",
                                       *count)};
  const double factor = evidence.our_loss == 0 ? 0 : evidence.their_loss / evidence.our_loss;
  auto found = said_of_factor(evidence, factor, "gradients agree; the loss is", true);
  const bool known =
      found.id == FindingId::kDivisor || !count_of(factor, 0, evidence, evidence.tolerance.of_sums()).empty();
  return known ? std::optional(std::move(found)) : std::nullopt;
}

/// A mistake in labels that was published for a trainer.
struct Relabelling {
  const char* text;
  std::vector<std::int64_t> targets;
};

std::vector<Relabelling> relabellings(const Evidence& evidence) {
  const auto size = static_cast<std::int64_t>(evidence.ids.size());
  const auto shifted = [&](const std::vector<std::int64_t>& from, std::int64_t by) {
    std::vector<std::int64_t> out(from.size(), kIgnored);
    for (std::int64_t i = 0; i < size; ++i) {
      const auto t = i % evidence.tokens + by;
      if (t >= 0 && t < evidence.tokens) out[static_cast<std::size_t>(i)] = from[static_cast<std::size_t>(i + by)];
    }
    return out;
  };
  std::vector<Relabelling> out = {
      {"labels are shifted twice: each token is trained to predict the one after the next",
       shifted(evidence.batch_labels, 2)},
      {"labels are not shifted: each token is trained to predict itself", shifted(evidence.batch_labels, 0)},
      {"labels are shifted the wrong way: each token is trained to predict the one before it",
       shifted(evidence.batch_labels, -1)},
      {"ignored labels count: every token is trained to predict the next one, whatever its label",
       shifted(evidence.ids, 1)},
  };
  for (auto& each : out)
    for (std::size_t i = 0; i < each.targets.size(); ++i)
      if (!evidence.mask.empty() && evidence.mask[i] == 0) each.targets[i] = kIgnored;
  return out;
}

std::optional<Finding> explain_by_labels(const Evidence& evidence, Laboratory& laboratory) {
  for (const auto& each : relabellings(evidence)) {
    const auto other = laboratory.with_targets(each.targets);
    if (!other) continue;
    const auto factor = factor_of(evidence, [&](std::size_t i) -> const Values& { return other->gradients[i]; });
    if (!factor || *factor == 0) continue;
    Finding out{.id = FindingId::kLabels, .text = each.text, .factor = *factor};
    if (relative(*factor, 1) <= evidence.tolerance.of_sums()) {
      out.factor = 1;
    } else if (const auto divisor = static_cast<double>(other->labels) / *factor;
               relative(divisor, static_cast<double>(evidence.labels)) <= evidence.tolerance.of_sums()) {
      out.text += fmt::format(" (divided by the {} labels that count)", evidence.labels);
    } else {
      out.text += fmt::format("; besides, every gradient is {:.6g} times that", *factor);
    }
    return out;
  }
  return std::nullopt;
}

/// Whether a 16-bit type has every value of the dump.
bool representable(const Evidence& evidence, const std::function<double(double)>& rounded) {
  for (const auto& pair : evidence.pairs)
    for (const double value : pair.theirs)
      if (rounded(value) != value) return false;
  return true;
}

std::optional<Finding> explain_by_rounding(const Evidence& evidence, const std::vector<Likeness>& likenesses) {
  // Rounding affects all tensors alike.
  constexpr double kAlike = 20;
  std::vector<double> differences;
  for (const auto& each : likenesses) differences.push_back(each.relative_difference);
  std::ranges::sort(differences);
  const double worst = differences.back();
  if (worst > kAlike * differences[differences.size() / 2]) return std::nullopt;
  const bool bfloat16 = representable(evidence, [](double value) {
    return static_cast<double>(checkpoint::to_float_from_bf16(checkpoint::to_bf16(static_cast<float>(value))));
  });
  const bool float16 = representable(evidence, [](double value) {
    return static_cast<double>(checkpoint::to_float_from_f16(checkpoint::to_f16(static_cast<float>(value))));
  });
  // What routers send elsewhere explains more only where 16 bits are seen.
  if (worst > (bfloat16 || float16 ? evidence.sixteen_bits_routed : evidence.sixteen_bits)) return std::nullopt;
  return Finding{
      .id = FindingId::kRounding,
      .text = fmt::format("gradients differ as by rounding in 16 bits (at most {:.2g}, bfloat16 explains {:.2g}){}",
                          worst, evidence.sixteen_bits,
                          bfloat16  ? ": all of them are bfloat16 numbers"
                          : float16 ? ": all of them are float16 numbers"
                                    : ", without a pattern: sums or activations were kept in 16 bits")};
}

bool all_equal(const std::vector<TensorState>& states) {
  return std::ranges::all_of(states, [](const auto& one) { return one.state == State::kEqual; });
}

/// `alike`: each tensor is equal by itself, and differs in `each` for a common factor at most.
Finding find(const Evidence& evidence, Laboratory& laboratory, const std::vector<Likeness>& likenesses,
             const std::vector<TensorState>& each, bool alike) {
  const bool losses = relative(evidence.their_loss, evidence.our_loss) <= evidence.tolerance.of_loss();
  const bool gradients = all_equal(each);
  if (gradients && losses)
    return {.id = FindingId::kEqual,
            .text = fmt::format("loss and the gradients of {} tensors are equal within {:.1e}", evidence.pairs.size(),
                                evidence.tolerance.relative)};
  if (gradients) {
    if (auto found = explain_loss_alone(evidence)) return *found;
    return {.text = described(evidence, each, likenesses)};
  }
  const bool whole = std::ranges::all_of(each, [&](const auto& one) { return one.factor == each[0].factor; });
  if (auto found = alike && !whole ? std::nullopt : explain_by_factor(evidence)) return *found;
  if (auto found = alike ? std::nullopt : explain_by_rows(evidence)) return *found;
  if (auto found = explain_by_tensors(evidence, each, laboratory)) return *found;
  if (auto found = explain_by_kind(evidence, each)) return *found;
  if (auto found = alike ? std::nullopt : explain_by_labels(evidence, laboratory)) return *found;
  if (auto found = alike ? std::nullopt : explain_by_rounding(evidence, likenesses)) return *found;
  return {.text = described(evidence, each, likenesses)};
}

}  // namespace

std::string_view name_of(FindingId id) {
  constexpr std::array<std::string_view, 13> kNames = {
      "equal",        "constant-factor", "mean-of-means", "missing-rows",  "missing-layers",
      "layer-factor", "kind-of-weight",  "tied-part",     "missing-shard", "rounding",
      "labels",       "divisor",         "unknown"};
  return kNames[static_cast<std::size_t>(id)];
}

Comparison compare(const Evidence& evidence, Laboratory& laboratory) {
  Comparison out{.their_loss = evidence.their_loss, .our_loss = evidence.our_loss, .tolerance = evidence.tolerance};
  out.likenesses = likenesses(evidence);
  for (const auto& pair : evidence.pairs) out.names.push_back(pair.name);
  auto each = states(evidence);
  const bool alike = all_equal(each);
  if (alike) mark_factors(evidence, each);
  out.finding = find(evidence, laboratory, out.likenesses, each, alike);
  for (std::size_t i = 0; i < each.size(); ++i)
    if (each[i].state != State::kEqual) out.finding.tensors.push_back(out.names[i]);
  return out;
}

std::string to_text(const Comparison& comparison) {
  TextTable table({"gradient of", "relative difference", "cosine", "norm ratio"});
  std::vector<std::size_t> order(comparison.names.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, std::greater(),
                           [&](std::size_t i) { return comparison.likenesses[i].relative_difference; });
  for (std::size_t k = 0; k < std::min(kShown, order.size()); ++k) {
    const auto& like = comparison.likenesses[order[k]];
    table.add({printable(comparison.names[order[k]], checkpoint::kMostShown),
               fmt::format("{:.1e}", like.relative_difference), fmt::format("{:.6f}", like.cosine),
               fmt::format("{:.6g}", like.norm_ratio)});
  }
  std::string out =
      fmt::format("loss      {:.10g} theirs, {:.10g} ours, relative difference {:.1e}\n\n", comparison.their_loss,
                  comparison.our_loss, relative(comparison.their_loss, comparison.our_loss));
  out += table.text();
  if (order.size() > kShown) out += fmt::format("  and {} more, which differ less\n", order.size() - kShown);
  return out + fmt::format("\n{}{}: {}\n{}", comparison.equal() ? "" : "DIFFERENT, ", name_of(comparison.finding.id),
                           printable_lines(comparison.finding.text),
                           comparison.equal()
                               ? ""
                               : fmt::format("(allowed: {:.1e} relative difference, {:.1e} of a common factor)\n",
                                             comparison.tolerance.relative, comparison.tolerance.of_sums()));
}

std::string to_json(const Comparison& comparison) {
  JsonWriter json;
  json.begin_object();
  json.member("equal", comparison.equal());
  json.key("loss");
  json.begin_object();
  json.member("theirs", comparison.their_loss);
  json.member("ours", comparison.our_loss);
  json.end_object();
  json.key("finding");
  json.begin_object();
  json.member("id", name_of(comparison.finding.id));
  json.member("text", comparison.finding.text);
  json.member("tensors", comparison.finding.tensors);
  if (comparison.finding.factor)
    json.member("factor", *comparison.finding.factor);
  else
    json.member("factor", nullptr);
  json.end_object();
  json.key("tensors");
  json.begin_array();
  for (std::size_t i = 0; i < comparison.names.size(); ++i) {
    json.begin_object();
    json.member("name", comparison.names[i]);
    json.member("relative_difference", comparison.likenesses[i].relative_difference);
    json.member("cosine", comparison.likenesses[i].cosine);
    json.member("norm_ratio", comparison.likenesses[i].norm_ratio);
    json.end_object();
  }
  json.end_array();
  json.end_object();
  return json.take() + "\n";
}

}  // namespace automodel::against
