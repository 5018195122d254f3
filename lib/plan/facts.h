// The decisions of a plan as named, documented values. The JSON output, its reference page and the fingerprint that
// ranks compare are all generated from these declarations.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_writer.h"
#include "config/value.h"

namespace automodel::plan {

struct TrainingPlan;

struct FactDoc {
  std::string_view name;
  std::string_view doc;
};

/// One object of `plan --json`.
struct PlanPart {
  std::string_view name;
  std::string_view doc;
  std::vector<FactDoc> (*rows)();  ///< empty if the contents are documented elsewhere
  config::Value (*get)(const TrainingPlan& plan);
};

/// Writes the members of all parts into an open object.
void write_parts(JsonWriter& json, const TrainingPlan& plan);
/// The tables of docs/plan-json.md for these parts.
std::string parts_reference();

}  // namespace automodel::plan
