// What the difference between a dump and our computation means.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "against/evidence.h"
#include "against/likeness.h"

namespace automodel::against {

/// The kinds of findings; programs see their names.
enum class FindingId : std::uint8_t {
  kEqual,
  kConstantFactor,
  kMeanOfMeans,
  kMissingRows,
  kMissingLayers,
  kLayerFactor,
  kKindOfWeight,
  kTiedPart,
  kMissingShard,
  kRounding,
  kLabels,
  kDivisor,
  kUnknown,
};
std::string_view name_of(FindingId id);

struct Finding {
  FindingId id = FindingId::kUnknown;
  std::string text = {};                  ///< in words, with the numbers
  std::vector<std::string> tensors = {};  ///< that differ
  std::optional<double> factor = {};      ///< by which what differs is too large
};

/// A comparison as it is reported.
struct Comparison {
  double their_loss = 0, our_loss = 0;
  Tolerance tolerance = {};
  std::vector<std::string> names = {};
  std::vector<Likeness> likenesses = {};  ///< by name
  Finding finding = {};
  bool equal() const { return finding.id == FindingId::kEqual; }
};

/// Compares and, where loss or gradients differ, looks for the simplest cause that predicts every tensor of the dump
/// within the tolerance. Causes are tried from the most regular one: a factor of everything, weights of rows, parts of
/// a tied weight, some tensors only, other labels, rounding. Nothing is accepted because it looks alike: each
/// explanation is computed and compared again.
Comparison compare(const Evidence& evidence, Laboratory& laboratory);

/// A table of the tensors that differ most, and the finding.
std::string to_text(const Comparison& comparison);
/// {"equal", "loss": {theirs, ours}, "finding": {id, text, tensors, factor}, "tensors": [{name, relative_difference,
/// cosine, norm_ratio}]}.
std::string to_json(const Comparison& comparison);

}  // namespace automodel::against
