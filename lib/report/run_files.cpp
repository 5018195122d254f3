#include "report/run_files.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace automodel::report {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <class Use>
void each_line(const fs::path& path, Use&& use) {
  std::ifstream file(path, std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    const auto json = Json::parse(line, nullptr, false);
    if (json.is_object()) use(json);
  }
}

std::int64_t step_of(const Json& record) {
  const auto found = record.find("step");
  return found != record.end() && found->is_number_integer() ? found->get<std::int64_t>() : -1;
}

/// Every number in the records; anything else (null, "NaN") leaves a gap.
void read_metrics(const fs::path& path, std::map<std::string, Column>& out) {
  each_line(path, [&](const Json& record) {
    const auto step = step_of(record);
    if (step < 0) return;
    for (const auto& [key, value] : record.items()) {
      if (key == "step" || key == "timestamp") continue;
      auto& column = out[key];
      column.steps.push_back(step);
      column.values.push_back(value.is_number() ? value.get<double>() : kNone);
    }
  });
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void flatten(const Json& value, const std::string& path, FlatRecipe& out) {
  if (!value.is_object() || value.empty()) {
    out[path] = text_of(value);
    return;
  }
  for (const auto& [key, item] : value.items()) flatten(item, path.empty() ? key : path + "." + key, out);
}

void read_events(const fs::path& path, RunFiles& out) {
  each_line(path, [&](const Json& record) {
    RunEvent event{.step = step_of(record)};
    for (const auto& [key, value] : record.items()) {
      if (key == "event")
        event.event = text_of(value);
      else if (key == "timestamp")
        event.time = text_of(value);
      else if (key == "message")
        event.message = text_of(value);
      else if (key == "recipe")
        flatten(Json::parse(text_of(value), nullptr, false), "",
                out.recipes.emplace_back(event.step, FlatRecipe()).second);
      else if (key != "step")
        event.fields.emplace_back(key, text_of(value));
    }
    out.events.push_back(std::move(event));
  });
}

void read_estimate(const fs::path& path, std::vector<PlannedAndMeasured>& out) {
  const auto json = Json::parse(read_file(path), nullptr, false);
  if (!json.is_object()) return;
  const auto number = [](const Json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_number() ? found->get<double>() : kNone;
  };
  out.push_back(
      {"time per step", number(json, "predicted_step_seconds"), number(json, "measured_step_seconds"), false});
  out.push_back(
      {"peak of tensors", number(json, "predicted_tensor_bytes"), number(json, "measured_tensor_bytes"), true});
  if (const auto phases = json.find("phases"); phases != json.end() && phases->is_object())
    for (const auto& [name, phase] : phases->items())
      if (phase.is_object())
        out.push_back({"tensors, " + name, number(phase, "predicted_tensor_bytes"),
                       number(phase, "measured_tensor_bytes"), true});
}

}  // namespace

bool is_file(const fs::path& file) {
  std::error_code error;
  return fs::is_regular_file(file, error);
}

RunFiles read_run(const fs::path& folder, const Takes& takes) {
  if (!takes(folder / "training.jsonl"))
    throw Error(Diagnostic{"missing-file"}
                    .says("there is no training.jsonl in '{}'", folder.native())
                    .hint("name the folder of a run: its checkpoint.checkpoint_dir")
                    .at({"command line", 0, 0}));
  RunFiles out{.name = folder.native()};
  read_metrics(folder / "training.jsonl", out.metrics);
  if (takes(folder / "events.jsonl")) read_events(folder / "events.jsonl", out);
  if (takes(folder / "ranks.jsonl")) out.ranks = read_ranks(folder / "ranks.jsonl");
  if (takes(folder / "estimate.json")) read_estimate(folder / "estimate.json", out.estimate);
  std::error_code error;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (takes(entry.path())) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  constexpr std::string_view kPrefix = "validation";
  for (const auto& path : files) {
    const auto stem = path.stem().native();
    if (path.extension() == ".jsonl" && stem.starts_with(kPrefix)) {
      std::map<std::string, Column> columns;
      read_metrics(path, columns);
      out.validation[stem == kPrefix ? stem : stem.substr(kPrefix.size() + 1)] = columns["val_loss"];
    } else if (path.extension() == ".json" && path.filename() != "estimate.json") {
      if (auto trace = read_trace(read_file(path), path.filename().native()); !trace.lanes.empty())
        out.traces.push_back(std::move(trace));
    }
  }
  return out;
}

}  // namespace automodel::report
