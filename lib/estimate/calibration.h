// Measurements of this machine: rates of model parts, link speeds, and times of past runs. Stored in one JSON file,
// written by `automodel plan --calibrate` and by every training run, and used by estimates for this machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "arch/layout.h"
#include "arch/model_spec.h"

namespace automodel::estimate {

/// Seconds that one part of a model takes per microbatch, without parallelism inside the stage.
struct PartTime {
  double work = 0;  ///< forward FLOPs; output elements for a part without matmuls (embedding)
  double forward = 0;
  double backward = 0;  ///< both gradients in one pass
  double backward_input = 0;
  double backward_weight = 0;
  /// The same part scaled to a different amount of work.
  PartTime for_work(double other) const;
};

/// Name of a class of layers that cost the same: "full", "sliding", "moe full", "moe sliding".
std::string layer_kind(const arch::ModelSpec& spec, int layer);
/// The widths that determine the cost of layers and head, as text; equal for models with equal costs.
std::string widths_text(const arch::ModelSpec& spec);

/// The parts of one model, measured with one dtype and microbatch size.
struct Sample {
  std::string model = {};  ///< widths_text
  std::string type = {};   ///< compute dtype
  int threads = 1;         ///< per rank
  int ranks = 1;           ///< ranks computing at the same time
  std::int64_t microbatch = 1, sequence = 1;
  double peak = 0;              ///< FLOP/s of a large matmul
  double memory_bandwidth = 0;  ///< bytes per second, reads plus writes
  double optimizer_rate = 0;    ///< elements per second, gradient norm included
  struct Layer {
    std::string kind = {};
    PartTime time = {};
  };
  std::vector<Layer> layers = {};
  PartTime embedding = {}, head = {};
};

/// Link speed between two ranks of this machine in bytes per second. For collectives, bytes of the larger tensor as a
/// ring moves it.
struct LinkSample {
  double bandwidth = 0, latency = 0;
  double gather = 0, scatter = 0, sum = 0;  ///< all-gather, reduce-scatter, all-reduce
};

/// Measurements of runs with one plan, newest last.
struct PastRuns {
  std::string key = {};                ///< run_key (past_runs.h)
  std::string recipe = {};             ///< for display
  std::string when = {};               ///< of the newest
  std::vector<double> seconds = {};    ///< per run: median step time, excluding warm-up
  std::vector<double> tokens = {};     ///< per run: median of a step's tokens, without padding
  std::vector<double> predicted = {};  ///< per run: estimated step time before correction by past runs
  std::vector<double> bytes = {};      ///< per run: peak tensor memory of the heaviest rank
};

struct Calibration {
  std::string machine = {};  ///< machine_name() of the measured machine
  std::string when = {};     ///< of the newest sample
  double framework = 0;      ///< bytes of a process after loading its libraries
  LinkSample link = {};
  std::vector<Sample> samples = {};
  std::vector<PastRuns> runs = {};

  /// Adds a sample, replacing one with the same sizes. If there are too many, the oldest are dropped.
  void add(Sample sample);
  /// Adds the result of a run under its key; keeps the newest few per key.
  void add_run(PastRuns run);
  const PastRuns* find_runs(const std::string& key) const;
};

/// $AUTOMODEL_CALIBRATION, else automodel/calibration.json below $XDG_CACHE_HOME or
/// /.cache. Empty if the variable is set to an empty string, in which case nothing is read or written.
std::string calibration_path();
/// The content of that file; empty if there is none.
std::string calibration_text();
/// Empty if the text is not a calibration.
std::optional<Calibration> parse_calibration(const std::string& text);
std::string to_json(const Calibration& calibration);
/// A human-readable table of the measurements, newest last.
std::string to_text(const Calibration& calibration);
/// Atomically replaces the file, creating its folder if needed. Returns false on failure.
bool write_calibration(const Calibration& calibration);
/// Today's date in the file's format: 2026-01-31.
std::string date_text();
/// The content of the file if it was made on this machine; otherwise a new calibration.
Calibration own_calibration(const std::string& machine);

/// The sizes that an estimate needs rates for.
struct RatesRequest {
  const arch::ModelSpec* spec = nullptr;
  const arch::Layout* layout = nullptr;
  std::string type = {};
  int threads = 1, ranks = 1;
  std::int64_t microbatch = 1, sequence = 1;
};
/// The sample nearest in work per layer, and the one nearest in work of the head.
struct Rates {
  Sample layers = {}, head = {};
  bool exact = false;  ///< measured with exactly these sizes
  /// The time of a layer of this kind, or of another kind if that was not measured.
  const PartTime& layer(const std::string& kind) const;
};
/// Empty if there is no sample with this dtype.
std::optional<Rates> choose_rates(const Calibration& calibration, const RatesRequest& request);

}  // namespace automodel::estimate
