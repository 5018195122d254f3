// The decisions of a plan as named, documented values. The JSON output, its reference page and the fingerprint that
// ranks compare, and the key of past runs are all generated from these declarations.
#pragma once

#include <string>
#include <string_view>

#include "base/json_writer.h"
#include "config/value.h"

namespace automodel::plan {

struct TrainingPlan;

/// What a decision changes.
struct Affects {
  bool numbers = false;  ///< what is computed, beyond rounding from another order of sums
  bool time = false;     ///< of a step
  bool memory = false;   ///< of a rank
};
using Effect = bool Affects::*;

struct FactDoc {
  std::string_view name;
  Affects affects;
  std::string_view doc;
};

/// Writes the members of all parts into an open object.
void write_parts(JsonWriter& json, const TrainingPlan& plan);
/// The decisions that have the effect (null: all) by part and name, including those that `plan --json` prints in a form
/// of their own.
config::Value facts_of(const TrainingPlan& plan, Effect effect = nullptr);
/// The tables of docs/plan-json.md for these parts.
std::string parts_reference();

}  // namespace automodel::plan
