#include "against/row_weights.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "against/factors.h"

namespace automodel::against {
namespace {

constexpr std::size_t kMostRows = 512;  // the least squares take their third power

using Weights = std::vector<double>;
/// By row, the number of its microbatch.
using Partition = std::vector<std::int64_t>;

double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// The dump as predicted by weights of rows.
double worst_of(const Evidence& evidence, const Weights& weights) {
  return worst_difference(evidence, true, [&](std::size_t tensor) {
    Values out(evidence.rows[0].gradients[tensor].size(), 0.0);
    for (std::size_t row = 0; row < weights.size(); ++row) {
      const auto& from = evidence.rows[row].gradients[tensor];
      for (std::size_t i = 0; i < out.size(); ++i) out[i] += weights[row] / evidence.divisor * from[i];
    }
    return out;
  });
}

/// Solves a x = b for a symmetric positive definite matrix; overwrites both.
void solve(std::vector<Values>& a, Values& b) {
  const std::size_t n = b.size();
  for (std::size_t k = 0; k < n; ++k) {  // Cholesky
    for (std::size_t j = 0; j < k; ++j) a[k][k] -= a[k][j] * a[k][j];
    a[k][k] = std::sqrt(std::max(a[k][k], 1e-300));
    for (std::size_t i = k + 1; i < n; ++i) {
      for (std::size_t j = 0; j < k; ++j) a[i][k] -= a[i][j] * a[k][j];
      a[i][k] /= a[k][k];
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < i; ++j) b[i] -= a[i][j] * b[j];
    b[i] /= a[i][i];
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t j = i + 1; j < n; ++j) b[i] -= a[j][i] * b[j];
    b[i] /= a[i][i];
  }
}

/// Ways in which trainers divide rows into `count` microbatches: as torch.chunk, as numpy.array_split, and dealt out to
/// ranks one by one.
std::vector<Partition> partitions(std::int64_t rows, std::int64_t count) {
  std::vector<Partition> out(3);
  const auto chunk = (rows + count - 1) / count;
  const auto whole = rows / count, longer = rows % count;
  for (std::int64_t row = 0; row < rows; ++row) {
    out[0].push_back(row / chunk);
    out[1].push_back(row < longer * (whole + 1) ? row / (whole + 1) : (row - longer * (whole + 1)) / whole + longer);
    out[2].push_back(row % count);
  }
  return out;
}

/// Microbatches by their rows; those without labels have a mean of nothing and are left out.
std::map<std::int64_t, std::int64_t> labels_of(const Evidence& evidence, const Partition& partition) {
  std::map<std::int64_t, std::int64_t> out;
  for (std::size_t row = 0; row < partition.size(); ++row) out[partition[row]] += evidence.rows[row].labels;
  std::erase_if(out, [](const auto& each) { return each.second == 0; });
  return out;
}

/// Weights that make the mean of the microbatches' means.
Weights means(const Evidence& evidence, const Partition& partition) {
  const auto labels = labels_of(evidence, partition);
  Weights out;
  for (const auto part : partition) {
    const auto found = labels.find(part);
    out.push_back(found == labels.end() ? 1.0
                                        : static_cast<double>(evidence.labels) / (static_cast<double>(labels.size()) *
                                                                                  static_cast<double>(found->second)));
  }
  return out;
}

std::string said(const Partition& partition) {
  std::map<std::int64_t, std::vector<std::int64_t>> rows;
  for (std::size_t row = 0; row < partition.size(); ++row)
    rows[partition[row]].push_back(static_cast<std::int64_t>(row));
  std::vector<std::string> parts;
  constexpr std::size_t kMost = 8;
  for (const auto& [part, its] : rows) {
    if (parts.size() == kMost) {
      parts.emplace_back("...");
      break;
    }
    parts.push_back(ranges(its));
  }
  return fmt::format("{} microbatches (rows {})", rows.size(), fmt::join(parts, "; "));
}

/// The factor by which the fitted weights are those of a hypothesis.
double common_factor(const Weights& fitted, const Weights& expected) {
  double both = 0, square = 0;
  for (std::size_t i = 0; i < fitted.size(); ++i) {
    both += fitted[i] * expected[i];
    square += expected[i] * expected[i];
  }
  return square == 0 ? 0 : both / square;
}

Weights scaled(Weights weights, double factor) {
  for (auto& weight : weights) weight *= factor;
  return weights;
}

std::optional<Finding> mean_of_means(const Evidence& evidence, const Weights& fitted) {
  double least = evidence.tolerance.relative;
  std::optional<Finding> best;
  for (std::int64_t count = 2; count <= evidence.row_count; ++count)
    for (const auto& partition : partitions(evidence.row_count, count)) {
      const auto expected = means(evidence, partition);
      double factor = common_factor(fitted, expected);
      if (relative(factor, 1) <= evidence.tolerance.of_sums()) factor = 1;
      const double worst = worst_of(evidence, scaled(expected, factor));
      if (worst > least || (best && worst > 0.5 * least)) continue;  // of equals the one with fewer microbatches
      least = worst;
      best = Finding{.id = FindingId::kMeanOfMeans,
                     .text = fmt::format("the mean of the means of {}, not the mean over tokens: rows of microbatches "
                                         "with few labels count too much",
                                         said(partition))};
      if (factor != 1) {
        best->text += fmt::format("; besides, everything is {:.6g} times as large", factor);
        best->factor = factor;
      }
    }
  return best;
}

std::optional<Finding> missing_rows(const Evidence& evidence, const Weights& fitted) {
  constexpr double kNone = 0.05;  // of the largest weight; what noise leaves is far less, what a mean makes far more
  const double most = std::ranges::max(fitted, {}, [](double weight) { return std::abs(weight); });
  Weights expected;
  std::vector<std::int64_t> missing, there;
  std::int64_t labels = 0;
  for (std::size_t row = 0; row < fitted.size(); ++row) {
    const bool empty = evidence.rows[row].labels == 0;
    const bool counts = empty || std::abs(fitted[row]) > kNone * std::abs(most);
    expected.push_back(counts ? 1 : 0);
    if (!empty) (counts ? there : missing).push_back(static_cast<std::int64_t>(row));
    if (counts) labels += evidence.rows[row].labels;
  }
  if (missing.empty() || there.empty()) return std::nullopt;
  const auto say = [&](double factor) {
    std::string out = fmt::format("row{} {} {} not contribute: the gradient is that of row{} {} alone",
                                  missing.size() == 1 ? "" : "s", ranges(missing), missing.size() == 1 ? "does" : "do",
                                  there.size() == 1 ? "" : "s", ranges(there));
    if (factor != 1) {
      const bool own_mean = relative(factor, static_cast<double>(evidence.labels) / static_cast<double>(labels)) <=
                            evidence.tolerance.of_sums();
      out += own_mean ? ", divided by their own labels"
                      : fmt::format(", {:.6g} times what they should contribute", factor);
    }
    return out;
  };
  double factor = common_factor(fitted, expected);
  if (relative(factor, 1) <= evidence.tolerance.of_sums()) factor = 1;
  if (worst_of(evidence, scaled(expected, factor)) <= evidence.tolerance.relative)
    return Finding{.id = FindingId::kMissingRows, .text = say(factor), .factor = factor};
  // Those that are there may weigh differently; that the fit predicts the dump was seen before.
  auto out = Finding{.id = FindingId::kMissingRows, .text = say(1)};
  out.text += ", with unequal weights";
  return out;
}

}  // namespace

