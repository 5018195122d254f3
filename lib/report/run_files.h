// What a run left in its folder: steps, validations, events, planned versus measured, timelines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "report/rank_phases.h"
#include "report/time_line.h"

namespace automodel::report {

/// One metric over the steps; NaN where there was no finite value.
struct Column {
  std::vector<std::int64_t> steps = {};
  std::vector<double> values = {};
};

struct RunEvent {
  std::string event = {};
  std::string time = {};   ///< ISO 8601
  std::int64_t step = -1;  ///< -1: none
  std::string message = {};
  std::vector<std::pair<std::string, std::string>> fields = {};  ///< everything else, except the recipe
};

/// The recipe flattened to dotted keys, as of one start of the run.
using FlatRecipe = std::map<std::string, std::string>;

struct PlannedAndMeasured {
  std::string what = {};
  double planned = 0, measured = 0;
  bool bytes = false;  ///< false: seconds
};

struct RunFiles {
  std::string name = {};                          ///< the folder, for display
  std::map<std::string, Column> metrics = {};     ///< from training.jsonl, by key
  std::map<std::string, Column> validation = {};  ///< val_loss, by name of the validation set
  std::vector<RunEvent> events = {};
  std::vector<std::pair<std::int64_t, FlatRecipe>> recipes = {};  ///< (first step, recipe) per start
  std::vector<PlannedAndMeasured> estimate = {};
  std::vector<StepTrace> traces = {};
  RankColumns ranks = {};
};

/// Whether a file may be read.
using Takes = std::function<bool(const std::filesystem::path& file)>;
bool is_file(const std::filesystem::path& file);

/// Reads a run's folder (checkpoint.checkpoint_dir). Lines that are not records (torn by a crash) are skipped, and
/// files that `takes` refuses. Throws Error (bad input, missing-file) if there is no training.jsonl.
RunFiles read_run(const std::filesystem::path& folder, const Takes& takes = is_file);

}  // namespace automodel::report
