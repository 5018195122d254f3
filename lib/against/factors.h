// Factors in words: which count of the batch a number equals.
#pragma once

#include <optional>
#include <string>

#include "against/evidence.h"

namespace automodel::against {

/// The divisor that was used in place of the label tokens, if `factor` is labels / that.
struct OtherDivisor {
  std::int64_t count = 0;
  std::string what = {};  ///< "all tokens of the batch"
};
std::optional<OtherDivisor> divisor_of(double factor, const Evidence& evidence, double tolerance);

/// "as many as microbatches of 2 rows: ..."; empty if no count fits. `their_norm`: of all gradients in the dump.
std::string count_of(double factor, double their_norm, const Evidence& evidence, double tolerance);

/// "rows 0 to 3 and 5".
std::string ranges(const std::vector<std::int64_t>& sorted);

}  // namespace automodel::against