std::vector<double> row_weights(const Evidence& evidence) {
  const std::size_t rows = evidence.rows.size();
  if (rows == 0 || rows > kMostRows) return {};
  std::vector<Values> gram(rows, Values(rows, 0.0));
  Values right(rows, 0.0);
  for (std::size_t tensor = 0; tensor < evidence.pairs.size(); ++tensor) {
    const auto stride = evidence.strides[tensor];
    const auto& pair = evidence.pairs[tensor];
    auto beyond = sampled(pair.theirs, stride);  // theirs - ours is explained by how far weights are from 1
    const auto ours = sampled(pair.ours, stride);
    for (std::size_t i = 0; i < beyond.size(); ++i) beyond[i] -= ours[i];
    for (std::size_t i = 0; i < rows; ++i) {
      const auto& mine = evidence.rows[i].gradients[tensor];
      right[i] += dot(mine, beyond) * evidence.divisor;
      for (std::size_t j = 0; j <= i; ++j) gram[i][j] += dot(mine, evidence.rows[j].gradients[tensor]);
    }
  }
  double trace = 0;
  for (std::size_t i = 0; i < rows; ++i) trace += gram[i][i];
  for (std::size_t i = 0; i < rows; ++i) gram[i][i] += 1e-12 * trace / static_cast<double>(rows) + 1e-300;
  solve(gram, right);  // where rows cannot be told apart, the weights nearest to 1
  for (auto& weight : right) weight += 1;
  for (std::size_t i = 0; i < rows; ++i)
    if (evidence.rows[i].labels == 0) right[i] = 1;
  return right;
}

std::optional<Finding> explain_by_rows(const Evidence& evidence) {
  const auto fitted = row_weights(evidence);
  if (fitted.size() < 2 || worst_of(evidence, fitted) > evidence.tolerance.relative) return std::nullopt;
  if (auto found = mean_of_means(evidence, fitted)) return found;
  if (auto found = missing_rows(evidence, fitted)) return found;
  std::vector<std::string> weights;
  for (const double weight : fitted) weights.push_back(fmt::format("{:.4g}", weight));
  return Finding{.id = FindingId::kUnknown,
                 .text = fmt::format("the rows count {} times what they should", fmt::join(weights, ", "))};
}

std::optional<std::int64_t> loss_of_means(const Evidence& evidence) {
  for (std::int64_t count = 2; !evidence.rows.empty() && count <= evidence.row_count; ++count) {
    const auto weights = means(evidence, partitions(evidence.row_count, count)[0]);
    double loss = 0;
    for (std::size_t row = 0; row < weights.size(); ++row) loss += weights[row] * evidence.rows[row].loss;
    if (relative(evidence.their_loss, loss / evidence.divisor) <= evidence.tolerance.of_sums()) return count;
  }
  return std::nullopt;
}

}  // namespace automodel::against
